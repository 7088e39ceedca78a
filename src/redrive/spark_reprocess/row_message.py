"""Turn rows of a DataFrame into messages to publish: as they are, requeued to where they failed, or
restored to the queue that they were drained from.

The rules are those of `failures` and `topology`. Requeueing and restoring need the archive's
columns; plain publishing needs only a routing key and a body.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from enum import StrEnum
from typing import TYPE_CHECKING, Any, NamedTuple

from redrive.amqp.field_table import FieldValue
from redrive.amqp.properties import Properties
from redrive.errors import ConfigurationError
from redrive.failures.message.dialects.known import renewed
from redrive.failures.message.direction import Direction
from redrive.failures.message.failed_message import FailedMessage
from redrive.failures.message.readable_values import is_json, json_text_of
from redrive.failures.message.route import WayBack
from redrive.failures.store.stored_message import (
    BODY,
    DEAD_LETTER_QUEUE,
    EXCHANGE,
    NEEDED,
    PROPERTIES,
    ROUTING_KEY,
    message_of,
    text_of,
)
from redrive.pubsub.body import with_body
from redrive.topology import rewrite
from redrive.topology.fast_requeue import BulkRequeue
from redrive.topology.names import ExchangeFamily

if TYPE_CHECKING:
    import pyarrow

ID = "id"
SENT_COLUMNS = (ID, "queue", EXCHANGE, ROUTING_KEY, PROPERTIES, BODY, DEAD_LETTER_QUEUE)
SENT_BY, SENT_BY_TYPE = "sent_by", "struct<exchange:binary,routing_key:binary>"
"""The way of a message, decided before its body was changed."""
ORDER_KEY = "order_key"
"""What the order of messages is kept by: those with the same key are sent one after another."""
EDITED = "edited"
"""How the body was changed; null if it was not."""
AS_TEXT, AS_BYTES = "text", "bytes"
"""The new body is plain UTF-8; or it is whatever a transform made of the bytes."""


class Mode(StrEnum):
    """What a task does with its rows."""

    PUBLISH = "publish"
    REQUEUE = "requeue"
    RESTORE = "restore"


class PreparedRow(NamedTuple):
    """A message that is ready to be sent."""

    id: str
    exchange: str
    routing_key: str
    properties: bytes
    body: bytes
    order_key: str | None = None


Row = Mapping[str, Any]
"""A row by column name, with the Python values of Spark's types."""

Prepare = Callable[[Row], PreparedRow]
_PUBLISHED = {"routing_key": ("string",), "body": ("binary", "string")}
_OPTIONAL: dict[str, tuple[str, ...]] = {
    ID: ("string",),
    "exchange": ("string",),
    PROPERTIES: ("binary",),
    "headers": ("map<string,string>",),
    "message_id": ("string",),
    "content_type": ("string",),
    "correlation_id": ("string",),
}


def check_columns(columns: Mapping[str, str]) -> None:
    """Check that a DataFrame with these columns and Spark types can be published; raise
    ConfigurationError if not."""
    for name, kinds in _PUBLISHED.items():
        if name not in columns:
            raise ConfigurationError(
                f"the DataFrame has no column {name!r}", "Give routing_key string, body binary."
            )
        if columns[name] not in kinds:
            raise ConfigurationError(
                f"the column {name!r} is {columns[name]}, not {' or '.join(kinds)}", "Cast it."
            )
    for name, kind in columns.items():
        if name not in _PUBLISHED and name not in _OPTIONAL:
            raise ConfigurationError(
                f"the DataFrame has the unknown column {name!r}",
                f"Known columns are {', '.join((*_PUBLISHED, *_OPTIONAL))}.",
            )
        if name in _OPTIONAL and kind not in _OPTIONAL[name]:
            raise ConfigurationError(
                f"the column {name!r} is {kind}, not {_OPTIONAL[name][0]}", "Cast it."
            )


def preparer(
    mode: Mode,
    *,
    job: str,
    frame_max: int,
    exchange: str,
    exchanges: ExchangeFamily,
    direction: Direction,
) -> Prepare:
    """Return the function that turns a row into a message, for this maximum frame size in bytes."""
    match mode:
        case Mode.REQUEUE:
            bulk = BulkRequeue(job, frame_max)
            return lambda row: _requeued(row, direction, bulk, job, frame_max)
        case Mode.RESTORE:
            return lambda row: _restored(row, exchanges, frame_max)
        case Mode.PUBLISH:
            return lambda row: _published(row, exchange)


def rows_of(batch: "pyarrow.RecordBatch", names: Sequence[str]) -> Iterator[Row]:
    """Yield the rows of an Arrow batch, with these columns."""
    columns = [batch.column(name).to_pylist() for name in names]
    for values in zip(*columns, strict=True):
        yield dict(zip(names, values, strict=True))


def _message(row: Row) -> FailedMessage:
    """Return the message of an archived row, which may have been tampered with."""
    try:
        return message_of([*(row[name] for name in NEEDED), row.get(DEAD_LETTER_QUEUE)])
    except ValueError as error:
        raise ConfigurationError(
            f"its stored form is damaged: {error}", "It stays in the archive."
        ) from error


def _requeued(
    row: Row, direction: Direction, bulk: BulkRequeue, job: str, frame_max: int
) -> PreparedRow:
    is_ours = row.get(DEAD_LETTER_QUEUE) is None
    given, edited = row.get(SENT_BY), row.get(EDITED)
    sent_by = None
    if given is not None:
        sent_by = WayBack(text_of(given["exchange"]), text_of(given["routing_key"]))
    # All messages of a subscription's failed queue go the same way, so most need no parsing.
    if is_ours and not direction.via and edited is None:
        ordinary = bulk.requeue(row[PROPERTIES])
        if ordinary is not None:
            way = sent_by or WayBack("", direction.to or row["queue"])
            return PreparedRow(row[ID], *way, ordinary.properties, row[BODY])
    message = _message(row)
    way = sent_by or _way_of(message, direction)
    delivery = message.delivery
    may_be_plain = edited == AS_BYTES or given is not None
    if edited == AS_TEXT or (
        may_be_plain and json_text_of(message) is None and is_json(delivery.body)
    ):
        # A compressed body, or one in another charset, was turned into plain text.
        properties = with_body(delivery.body, delivery.properties)
        delivery = replace(delivery, properties=properties)
    publish = rewrite.requeue(renewed(delivery), job=job, frame_max=frame_max)
    return PreparedRow(row[ID], *way, publish.properties.encode(), publish.body)


def _way_of(message: FailedMessage, direction: Direction) -> WayBack:
    """Return where a message is sent."""
    route = direction.route_of(message)
    if route.way is None or not direction.goes(route):
        raise ConfigurationError(route.reason, "It stays in the archive: --to names a queue.")
    return route.way


def _restored(row: Row, exchanges: ExchangeFamily, frame_max: int) -> PreparedRow:
    return _prepared(
        row[ID], rewrite.restore(_message(row).delivery, exchanges, frame_max=frame_max)
    )


def _published(row: Row, exchange: str) -> PreparedRow:
    properties = row.get(PROPERTIES)
    if properties is None:
        values: dict[str, FieldValue] = dict(row.get("headers") or {})
        given = {
            name: row[name]
            for name in ("message_id", "content_type", "correlation_id")
            if row.get(name) is not None
        }
        properties = rewrite.fresh(
            Properties(delivery_mode=2, **given), values, row["routing_key"]
        ).encode()
    body = row["body"]
    return PreparedRow(
        row.get(ID) or row.get("message_id") or "",
        exchange if row.get("exchange") is None else row["exchange"],
        row["routing_key"],
        properties,
        body.encode() if isinstance(body, str) else bytes(body),
    )


def _prepared(id_: str, publish: rewrite.Publish) -> PreparedRow:
    return PreparedRow(
        id_, publish.exchange, publish.routing_key, publish.properties.encode(), publish.body
    )
