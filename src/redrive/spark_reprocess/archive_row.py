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
from redrive.failures.readable_values import checked_json
from redrive.failures.stored_message import QUEUE, WIRE
from redrive.pubsub.body import Unreadable, utf8_of

REDELIVERED, BODY_KIND = "redelivered", "body_kind"
FAILED_IN = "failed_in"
"""The queue that a message of a dead-letter queue failed in: the file's name has the dead-letter
queue. Of a subscription's message there is none, nor in archives of before."""
PLAIN_BODY = "plain_body"
"""The body as its handler reads it, where that is another than came, and not too large. Archives of
before have none."""
JSON_BODY, TEXT_BODY, BINARY_BODY = "json", "text", "binary"
MOST_OF_A_PLAIN_BODY = 64 * 1024
"""Bytes that come out of a compressed body and are kept: a file's messages have to fit in
memory."""

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
        pyarrow.field(PLAIN_BODY, pyarrow.binary()),
    ]
)
_READ = [column.read for column in _COLUMNS]
_READ_WIRE = [column.read for column in WIRE]
_READ_QUEUE = BY_NAME[QUEUE].read


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
    text = _text_of(message)
    return [
        *[read(message) for read in _READ],
        _kind_of(text),
        *[read(message) for read in _READ_WIRE],
        redelivered,
        None if message.dead_letter_queue is None else _READ_QUEUE(message),
        None if text is None or text == message.body else text,
    ]


def _text_of(message: FailedMessage) -> bytes | None:
    """A body as its handler reads it, where that is a text, and not much more than came."""
    most = max(MOST_OF_A_PLAIN_BODY, 2 * len(message.body))
    try:
        text = utf8_of(message.body, message.properties, most)
        text.decode()
    except (Unreadable, UnicodeDecodeError):
        return None
    return text


def _kind_of(text: bytes | None) -> str:
    if text is None:
        return BINARY_BODY
    return TEXT_BODY if checked_json(text.decode()) is None else JSON_BODY
