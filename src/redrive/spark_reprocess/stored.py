"""A failed message as a row of the archive: as the broker delivered it, byte for byte, and the columns of the filter language beside it.

The property bytes are the truth: they hold every header with its AMQP type. A body is stored once; what it is as a text or as JSON is
told by its kind when the archive is read.
"""

from collections.abc import Iterable, Sequence
from typing import Any

import pyarrow
import pyarrow.parquet

from redrive.failures.columns import BY_NAME, COLUMNS, SqlType, Value
from redrive.pubsub.blocking.taking import delivery_of
from redrive.pubsub.frames import Received
from redrive.pubsub.message import FailedMessage

EXCHANGE, ROUTING_KEY, PROPERTIES, REDELIVERED, BODY_KIND = (
    "delivered_exchange",
    "delivered_routing_key",
    "properties",
    "redelivered",
    "body_kind",
)
BODY = "body_bytes"
JSON_BODY, TEXT_BODY, BINARY_BODY = "json", "text", "binary"

_TYPES = {
    SqlType.TEXT: pyarrow.string(),
    SqlType.NUMBER: pyarrow.int64(),
    SqlType.TIME: pyarrow.timestamp("us", "UTC"),
    SqlType.JSON: pyarrow.string(),
    SqlType.BYTES: pyarrow.binary(),
}
COMPUTED = frozenset({"queue", "body", "body_text"})
"""Columns that are in the files' names, or made of the body when they are read."""

_COLUMNS = [column for column in COLUMNS if column.name not in COMPUTED]
SCHEMA = pyarrow.schema(
    [
        *(pyarrow.field(column.name, _TYPES[column.type], column.nullable) for column in _COLUMNS),
        pyarrow.field(BODY_KIND, pyarrow.string(), False),
        pyarrow.field(EXCHANGE, pyarrow.binary(), False),
        pyarrow.field(ROUTING_KEY, pyarrow.binary(), False),
        pyarrow.field(PROPERTIES, pyarrow.binary(), False),
        pyarrow.field(REDELIVERED, pyarrow.bool_(), False),
    ]
)
_READ = [column.read for column in _COLUMNS]
_READ_JSON, _READ_TEXT = BY_NAME["body"].read, BY_NAME["body_text"].read


def parquet_of(queue: str, messages: Iterable[Received]) -> bytes:
    """A Parquet file of messages received from the failed queue of `queue`, in their order."""
    rows: list[Sequence[Any]] = [_values_of(queue, received) for received in messages]
    columns = list(zip(*rows, strict=True)) or [()] * len(SCHEMA)
    table = pyarrow.Table.from_arrays(
        [pyarrow.array(column, field.type) for column, field in zip(columns, SCHEMA, strict=True)], schema=SCHEMA
    )
    sink = pyarrow.BufferOutputStream()
    pyarrow.parquet.write_table(table, sink, compression="zstd")
    data: bytes = sink.getvalue().to_pybytes()
    return data


def _values_of(queue: str, received: Received) -> Sequence[Value]:
    message = FailedMessage(delivery_of(queue, received))
    return [
        *[read(message) for read in _READ],
        _kind_of(message),
        received.exchange.encode("utf-8", "surrogateescape"),
        received.routing_key.encode("utf-8", "surrogateescape"),
        received.properties,
        received.redelivered,
    ]


def _kind_of(message: FailedMessage) -> str:
    if _READ_JSON(message) is not None:
        return JSON_BODY
    return BINARY_BODY if _READ_TEXT(message) is None else TEXT_BODY
