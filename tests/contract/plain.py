"""A peer without redrive: plain pika, and message properties that no client would make."""

import contextlib
import struct
from collections.abc import Iterator

import pika
import pika.exceptions
from pika.adapters.blocking_connection import BlockingChannel
from pika.spec import Basic

from redrive.amqp.field_table import Table
from redrive.pubsub.blocking.connection import Connector
from redrive.pubsub.blocking.declarer import declaring
from waiting import wait_until

_HEADERS_FLAG = 1 << 13
_DELIVERY_MODE_FLAG = 1 << 12
_MESSAGE_ID_FLAG = 1 << 7


class RawProperties(pika.BasicProperties):
    """Properties that go on the wire as these bytes, past pika's encoder."""

    def __init__(self, raw: bytes) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._raw = raw

    def encode(self) -> list[bytes]:
        return [self._raw]


def properties_of(headers: bytes | Table, message_id: str) -> RawProperties:
    """A persistent message's properties with this field table, byte for byte."""
    table = headers.encode() if isinstance(headers, Table) else headers
    name = message_id.encode()
    flags = struct.pack(">H", _HEADERS_FLAG | _DELIVERY_MODE_FLAG | _MESSAGE_ID_FLAG)
    return RawProperties(
        flags + struct.pack(">I", len(table)) + table + b"\2" + bytes((len(name),)) + name
    )


@contextlib.contextmanager
def plain_channel(url: str) -> Iterator[BlockingChannel]:
    """A channel of plain pika, with confirms."""
    connection = pika.BlockingConnection(pika.URLParameters(url))
    try:
        channel = connection.channel()
        channel.confirm_delivery()
        yield channel
    finally:
        if connection.is_open:
            connection.close()


def wait_for_consumers(url: str, queue: str, count: int = 1) -> None:
    """Waits until so many consume a queue. Who starts one goes on before the broker has it."""

    def consumed() -> bool:
        with plain_channel(url) as channel:
            try:
                found = channel.queue_declare(queue, passive=True).method.consumer_count
            except pika.exceptions.ChannelClosedByBroker:  # it is not there yet
                return False
        return int(found) == count

    wait_until(consumed, f"{queue} has {count} of them that consume it")


def publish_plain(
    url: str,
    routing_key: str,
    body: bytes,
    properties: pika.BasicProperties,
    exchange: str = "master",
) -> None:
    """Publishes one message as a peer would; it must get into a queue."""
    with plain_channel(url) as channel:
        channel.basic_publish(exchange, routing_key, body, properties, mandatory=True)


def depth(url: str, queue: str) -> int:
    """How many messages of a queue are ready; counted as redrive does, since a busy broker says 0
    of a queue that is full."""
    with declaring(Connector(url, "test")) as declarer:
        found = declarer.depth(queue)
    assert found is not None, f"there is no queue {queue}"
    return found.messages


def drain(url: str, queue: str) -> list[tuple[pika.BasicProperties, bytes]]:
    """Takes out what is ready in a queue."""
    taken: list[tuple[pika.BasicProperties, bytes]] = []
    last_tag = 0

    def take(
        _: object, method: Basic.Deliver, properties: pika.BasicProperties, body: bytes
    ) -> None:
        nonlocal last_tag
        taken.append((properties, body))
        last_tag = method.delivery_tag

    with plain_channel(url) as channel:
        quiet = 0.2
        while True:
            # Thousands come this way in the time in which hundreds can be asked for one by one.
            # They are acked by us: of what the broker acks by itself, pika drops what comes while a
            # consumer is being cancelled. Source: pika 1.4.4, measured.
            consumer = channel.basic_consume(queue, take)
            before = -1
            while len(taken) > before:
                before = len(taken)
                channel.connection.process_data_events(quiet)
            if last_tag:
                channel.basic_ack(last_tag, multiple=True)
                last_tag = 0
            channel.basic_cancel(consumer)
            # That nothing came may have been the machine's fault: the broker says what is left.
            method, left, last = channel.basic_get(queue, auto_ack=True)
            if method is None:
                return taken
            assert left is not None
            assert last is not None
            taken.append((left, last))
            quiet = min(2 * quiet, 5.0)
