"""The columns of the filter language: what can be asked about a failed message, by name.

Whatever bytes a peer sent, each column has a value: null for what is unknown or damaged.
"""

import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from functools import lru_cache

from redrive.amqp.field_table import decode_value
from redrive.failures.message import readable_values
from redrive.failures.message.cause import cause_of
from redrive.failures.message.failed_message import FailedMessage
from redrive.redaction import text_of
from redrive.topology.decision import REASONS
from redrive.topology.headers import Delivery

Value = None | int | str | bytes | datetime
"""A column's value in Python: JSON as its text, a time as an aware datetime in UTC."""

Row = dict[str, Value]

_ENCODER = json.JSONEncoder(ensure_ascii=False)


class SqlType(StrEnum):
    """Column types, as DuckDB names them."""

    TEXT = "VARCHAR"
    NUMBER = "BIGINT"
    TIME = "TIMESTAMP WITH TIME ZONE"
    JSON = "JSON"
    BYTES = "BLOB"


@dataclass(frozen=True, slots=True)
class Column:
    """A column.

    Args:
        name: its name in the filter language.
        type: its SQL type.
        nullable: whether it may be null.
        description: what it contains, for help and documentation.
        read: returns its value for a message.
    """

    name: str
    type: SqlType
    nullable: bool
    description: str
    read: Callable[[FailedMessage], Value]


def row_of(delivery: Delivery, columns: Iterable[Column] | None = None) -> Row:
    """Return a failed message as a row: the values of the given columns, or of all columns, by
    name. Never raises."""
    return row_of_message(FailedMessage(delivery), COLUMNS if columns is None else columns)


def row_of_message(message: FailedMessage, columns: Iterable[Column]) -> Row:
    """Return a failed message as a row; if its values are masked, so is the row."""
    return {column.name: column.read(message) for column in columns}


def _clean(text: str | None) -> str | None:
    return None if text is None else text_of(text)


def _headers(message: FailedMessage) -> str:
    fields = message.properties.headers.raw_by_name().items()
    return "{" + ", ".join(dict([_json_of(name, raw) for name, raw in fields]).values()) + "}"


@lru_cache(maxsize=512)
def _json_of(name: str, raw: bytes) -> tuple[str, str]:
    """Return a header's displayable name, and the header as a member of a JSON object. Cached,
    because the messages of a queue share most headers."""
    text = text_of(name)
    return (
        text,
        f"{_ENCODER.encode(text)}: {_ENCODER.encode(readable_values.value_of(decode_value(raw)))}",
    )


_TEXT, _NUMBER, _TIME, _JSON, _BYTES = (
    SqlType.TEXT,
    SqlType.NUMBER,
    SqlType.TIME,
    SqlType.JSON,
    SqlType.BYTES,
)

COLUMNS = (
    Column(
        "failure_id",
        _TEXT,
        False,
        "the identity of this failure; of a peer's message, a fingerprint",
        lambda m: m.failure_id,
    ),
    Column(
        "message_id",
        _TEXT,
        True,
        "the publisher's id for the message",
        lambda m: _clean(m.message_id),
    ),
    Column("queue", _TEXT, False, "the queue that it failed in", lambda m: text_of(m.queue)),
    Column(
        "dead_letter_queue",
        _TEXT,
        True,
        "the queue that it is in, if redrive did not create it",
        lambda m: _clean(m.dead_letter_queue),
    ),
    Column(
        "way_back",
        _TEXT,
        True,
        "where a requeue sends it: a queue, or an exchange with a key",
        lambda m: None if (way := m.way_back) is None else text_of(str(way)),
    ),
    Column(
        "dialect",
        _TEXT,
        False,
        "which framework describes its failure: redrive, celery, masstransit …, or unknown",
        lambda m: m.dialect,
    ),
    Column(
        "routing_key",
        _TEXT,
        False,
        "the key that it was first published with",
        lambda m: text_of(m.routing_key),
    ),
    Column(
        "exchange",
        _TEXT,
        True,
        "the exchange that it was first published to",
        lambda m: _clean(m.exchange),
    ),
    Column(
        "error_type",
        _TEXT,
        True,
        "the class of the last attempt's exception",
        lambda m: m.error_type,
    ),
    Column("error_message", _TEXT, True, "the text of that exception", lambda m: m.error_message),
    Column("traceback", _TEXT, True, "its traceback", lambda m: m.traceback),
    Column(
        "reason", _TEXT, True, f"why it was set aside: {', '.join(REASONS)}", lambda m: m.reason
    ),
    Column("retries", _NUMBER, False, "retries made before it was set aside", lambda m: m.retries),
    Column(
        "redrive_count",
        _NUMBER,
        False,
        "how many times it was requeued before",
        lambda m: m.redrive_count,
    ),
    Column(
        "first_failed_at",
        _TIME,
        True,
        "when its first attempt failed; kept by a requeue",
        lambda m: m.first_failed_at,
    ),
    Column("failed_at", _TIME, True, "when it was set aside", lambda m: m.failed_at),
    Column("published_at", _TIME, True, "the publisher's timestamp", lambda m: m.published_at),
    Column("host", _TEXT, True, "the host of the worker that set it aside", lambda m: m.host),
    Column(
        "app_id",
        _TEXT,
        True,
        "the publisher's name for itself",
        lambda m: _clean(m.properties.app_id),
    ),
    Column(
        "type",
        _TEXT,
        True,
        "the publisher's name for the kind of message",
        lambda m: _clean(m.properties.type),
    ),
    Column(
        "content_type", _TEXT, True, "the MIME type of the body", lambda m: _clean(m.content_type)
    ),
    Column(
        "correlation_id",
        _TEXT,
        True,
        "the publisher's id for what the message relates to",
        lambda m: _clean(m.properties.correlation_id),
    ),
    Column("headers", _JSON, False, "all headers", _headers),
    Column(
        "body",
        _JSON,
        True,
        "the body if it is JSON, as its handler reads it",
        lambda m: readable_values.json_text_of(m),
    ),
    Column(
        "body_text",
        _TEXT,
        True,
        "the body if it is text, uncompressed and in UTF-8",
        lambda m: readable_values.body_text_of(m),
    ),
    Column("body_bytes", _BYTES, False, "the body as it came, byte for byte", lambda m: m.body),
    Column("size", _NUMBER, False, "the body's length in bytes", lambda m: m.size),
    Column(
        "group_id",
        _TEXT,
        False,
        "the same for all messages with one cause: type, masked message, frame",
        lambda m: cause_of(m).group_id,
    ),
)
"""All columns, in order."""

BY_NAME = {column.name: column for column in COLUMNS}
BODIES = frozenset({"body", "body_text", "body_bytes"})
"""The columns that contain a body."""
