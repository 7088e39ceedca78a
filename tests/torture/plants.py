"""Known bugs, put in place on purpose to see that a torture run finds them. They are patches of the
processes of a run; nothing of them is in redrive."""

import contextlib
from collections.abc import Callable, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any
from unittest import mock

import pika

from redrive.pubsub.confirms import Outgoing
from redrive.pubsub.engine import Engine
from redrive.topology import ladder, model, rewrite
from redrive.topology.model import Queue, Subscription
from redrive.topology.rewrite import Publish
from torture.fault_plan import Kind
from torture.lanes import lane_of, number_of

_LIMIT = 20
"""What a quorum queue of RabbitMQ 4 has where nothing is said."""
_BETWEEN_ACK_AND_PUBLISH = 0.2
_WAITING = "torture.waiting"


def plant(name: str, url: str) -> None:
    """Puts a bug in place in this process; none where the name is empty."""
    if name:
        PLANTS[name](url)


def is_held(name: str, id_: str) -> bool:
    """Whether the handler of this message does not return until the end: it is returned to its
    queue at each lost connection."""
    return (
        name == "default-delivery-limit"
        and lane_of(id_).startswith("deadletter")
        and number_of(id_) == 0
    )


def kinds_of(name: str) -> tuple[Kind, ...]:
    """The kinds of faults by which a planted bug shows; any where there is none."""
    return _KINDS.get(name, ())


def _ack_before_publish(_: str) -> None:
    publish = Engine._publish

    def publish_too_late(engine: Engine, item: Any, verdict: Any, step: Any) -> None:
        if engine._redeclarer.lacks(step.levels):
            publish(engine, item, verdict, step)
            return
        item.consumer.ack(item.received.delivery_tag)
        engine._done(item, verdict)
        engine._flush()
        outgoing = Outgoing(
            step.publish.exchange,
            step.publish.routing_key,
            step.publish.properties.encode(),
            step.publish.body,
            step.publish.properties.message_id or "",
            lambda *_: None,
        )

        def send() -> None:
            # Without a connection there is nowhere to send it to: that is the bug.
            with contextlib.suppress(Exception):
                engine._moves.send(outgoing)

        engine._link.call_later(_BETWEEN_ACK_AND_PUBLISH, send)

    mock.patch.object(Engine, "_publish", publish_too_late).start()


def _ttl_per_message(url: str) -> None:
    connection = pika.BlockingConnection(pika.URLParameters(url))
    channel = connection.channel()
    channel.exchange_declare(_WAITING, "fanout", durable=True)
    channel.queue_declare(
        _WAITING,
        durable=True,
        arguments={"x-queue-type": "classic", "x-dead-letter-exchange": ""},
    )
    channel.queue_bind(_WAITING, _WAITING)
    connection.close()
    postpone = rewrite.postpone

    def wait_in_one_queue(delivery: Any, *arguments: Any, delay: Any, **options: Any) -> Publish:
        publish: Publish = postpone(delivery, *arguments, delay=delay, **options)
        milliseconds = str(int(delay.total_seconds() * 1000))
        return replace(
            publish,
            exchange=_WAITING,
            routing_key=delivery.queue,
            properties=publish.properties._replace(expiration=milliseconds),
        )

    mock.patch.object(rewrite, "postpone", wait_in_one_queue).start()


def _default_delivery_limit(_: str) -> None:
    main_queue = Subscription._main_queue

    def with_the_default(subscription: Subscription) -> Queue:
        queue = main_queue(subscription)
        arguments = dict(queue.arguments)
        if "x-delivery-limit" in arguments:
            arguments["x-delivery-limit"] = _LIMIT
        return replace(queue, arguments=MappingProxyType(arguments))

    mock.patch.object(Subscription, "_main_queue", with_the_default).start()


def _no_alternate_exchange(_: str) -> None:
    def nothing(_: object) -> Mapping[str, str]:
        return MappingProxyType({})

    for module in (model, ladder):
        mock.patch.object(module, "unrouted_goes_to", nothing).start()


PLANTS: dict[str, Callable[[str], None]] = {
    "ack-before-publish": _ack_before_publish,
    "ttl-per-message": _ttl_per_message,
    "default-delivery-limit": _default_delivery_limit,
    "no-alternate-exchange": _no_alternate_exchange,
}

_KINDS: dict[str, tuple[Kind, ...]] = {
    "ack-before-publish": ("wire cut", "worker killed", "node killed"),
    "ttl-per-message": ("publisher killed",),
    "default-delivery-limit": ("wire cut",),
    "no-alternate-exchange": ("queue deleted", "publisher killed"),
}
