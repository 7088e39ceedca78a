"""Change messages when redrive moves them: set aside, republished, requeued.

Each function takes the message as received and returns the publish that moves it; everything that
it does not mention travels byte for byte.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from redrive.amqp.field_table import FieldValue, Table, encode_value
from redrive.amqp.properties import Properties, content_header_room
from redrive.errors import ConfigurationError
from redrive.redaction import redact
from redrive.topology import headers
from redrive.topology.headers import Delivery
from redrive.topology.ladder import Ladder
from redrive.topology.names import ExchangeFamily, failed_queue
from redrive.topology.parked_keys import ParkedPlace

OWN_HEADERS_ROOM = 16 * 1024
"""Total bytes that redrive's own headers may take."""

_TABLE_LENGTH = 4  # added once, with the first header
_MAX_ERROR_TYPE = 255
_ENOUGH_FOR_AN_ERROR = 64
_PARKED = frozenset({headers.ORDER_KEY, headers.PLACE})
_COUNTED = frozenset({headers.X_DEATH, headers.RETRIES})
SPENT = headers.ABOUT_THE_FAILURE | {headers.X_DEATH}
"""Headers that a requeue removes, and with them the used-up retry budget."""

MOST_REDRIVES = 5
"""How often a message is requeued without being forced: if it failed each time, a sixth requeue
does not help."""


@dataclass(frozen=True, slots=True)
class Publish:
    """A message to be published, mandatory and confirmed.

    Args:
        exchange: the target exchange; empty for the default exchange.
        routing_key: its routing key.
        properties: the message's properties.
        body: its body.
        complete: whether all essential information fitted into its headers.
    """

    exchange: str
    routing_key: str
    properties: Properties
    body: bytes
    complete: bool = True


@dataclass(frozen=True, slots=True)
class ErrorReport:
    """A handler's failure as texts.

    Args:
        type: the exception's class, qualified unless it is a built-in.
        message: its text.
        traceback: its traceback, the innermost frame last.
    """

    type: str
    message: str = ""
    traceback: str = ""


@dataclass(frozen=True, slots=True)
class MoveContext:
    """What a move needs to know from outside, since it uses no clock, random numbers or socket.

    Args:
        now: the time, aware.
        failure_id: a new UUID for a message that is set aside; may be empty otherwise.
        host: the name of the host on which this process runs.
        frame_max: the largest frame of the connection, in bytes; 0 for no limit.
    """

    now: datetime
    failure_id: str
    host: str
    frame_max: int


def fresh(properties: Properties, values: Mapping[str, FieldValue], routing_key: str) -> Properties:
    """Return the properties of a first publish: with the user's headers, except those with a
    meaning to a broker, and with its routing key."""
    if properties.expiration is not None:
        raise ConfigurationError(
            "the message has an expiration, which would delete it unnoticed or leave it stuck on "
            "its way through retries",
            "Leave it out, and let the handler check the message's timestamp.",
        )
    if not isinstance(values, Mapping) or not all(isinstance(name, str) for name in values):
        raise ConfigurationError(
            f"the headers are {values!r:.80}", "Give a dict of names and values."
        )
    table = Table.of({headers.ORIG_ROUTING_KEY: routing_key})
    if values:
        table = table.with_values(
            {name: value for name, value in values.items() if _is_the_users(name)}
        )
    return properties._replace(headers=table)


def _is_the_users(name: str) -> bool:
    return name != headers.X_DEATH and name not in headers.OURS and not headers.stays_behind(name)


def give_up(
    delivery: Delivery,
    exchanges: ExchangeFamily,
    *,
    reason: str,
    error: ErrorReport,
    retries: int,
    place: ParkedPlace | None = None,
    kind: str = "",
    context: MoveContext,
) -> Publish:
    """Return the publish that sets a message aside in the failed queue, or in the one for a kind of
    error, with everything needed to understand it.

    If the user's own headers leave little room, the traceback is dropped first, then the error's
    message, then the rest; failure id and error type stay unless nothing fits at all.
    """
    first_failed_at = _first_failed_at(delivery, context.now)
    essential: dict[str, FieldValue] = {
        headers.FAILURE_ID: context.failure_id,
        headers.ERROR_TYPE: error.type[:_MAX_ERROR_TYPE],
        **({} if place is None else {headers.PLACE: place.number, headers.ORDER_KEY: place.key}),
    }
    useful: dict[str, FieldValue] = {
        headers.ORIG_ROUTING_KEY: delivery.original_routing_key,
        headers.REASON: reason,
        headers.RETRIES: retries,
        headers.FAILED_AT: iso(context.now),
        headers.FIRST_FAILED_AT: first_failed_at,
        headers.ORIG_EXCHANGE: _original_exchange(delivery),
        headers.HOST: context.host,
        **_left_behind(delivery.properties),
    }
    properties = _travelling(
        delivery.properties, drop=headers.ABOUT_THE_FAILURE | _PARKED | _forged(delivery)
    )
    room = _Room(properties, context.frame_max)
    complete = room.takes(essential)
    if complete:
        room.takes_each(useful)
        room.takes_text(headers.ERROR_MESSAGE, redact(error.message), _shorten_end)
        room.takes_text(headers.ERROR_TRACEBACK, redact(error.traceback), _shorten_middle)
    key = failed_queue(delivery.queue, kind) if kind else delivery.queue
    return Publish(exchanges.failed, key, room.filled(), delivery.body, complete)


def republish(
    delivery: Delivery, exchanges: ExchangeFamily, *, retries: int, counts_on: bool, frame_max: int
) -> Publish:
    """Return the publish that sends a message to its retry queue; when it comes back from there,
    the retry counts."""
    own: dict[str, FieldValue] = {} if counts_on else {headers.RETRIES: retries}
    properties = _travelling(
        delivery.properties, drop=_forged(delivery) if counts_on else _COUNTED | _forged(delivery)
    )
    room = _Room(properties, frame_max)
    room.takes_each(
        {
            **own,
            headers.ORIG_ROUTING_KEY: delivery.original_routing_key,
            **_left_behind(delivery.properties),
        }
    )
    return Publish(exchanges.retry, delivery.queue, room.filled(), delivery.body)


def postpone(
    delivery: Delivery,
    exchanges: ExchangeFamily,
    *,
    retry: int,
    delay: timedelta,
    context: MoveContext,
) -> Publish:
    """Return the publish that sends a message to its n-th retry, from 1, through the delay ladder,
    whose queues don't count as retries."""
    properties = _travelling(delivery.properties, drop=_COUNTED | _forged(delivery))
    room = _Room(properties, context.frame_max)
    room.takes_each(
        {
            headers.RETRIES: retry,
            headers.ORIG_ROUTING_KEY: delivery.original_routing_key,
            headers.FIRST_FAILED_AT: _first_failed_at(delivery, context.now),
            headers.ORIG_EXCHANGE: _original_exchange(delivery),
            **_left_behind(delivery.properties),
        }
    )
    exchange, key = Ladder(exchanges).way(delay, "r", delivery.queue)
    return Publish(exchange, key, room.filled(), delivery.body)


def relocate(
    delivery: Delivery,
    destination: str,
    *,
    retries: int,
    crashes: int = 0,
    frame_max: int,
) -> Publish:
    """Return the publish that moves a message of the main or the retry queue to the queue
    `destination`, which may stand in for its own queue or be its own queue."""
    properties = _travelling(
        delivery.properties, drop=_COUNTED | {headers.CRASHES} | _forged(delivery)
    )
    room = _Room(properties, frame_max)
    noted = headers.text(headers.first_rejection(delivery.deaths, delivery.queue).get("exchange"))
    origin = noted if noted is not None else None if delivery.was_moved else delivery.exchange
    failed_at = headers.first_failure_time(delivery.deaths, delivery.queue)
    first_failed_at: dict[str, FieldValue] = (
        {headers.FIRST_FAILED_AT: iso(failed_at)} if failed_at is not None else {}
    )
    counts: dict[str, FieldValue] = {headers.RETRIES: retries, headers.CRASHES: crashes}
    essential = {name: count for name, count in counts.items() if count}
    essential[headers.ORIG_ROUTING_KEY] = delivery.original_routing_key
    complete = room.takes(essential)
    room.takes_each(
        {
            **({} if complete else essential),
            **(
                {}
                if origin is None or headers.ORIG_EXCHANGE in properties.headers
                else {headers.ORIG_EXCHANGE: origin}
            ),
            **({} if headers.FIRST_FAILED_AT in properties.headers else first_failed_at),
            **_left_behind(delivery.properties),
        }
    )
    return Publish("", destination, room.filled(), delivery.body, complete)


def relocate_failed(delivery: Delivery, destination: str, *, frame_max: int) -> Publish:
    """Return the publish that moves a message of the failed queue to the queue `destination`, with
    all information about its failure."""
    properties = _travelling(delivery.properties, drop=frozenset())
    room = _Room(properties, frame_max)
    room.takes_each(
        {
            headers.ORIG_ROUTING_KEY: delivery.original_routing_key,
            **_left_behind(delivery.properties),
        }
    )
    return Publish("", destination, room.filled(), delivery.body)


def pass_on(delivery: Delivery, destination: str) -> Publish:
    """Return the publish that moves a message that was relocated before to the queue `destination`:
    its headers already contain all that is needed."""
    return Publish(
        "", destination, _travelling(delivery.properties, drop=frozenset()), delivery.body
    )


def requeue(delivery: Delivery, *, job: str, frame_max: int) -> Publish:
    """Return the publish that requeues a failed message to the queue that it failed in, with a
    fresh retry budget.

    It goes through the default exchange, so that no other queue gets a copy.
    """
    count = headers.counted(delivery.properties.headers.scalar(headers.COUNT)) + 1
    properties = _travelling(delivery.properties, drop=SPENT)
    room = _Room(properties, frame_max)
    noted = delivery.noted_routing_key
    room.takes_each(
        {
            **({} if noted is None else {headers.ORIG_ROUTING_KEY: noted}),
            headers.COUNT: count,
            headers.JOB: job,
            **_left_behind(delivery.properties),
        }
    )
    return Publish("", delivery.queue, room.filled(), delivery.body)


def restore(delivery: Delivery, exchanges: ExchangeFamily, *, frame_max: int) -> Publish:
    """Return the publish that sets a failed message aside again as it was, from a copy of it."""
    room = _Room(_travelling(delivery.properties, drop=frozenset()), frame_max)
    room.takes_each(_left_behind(delivery.properties))
    place = (
        ("", delivery.dead_letter_queue)
        if delivery.dead_letter_queue
        else (exchanges.failed, delivery.queue)
    )
    return Publish(*place, room.filled(), delivery.body)


def iso(moment: datetime) -> str:
    """Return the moment as ISO 8601 in UTC, to the millisecond."""
    return moment.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _travelling(properties: Properties, drop: frozenset[str]) -> Properties:
    """Return the properties without those that can't or must not travel."""
    table = properties.headers.without(lambda name: name in drop or headers.stays_behind(name))
    return properties._replace(headers=table, expiration=None, user_id=None)


def _forged(delivery: Delivery) -> frozenset[str]:
    """Return the headers that only redrive writes, if the publisher has forged them."""
    return frozenset() if delivery.notes_are_ours else headers.NOTES


def _left_behind(properties: Properties) -> dict[str, FieldValue]:
    """Return headers that tell people about the properties that could not travel."""
    kept: dict[str, FieldValue] = {}
    if properties.expiration is not None:
        kept[headers.ORIG_EXPIRATION] = properties.expiration
    if properties.user_id is not None:
        kept[headers.ORIG_USER_ID] = properties.user_id
    return kept


def _first_failed_at(delivery: Delivery, now: datetime) -> str:
    known = headers.text(delivery.note(headers.FIRST_FAILED_AT))
    if known:
        return known
    noted = (
        headers.first_failure_time(delivery.deaths, delivery.queue) if delivery.came_back else None
    )
    return iso(noted or now)


def _original_exchange(delivery: Delivery) -> str:
    known = headers.text(delivery.note(headers.ORIG_EXCHANGE))
    if known is not None:
        return known
    noted = (
        headers.text(headers.first_rejection(delivery.deaths, delivery.queue).get("exchange"))
        if delivery.was_moved
        else None
    )
    return delivery.exchange if noted is None else noted


class _Room:
    """A builder that adds headers to properties while they fit the frame and redrive's own
    limit."""

    def __init__(self, properties: Properties, frame_max: int) -> None:
        free = content_header_room(frame_max) - len(properties.encode())
        if free < 0:
            # The broker's own additions made it too large for a frame: without them it can at least
            # travel.
            properties = properties._replace(
                headers=properties.headers.without(headers.X_DEATH.__eq__)
            )
            free = content_header_room(frame_max) - len(properties.encode())
        self._properties = properties
        self._fields: list[tuple[str, bytes]] = []
        self._left = min(OWN_HEADERS_ROOM, free - _TABLE_LENGTH)

    def takes(self, values: Mapping[str, FieldValue]) -> bool:
        """Add all of `values`, or none if they don't fit."""
        fields = [(name, encode_value(value)) for name, value in values.items()]
        cost = sum([1 + len(name) + len(raw) for name, raw in fields])
        if cost > self._left:
            return False
        self._left -= cost
        self._fields += fields
        return True

    def takes_each(self, values: Mapping[str, FieldValue]) -> None:
        """Add those of `values` that fit, in order."""
        for name, value in values.items():
            self.takes({name: value})

    def takes_text(self, name: str, value: str, shorten: Callable[[bytes, int], str]) -> None:
        """Add as much of a text as fits."""
        left = self._left - len(name) - 6
        if value and left >= min(_ENOUGH_FOR_AN_ERROR, len(value)):
            self.takes({name: shorten(value.encode("utf-8", "replace"), left)})

    def filled(self) -> Properties:
        """Return the properties with everything that was added."""
        if not self._fields:
            return self._properties
        return self._properties._replace(headers=self._properties.headers.with_fields(self._fields))


def _shorten_end(encoded: bytes, limit: int) -> str:
    """Return at most `limit` bytes of a text, cut at its end."""
    if len(encoded) <= limit:
        return encoded.decode()
    return encoded[: max(0, limit - 3)].decode("utf-8", "ignore") + "…"


def _shorten_middle(encoded: bytes, limit: int) -> str:
    """Return at most `limit` bytes of a text, cut in its middle: the beginning and the end of a
    traceback tell most."""
    if len(encoded) <= limit:
        return encoded.decode()
    mark = f"\n  … {len(encoded)} bytes, shortened …\n"
    half = max(0, limit - len(mark.encode())) // 2
    if not half:
        return _shorten_end(encoded, limit)
    return (
        encoded[:half].decode("utf-8", "ignore") + mark + encoded[-half:].decode("utf-8", "ignore")
    )
