"""Write failed messages as rows of the archive: byte for byte as the broker delivered them, plus
the columns of the filter language.

The property bytes are authoritative: they hold every header with its AMQP type. A body is stored
once; its kind tells a reader of the archive whether it is text, JSON or binary.
"""

from collections.abc import Collection, Iterable, Sequence
from typing import Any

import pyarrow
import pyarrow.compute as pc
import pyarrow.parquet

from redrive.amqp.frames import Received
from redrive.failures.message.columns import BY_NAME, COLUMNS, Column, SqlType, Value
from redrive.failures.message.failed_message import FailedMessage
from redrive.failures.message.readable_values import checked_json
from redrive.failures.queue.failed_source import FailedSource
from redrive.failures.store.stored_message import BODY, QUEUE, WIRE
from redrive.pubsub.body import Unreadable, utf8_of

REDELIVERED, BODY_KIND = "redelivered", "body_kind"
FAILED_IN = "failed_in"
"""The queue that a message of a dead-letter queue failed in; the folder is named after the
dead-letter queue. Null for messages of subscriptions, and in older archives."""
PLAIN_BODY = "plain_body"
"""The body as its handler reads it, if that differs from the bytes received and is not too large.
Null in older archives."""
JSON_BODY, TEXT_BODY, BINARY_BODY = "json", "text", "binary"
MOST_OF_A_PLAIN_BODY = 64 * 1024
"""Bytes up to which a decompressed body is always kept: all messages of a file must fit in
memory."""

_TYPES = {
    SqlType.TEXT: pyarrow.string(),
    SqlType.NUMBER: pyarrow.int64(),
    SqlType.TIME: pyarrow.timestamp("us", "UTC"),
    SqlType.JSON: pyarrow.string(),
    SqlType.BYTES: pyarrow.binary(),
}
_OF_A_BODY = frozenset({BODY_KIND, PLAIN_BODY, BODY})
COMPUTED = {
    QUEUE: frozenset({QUEUE, FAILED_IN}),
    "body": _OF_A_BODY,
    "body_text": _OF_A_BODY,
}
"""Columns that come from the folder names, or from the body when it is read, each with the columns
that it is computed from."""

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


def batch_of(messages: Sequence[FailedMessage], columns: Sequence[Column]) -> pyarrow.RecordBatch:
    """Return the values of some columns for messages, as an Arrow batch."""
    return pyarrow.RecordBatch.from_arrays(
        [
            pyarrow.array([column.read(message) for message in messages], _TYPES[column.type])
            for column in columns
        ],
        [column.name for column in columns],
    )


def table_of(source: FailedSource, messages: Iterable[Received]) -> pyarrow.Table:
    """Return the rows of messages received from a failed queue, in their order."""
    return _table_of(
        _values_of(source.message_of(received), redelivered=received.redelivered)
        for received in messages
    )


def table_of_copies(messages: Iterable[FailedMessage]) -> pyarrow.Table:
    """Return the rows of messages of one queue that another reader received, in their order."""
    return _table_of(_values_of(message, redelivered=False) for message in messages)


def _table_of(messages: Iterable[Sequence[Any]]) -> pyarrow.Table:
    columns = list(zip(*messages, strict=True)) or [()] * len(SCHEMA)
    return pyarrow.Table.from_arrays(
        [pyarrow.array(column, field.type) for column, field in zip(columns, SCHEMA, strict=True)],
        schema=SCHEMA,
    )


def parquet_of(rows: pyarrow.Table) -> bytes:
    """Return rows as a Parquet file."""
    sink = pyarrow.BufferOutputStream()
    pyarrow.parquet.write_table(rows, sink, compression="zstd")
    data: bytes = sink.getvalue().to_pybytes()
    return data


def with_computed(rows: pyarrow.Table, wanted: Collection[str]) -> pyarrow.Table:
    """Return rows of a file, which have the queue that its folder is named after, with those of the
    wanted columns that are not stored: the same as `archive_reader.with_columns` makes of them."""

    def where(kinds: Sequence[str]) -> pyarrow.ChunkedArray:
        chosen = pc.is_in(rows[BODY_KIND], pyarrow.array(kinds))
        text = pc.coalesce(rows[PLAIN_BODY], rows[BODY])
        return pc.if_else(chosen, text, None).cast(pyarrow.string())

    made = rows
    if QUEUE in wanted:
        queue = pc.coalesce(rows[FAILED_IN], rows[QUEUE])
        made = made.drop_columns([QUEUE]).append_column(QUEUE, queue)
    if "body" in wanted:
        made = made.append_column("body", where([JSON_BODY]))
    if "body_text" in wanted:
        made = made.append_column("body_text", where([JSON_BODY, TEXT_BODY]))
    return made


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
    """Return the body as its handler reads it, if it is text and did not expand too much."""
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
