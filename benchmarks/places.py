"""Queues of a run, and what is in them. Plumbing that no contender is measured by."""

import contextlib
import socket
import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import replace

import pika

from benchmarks.measure import RETRY_SECONDS, Place
from redrive.testing import Broker
from redrive.testing.address import Address
from redrive.testing.container_engine import engine_answers
from redrive.topology.model import QueueType, RetryVia, Subscription
from redrive.topology.names import ExchangeFamily
from redrive.topology.policy import RetryPolicy

_PORT = 5672


@contextlib.contextmanager
def fresh_place(
    broker: Broker,
    prefetch: int | None,
    reached: Callable[[str], str],
    queue_type: QueueType = "quorum",
) -> Iterator[Place]:
    """A virtual host that one run has to itself; it is deleted afterwards with all that is in it.

    Args:
        broker: where.
        prefetch: unsettled deliveries; None for the contender's own default.
        reached: returns the URL by which it is reached, of that by which it is reached usually.
        queue_type: of its queue.
    """
    name = f"benchmark-{uuid.uuid4().hex[:8]}"
    try:
        url = reached(broker.create_virtual_host(name))
        yield Place(url, broker.management_url or "", prefetch, queue_type)
    finally:
        broker.delete_virtual_host(name)


def over_tls(url: str, port: int) -> str:
    """The URL with TLS on a port."""
    return replace(Address.parse(url).at("localhost", port), tls=True).url


def past_the_proxy(url: str) -> str:
    """The URL with the container's own address, where this machine reaches it.

    An engine hands each byte of a published port on through a process of its own. On two cores that
    is measured as the client's cost, and as none of the shovel's, which works inside the broker.
    """
    address = Address.parse(url)
    if not engine_answers():
        return url
    import docker

    with contextlib.closing(docker.from_env()) as engine:
        for container in engine.containers.list(filters={"publish": str(address.port)}):
            for network in container.attrs["NetworkSettings"]["Networks"].values():
                with (
                    contextlib.suppress(OSError),
                    socket.create_connection((network["IPAddress"], _PORT), timeout=1),
                ):
                    return address.at(network["IPAddress"], _PORT).url
    return url


def declare(place: Place, retry_via: RetryVia | None = None) -> None:
    """Declares what redrive's subscriber would: the same queue, down to its arguments, for every
    contender that can use one.

    Args:
        place: where.
        retry_via: by which mechanism it waits for the time of the retries; None for the usual
            queue.
    """
    delay = RetryPolicy() if retry_via is None else RetryPolicy(delay=RETRY_SECONDS)
    topology = Subscription(
        place.queue,
        [place.pattern],
        ExchangeFamily(place.exchange),
        delay,
        place.queue_type,
        retry_via=retry_via or "dead-letter",
    ).topology()
    with pika.BlockingConnection(pika.URLParameters(place.url)) as connection:
        channel = connection.channel()
        for exchange in topology.exchanges:
            channel.exchange_declare(
                exchange.name, exchange.type, durable=True, arguments=dict(exchange.arguments)
            )
        for queue in topology.queues:
            channel.queue_declare(queue.name, durable=True, arguments=dict(queue.arguments))
        for binding in topology.bindings:
            channel.queue_bind(binding.destination, binding.source, binding.routing_key)


def settled_depth(place: Place, expected: int, seconds: float = 10.0) -> int:
    """How many messages are ready in the main queue once there are `expected`, or after so many
    seconds."""
    deadline = time.monotonic() + seconds
    with pika.BlockingConnection(pika.URLParameters(place.url)) as connection:
        channel = connection.channel()
        while True:
            depth = int(channel.queue_declare(place.queue, passive=True).method.message_count)
            if depth == expected or time.monotonic() > deadline:
                return depth
            time.sleep(0.05)
