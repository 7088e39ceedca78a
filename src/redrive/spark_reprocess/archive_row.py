"""A failed message as a row of the archive: as the broker delivered it, byte for byte, and the
columns of the filter language beside it.

The property bytes are the truth: they hold every header with its AMQP type. A body is stored once;
what it is as a text or as JSON is told by its kind when the archive is read.
"""

from collections.abc import Iterable, Sequence
from typing import Any

import pyarrow
import pyarrow.parquet

from redrive.amqp.frames import Received
from redrive.failures.columns import BY_NAME, COLUMNS, SqlType, Value
from redrive.failures.failed_message import FailedMessage
from redrive.failures.failed_source import FailedSource
from redrive.failures.stored_message import QUEUE, WIRE

REDELIVERED, BODY_KIND = "redelivered", "body_kind"
FAILED_IN = "failed_in"
"""The queue that a message of a dead-letter queue failed in: the file's name has the dead-letter
queue. Of a subscription's message there is none, nor in archives of before."""
JSON_BODY, TEXT_BODY, BINARY_BODY = "json", "text", "binary"

_TYPES = {
    SqlType.TEXT: pyarrow.string(),
    SqlType.NUMBER: pyarrow.int64(),
    SqlType.TIME: pyarrow.timestamp("us", "UTC"),
    SqlType.JSON: pyarrow.string(),
    SqlType.BYTES: pyarrow.binary(),
}
COMPUTED = frozenset({QUEUE, "body", "body_text"})
"""Columns that are in the files' names, or made of the body when they are read."""

_COLUMNS = [column for column in COLUMNS if column.name not in COMPUTED]
SCHEMA = pyarrow.schema(
    [
        *(pyarrow.field(column.name, _TYPES[column.type], column.nullable) for column in _COLUMNS),
        pyarrow.field(BODY_KIND, pyarrow.string(), False),
        *(pyarrow.field(column.name, _TYPES[column.type], column.nullable) for column in WIRE),
        pyarrow.field(REDELIVERED, pyarrow.bool_(), False),
        pyarrow.field(FAILED_IN, pyarrow.string()),
    ]
)
_READ = [column.read for column in _COLUMNS]
_READ_WIRE = [column.read for column in WIRE]
_READ_QUEUE = BY_NAME[QUEUE].read
_READ_JSON, _READ_TEXT = BY_NAME["body"].read, BY_NAME["body_text"].read


def parquet_of(source: FailedSource, messages: Iterable[Received]) -> bytes:
    """A Parquet file of messages received from a queue of failed ones, in their order."""
    return _parquet_of(
        _values_of(source.message_of(received), redelivered=received.redelivered)
        for received in messages
    )


def parquet_of_copies(messages: Iterable[FailedMessage]) -> bytes:
    """A Parquet file of messages of one queue that were delivered to somebody else, in their
    order."""
    return _parquet_of(_values_of(message, redelivered=False) for message in messages)


def _parquet_of(messages: Iterable[Sequence[Any]]) -> bytes:
    rows = list(messages)
    columns = list(zip(*rows, strict=True)) or [()] * len(SCHEMA)
    table = pyarrow.Table.from_arrays(
        [pyarrow.array(column, field.type) for column, field in zip(columns, SCHEMA, strict=True)],
        schema=SCHEMA,
    )
    sink = pyarrow.BufferOutputStream()
    pyarrow.parquet.write_table(table, sink, compression="zstd")
    data: bytes = sink.getvalue().to_pybytes()
    return data


def _values_of(message: FailedMessage, *, redelivered: bool) -> Sequence[Value]:
    return [
        *[read(message) for read in _READ],
        _kind_of(message),
        *[read(message) for read in _READ_WIRE],
        redelivered,
        None if message.dead_letter_queue is None else _READ_QUEUE(message),
    ]


def _kind_of(message: FailedMessage) -> str:
    if _READ_JSON(message) is not None:
        return JSON_BODY
    return BINARY_BODY if _READ_TEXT(message) is None else TEXT_BODY
