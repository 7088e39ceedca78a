"""The stored form of a failed message, in snapshots and in archives of the Spark job.

The message can be rebuilt from it, byte for byte.
"""

import struct
from collections.abc import Sequence

from redrive.amqp.properties import Properties
from redrive.failures.message.columns import Column, SqlType
from redrive.failures.message.failed_message import FailedMessage, property_bytes_of
from redrive.topology.headers import Delivery

QUEUE, BODY = "queue", "body_bytes"
"""Columns of the filter language that hold their value unchanged."""
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
        property_bytes_of,
    ),
)
"""Columns stored in addition to those of the filter language."""

NEEDED = (QUEUE, *(column.name for column in WIRE), BODY)
"""The columns that a message is rebuilt from, in the order of `message_of`."""
DEAD_LETTER_QUEUE = "dead_letter_queue"
"""An optional further column, which redrive 0.1 did not write."""
FORMER_NAMES = {
    EXCHANGE: "raw_exchange",
    ROUTING_KEY: "raw_routing_key",
    PROPERTIES: "raw_properties",
}
"""Names of these columns in snapshots of redrive 0.1."""


def message_of(values: Sequence[object], *, is_sent: bool = True) -> FailedMessage:
    """Rebuild a message from its values in the order of `NEEDED`.

    An optional further value is the dead-letter queue that the message was read from; None for a
    subscription's failed queue.
    """
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
    """Encode a name from the wire to its bytes."""
    return text.encode("utf-8", "surrogateescape")


def text_of(raw: bytes) -> str:
    """Decode bytes from the wire to a name."""
    return raw.decode("utf-8", "surrogateescape")


def _name(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{type(value).__name__} instead of text")
    return value


def _bytes(raw: object) -> bytes:
    if not isinstance(raw, bytes):
        raise TypeError(f"{type(raw).__name__} instead of bytes")
    return raw
