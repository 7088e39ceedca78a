"""The stored form of a failed message: what it is made of again, byte for byte, in a snapshot and
in an archive of the Spark job alike."""

import struct
from collections.abc import Sequence

from redrive.amqp.properties import Properties
from redrive.failures.columns import Column, SqlType
from redrive.failures.failed_message import FailedMessage
from redrive.topology.headers import Delivery

QUEUE, BODY = "queue", "body_bytes"
"""Columns of the filter language that are as they came."""
EXCHANGE, ROUTING_KEY, PROPERTIES = "delivered_exchange", "delivered_routing_key", "properties"

WIRE = (
    Column(
        EXCHANGE,
        SqlType.BYTES,
        False,
        "the exchange of the delivery",
        lambda m: bytes_of(m.delivery.exchange),
    ),
    Column(
        ROUTING_KEY,
        SqlType.BYTES,
        False,
        "the routing key of the delivery",
        lambda m: bytes_of(m.delivery.routing_key),
    ),
    Column(
        PROPERTIES,
        SqlType.BYTES,
        False,
        "property flags and properties as they came",
        lambda m: m.properties.encode(),
    ),
)
"""What stands beside the columns of the filter language."""

NEEDED = (QUEUE, *(column.name for column in WIRE), BODY)
"""What a message is made of, in the order in which `message_of` takes it."""
DEAD_LETTER_QUEUE = "dead_letter_queue"
"""What it takes after these, if it is there: redrive 0.1 did not write it."""
FORMER_NAMES = {
    EXCHANGE: "raw_exchange",
    ROUTING_KEY: "raw_routing_key",
    PROPERTIES: "raw_properties",
}
"""How snapshots of redrive 0.1 name them."""


def message_of(values: Sequence[object], *, is_sent: bool = True) -> FailedMessage:
    """The message that has these values, in the order of `NEEDED`, and behind them the dead-letter
    queue that it was read from, None for a subscription's failed queue."""
    try:
        queue, exchange, routing_key, properties, body, *others = values
        (place,) = others or (None,)
        delivery = Delivery(
            _name(queue if place is None else place),
            text_of(_bytes(exchange)),
            text_of(_bytes(routing_key)),
            Properties.parse(_bytes(properties)),
            _bytes(body),
            dead_letter_queue="" if place is None else _name(place),
        )
        if is_sent:
            delivery.properties.encode()
    except (TypeError, IndexError, ArithmeticError, struct.error, RecursionError) as error:
        raise ValueError(str(error)) from error
    return FailedMessage(delivery) if place is None else FailedMessage.of_dead_letter(delivery)


def bytes_of(text: str) -> bytes:
    """A name of the wire as its bytes."""
    return text.encode("utf-8", "surrogateescape")


def text_of(raw: bytes) -> str:
    """Bytes of the wire as a name."""
    return raw.decode("utf-8", "surrogateescape")


def _name(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{type(value).__name__} in place of a text")
    return value


def _bytes(raw: object) -> bytes:
    if not isinstance(raw, bytes):
        raise TypeError(f"{type(raw).__name__} in place of bytes")
    return raw
