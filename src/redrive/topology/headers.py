"""Names of redrive's and the broker's headers, and how to read them.

Reading tolerates anything a peer can send: damaged values count as missing.
"""

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import lru_cache
from typing import NamedTuple

from redrive.amqp.field_table import FieldValue, Table, decode_scalar, items_of
from redrive.amqp.properties import Properties
from redrive.topology import delay_route, names

X_DEATH = "x-death"
DELIVERY_COUNT = "x-delivery-count"
ACQUIRED_COUNT = "x-acquired-count"
ORIG_ROUTING_KEY = "x-orig-routing-key"

RETRIES = "redrive-retries"
CRASHES = "redrive-crashes"
FAILURE_ID = "redrive-failure-id"
ERROR_TYPE = "redrive-error-type"
ERROR_MESSAGE = "redrive-error-message"
ERROR_TRACEBACK = "redrive-error-traceback"
REASON = "redrive-reason"
FAILED_AT = "redrive-failed-at"
FIRST_FAILED_AT = "redrive-first-failed-at"
HOST = "redrive-host"
ORIG_EXCHANGE = "redrive-orig-exchange"
ORIG_EXPIRATION = "redrive-orig-expiration"
ORIG_USER_ID = "redrive-orig-user-id"
COUNT = "redrive-count"
JOB = "redrive-job"
ORDER_KEY = "redrive-order-key"
PLACE = "redrive-place"

ABOUT_THE_FAILURE = frozenset(
    {
        RETRIES,
        CRASHES,
        FAILURE_ID,
        ERROR_TYPE,
        ERROR_MESSAGE,
        ERROR_TRACEBACK,
        REASON,
        FAILED_AT,
        HOST,
    }
)
"""Headers that setting aside writes and a requeue removes."""

OURS = ABOUT_THE_FAILURE | {
    ORIG_EXCHANGE,
    ORIG_ROUTING_KEY,
    FIRST_FAILED_AT,
    ORIG_EXPIRATION,
    ORIG_USER_ID,
    COUNT,
    JOB,
    ORDER_KEY,
    PLACE,
}
"""Headers that only redrive writes."""

NOTES = OURS - {ORIG_ROUTING_KEY}
"""Headers that redrive writes into a message that it moves. Any publisher may set the original
routing key itself."""

MAX_COUNT = 1_000_000_000
"""A larger number does not count as a count: no message is retried that often, and sums of counts
must stay small."""

_NO_PLACE = 2**60
MOST_DEATHS = 100
"""How many entries of `x-death`, and routing keys of an entry, are read. A broker writes one entry
for each queue and reason, the latest first. So a longer `x-death` does not come from a broker, or
its later entries have nothing to do with this queue.

Source: RabbitMQ 3.10.8, 4.0.5 and 4.3.6.
"""
_CLOCKS_DIFFER_BY = 60.0
"""Seconds that a publisher's clock may be ahead."""
_MOST_OF_A_DEATH = 16  # a broker writes at most seven fields
_ROUTING_KEYS = "routing-keys"


@lru_cache(maxsize=4096)
def stays_behind(name: str) -> bool:
    """Return whether a header must not travel with any publish of redrive.

    `CC` and `BCC` would send copies elsewhere; the others are the broker's notes on one stay in one
    queue, stale or forged elsewhere.
    """
    return name in {DELIVERY_COUNT, ACQUIRED_COUNT, "CC", "BCC"} or name.startswith(
        ("x-first-death-", "x-last-death-", "x-opt-")
    )


def counted(value: FieldValue) -> int:
    """Return `value` if it is a valid count, otherwise 0."""
    return (
        value
        if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= MAX_COUNT
        else 0
    )


def place_in(value: FieldValue) -> int:
    """Return `value` if it is a place among parked messages, otherwise 0."""
    return (
        value
        if isinstance(value, int) and not isinstance(value, bool) and 0 < value < _NO_PLACE
        else 0
    )


def moment(timestamp: int | None) -> datetime | None:
    """Return the time of an AMQP timestamp, in seconds since 1970; None if it is missing or out of
    range."""
    try:
        return None if timestamp is None else datetime.fromtimestamp(timestamp, UTC)
    except (OverflowError, OSError, ValueError):
        return None


def seconds_since(timestamp: int | None, now: float) -> float | None:
    """Return how many seconds ago a message was published, by its timestamp; None if that is
    unusable.

    A timestamp is in whole seconds, rounded down by redrive's publishers, so the result is up to a
    second too large. A timestamp slightly in the future, within the usual difference between
    clocks, counts as now; one further in the future, such as one in milliseconds, is unusable.
    """
    if timestamp is None:
        return None
    seconds = now - timestamp
    if seconds < 0:
        return 0.0 if seconds >= -_CLOCKS_DIFFER_BY else None
    return seconds


def text(value: FieldValue) -> str | None:
    """Return `value` if it is a text, otherwise None."""
    return value if isinstance(value, str) else None


class Deaths(NamedTuple):
    """The contents of an `x-death`, read only to the length that a broker would write.

    Args:
        entries: its readable entries, the latest first.
        are_well_formed: whether a broker that continues this `x-death` can read it: a list of
            entries as it writes them itself.
    """

    entries: tuple[Mapping[str, FieldValue], ...] = ()
    are_well_formed: bool = False


_NO_DEATHS = Deaths()


def deaths_in(raw: bytes | None) -> Deaths:
    """Read an `x-death`, type first. Never raises.

    A publisher can forge one with a hundred thousand items, so no more of it is read than a broker
    writes.
    """
    if raw is None:
        return _NO_DEATHS
    items, is_whole = items_of(raw, MOST_DEATHS)
    found = [_death_entry(item) for item in items]
    entries = tuple(entry for entry, _ in found if entry is not None)
    return Deaths(
        entries,
        is_whole
        and all(is_whole_entry for _, is_whole_entry in found)
        and all(map(_is_death_entry, entries)),
    )


def _death_entry(raw: bytes) -> tuple[Mapping[str, FieldValue] | None, bool]:
    """Return an entry of `x-death`, None if it is not a table, and whether all of its routing keys
    were read."""
    if raw[:1] != b"F":
        return None, False
    fields = Table.parse(raw[5:], _MOST_OF_A_DEATH).raw_by_name()
    entry = {name: decode_scalar(value) for name, value in fields.items()}
    keys, are_all = (
        items_of(fields[_ROUTING_KEYS], MOST_DEATHS) if _ROUTING_KEYS in fields else ([], False)
    )
    if keys or are_all:
        entry[_ROUTING_KEYS] = [decode_scalar(key) for key in keys]
    return entry, are_all


def death_count(deaths: Deaths, queue: str) -> int:
    """Return how many attempts on `queue` the broker has counted as failed.

    Either count, of rejections or of expiries in the retry queue, may be missing from the header (a
    republish starts it anew), so the larger one is used.
    """
    return min(max(_rejected_and_expired(deaths, queue)), MAX_COUNT)


def trips_before(deaths: Deaths, queue: str) -> int:
    """Return how many trips through the retry queue a waiting message had made before this one, by
    the broker's count."""
    rejected, expired = _rejected_and_expired(deaths, queue)
    return min(max(rejected - 1, expired), MAX_COUNT)


def _rejected_and_expired(deaths: Deaths, queue: str) -> tuple[int, int]:
    retry_queue = names.retry_queue(queue)
    rejected = expired = 0
    for entry in deaths.entries:
        match entry.get("queue"), entry.get("reason"):
            case name, "rejected" | "delivery_limit" if name == queue:
                rejected += counted(entry.get("count"))
            case name, "expired" if name == retry_queue:
                expired += counted(entry.get("count"))
    return rejected, expired


def names_queue(deaths: Deaths, queue: str) -> bool:
    """Return whether `x-death` has an entry for `queue` or its retry queue."""
    ours = {queue, names.retry_queue(queue)}
    return any(
        entry.get("queue") in ours
        for entry in deaths.entries
        if isinstance(entry.get("queue"), str)
    )


def _is_death_entry(entry: Mapping[str, FieldValue]) -> bool:
    keys = entry.get(_ROUTING_KEYS)
    count = entry.get("count")
    return (
        all(isinstance(entry.get(name), str) for name in ("queue", "reason", "exchange"))
        and isinstance(count, int)
        and not isinstance(count, bool)
        and 0 <= count <= MAX_COUNT
        and isinstance(keys, list)
        and all(isinstance(key, str) for key in keys)
        and isinstance(entry.get("time"), datetime)
    )


def first_failure_time(deaths: Deaths, queue: str) -> datetime | None:
    """Return when the first attempt on `queue` failed, if the broker noted it: the time of its
    rejection, or of its first return from the retry queue."""
    # Compared rather than looked up: a value that a peer has sent may not be hashable.
    places = ((queue, "rejected"), (names.retry_queue(queue), "expired"))
    times = [
        entry.get("time")
        for entry in deaths.entries
        if (entry.get("queue"), entry.get("reason")) in places
    ]
    return min((time for time in times if isinstance(time, datetime)), default=None)


def first_rejection(deaths: Deaths, queue: str) -> Mapping[str, FieldValue]:
    """Return the entry of the first failed attempt on `queue`, or an empty one."""
    return next(
        (
            entry
            for entry in deaths.entries
            if entry.get("queue") == queue and entry.get("reason") == "rejected"
        ),
        {},
    )


def earliest_death(deaths: Deaths, queue: str) -> Mapping[str, FieldValue]:
    """Return the entry that says how a message first came into a queue in which it died, for
    whatever reason; an empty one if it did not die there.

    An entry keeps the exchange and the keys of the first death of its kind, but entries are ordered
    by the last one. Source: measured on RabbitMQ 3.10.8, 4.0.5 and 4.3.6.
    """
    entries = [entry for entry in deaths.entries if entry.get("queue") == queue]
    return min(entries, key=_time_of_death, default={})


def _time_of_death(entry: Mapping[str, FieldValue]) -> datetime:
    time = entry.get("time")
    return time if isinstance(time, datetime) else datetime.max.replace(tzinfo=UTC)


def _way_into(entry: Mapping[str, FieldValue]) -> tuple[str, str]:
    """Return the exchange and the key with which a message arrived when it first died in a queue
    for this reason; two empty texts if they can't be read."""
    keys = entry.get(_ROUTING_KEYS)
    exchange, key = (
        text(entry.get("exchange")),
        text(keys[0]) if isinstance(keys, list) and keys else None,
    )
    return ("", "") if exchange is None or key is None else (exchange, key)


# not frozen, which would make creation four times as slow: there is one for each message
@dataclass(slots=True)
class Delivery:
    """A message as a queue delivered it; treat it as immutable.

    Args:
        queue: the subscription's main queue, even if the delivery is from its failed queue.
        exchange: the exchange that it came through last; empty for the default exchange.
        routing_key: the key that it came with.
        properties: its properties, as received.
        body: its body, as received.
        redelivered: the broker's flag; only a hint.
        way_back: the exchange through which messages come back from the retry queue.
        in_place: whether a failed message is retried in its place in the queue.
        held_back: whether the broker itself holds a failed message back in its queue.
        dead_letter_queue: the queue that it was read from, if redrive did not create that: then
            `queue` is the one that it failed in, if known. Empty for a message of a subscription's
            queues.
    """

    queue: str
    exchange: str
    routing_key: str
    properties: Properties
    body: bytes
    redelivered: bool = False
    way_back: str = ""
    in_place: bool = False
    held_back: bool = False
    dead_letter_queue: str = ""
    _deaths: Deaths | None = field(default=None, init=False, repr=False, compare=False)

    @property
    def deaths(self) -> Deaths:
        """The contents of its `x-death`. Cached, since it may be long and is read many times."""
        if self._deaths is None:
            self._deaths = deaths_in(self.properties.headers.raw_by_name().get(X_DEATH))
        return self._deaths

    @property
    def was_moved(self) -> bool:
        """Whether it was moved to this queue by redrive's topology: all such moves end with the
        queue's name as the key."""
        return self.routing_key == self.queue or self._came_down_the_ladder

    @property
    def came_back(self) -> bool:
        """Whether it came by a path that retries take. Any other message that claims earlier
        attempts has made them up."""
        return (
            self.exchange == self.way_back and self.routing_key == self.queue
        ) or self._came_down_the_ladder

    @property
    def notes_are_ours(self) -> bool:
        """Whether the notes in a message of the main queue can come from redrive, rather than being
        forged by its publisher.

        redrive's moves to that queue all end in the same few paths, and a rejection writes no
        notes: a message that came by another path when it was first rejected has no notes of
        redrive, even if it comes back by one of them. Anyone who may publish to the default
        exchange can forge them all the same, and to the main exchange too if retries are
        republished.
        """
        if not self._is_a_way_of_ours(self.exchange, self.routing_key):
            return False
        return all(
            self._is_a_way_of_ours(*_way_into(entry))
            for entry in self.deaths.entries
            if entry.get("queue") == self.queue
        )

    def note(self, name: str) -> FieldValue:
        """Return a note of redrive; None if there is none, or it can't be redrive's."""
        return self.properties.headers.scalar(name) if self.notes_are_ours else None

    @property
    def job(self) -> str | None:
        """The job that requeued it, if any."""
        return text(self.note(JOB))

    @property
    def _came_down_the_ladder(self) -> bool:
        return self._is_the_end_of_the_ladder(self.exchange, self.routing_key)

    def _is_the_end_of_the_ladder(self, exchange: str, routing_key: str) -> bool:
        return (
            # almost never true, and the rest costs ten times as much
            routing_key.endswith(self.queue)
            and delay_route.destination_of(routing_key, "r") == self.queue
            and names.is_of_a_ladder(exchange)
        )

    def _is_a_way_of_ours(self, exchange: str, routing_key: str) -> bool:
        """Return whether redrive's moves to the main queue end with this exchange and this key."""
        if routing_key == self.queue:
            return exchange in ("", self.way_back)
        return self._is_the_end_of_the_ladder(exchange, routing_key)

    @property
    def original_routing_key(self) -> str:
        """The key that the message was first published with.

        A message published by redrive carries it; for other publishers it is the key that the
        broker noted at the first rejection, or else the delivery's own.
        """
        noted = self.noted_routing_key
        return self.routing_key if noted is None else noted

    @property
    def noted_routing_key(self) -> str | None:
        """The same, but None if a message of a dead-letter queue does not contain it: the key of
        its delivery comes from its dead-lettering."""
        own = text(self.properties.headers.scalar(ORIG_ROUTING_KEY))
        if own is not None:
            return own
        if self.dead_letter_queue:
            return _way_into(earliest_death(self.deaths, self.queue))[1] or None
        if self.routing_key != self.queue:
            # It came by no path of redrive, so it was not rejected here; or down the ladder, whose
            # keys contain the destination.
            return delay_route.destination_of(self.routing_key, "p") or self.routing_key
        keys = first_rejection(self.deaths, self.queue).get(_ROUTING_KEYS)
        noted = text(keys[0]) if isinstance(keys, list) and keys else None
        return self.routing_key if noted is None else noted


def failure_id(delivery: Delivery) -> str:
    """Return the identity of a failure: redrive's header or, for another client's message, a
    SHA-256 over body, routing keys, headers and message id."""
    own = text(delivery.properties.headers.scalar(FAILURE_ID))
    return own if own else fingerprint(delivery)


def fingerprint(delivery: Delivery) -> str:
    """Return a SHA-256, in hex, that is the same for each delivery of the same message, and in an
    archive."""
    digest = hashlib.sha256()
    for part in _identity(delivery):
        digest.update(len(part).to_bytes(8, "big"))
        digest.update(part)
    return digest.hexdigest()


def _identity(delivery: Delivery) -> Iterator[bytes]:
    headers: Table = delivery.properties.headers
    yield delivery.body
    yield delivery.routing_key.encode("utf-8", "surrogateescape")
    yield delivery.original_routing_key.encode("utf-8", "surrogateescape")
    # Sorted: a broker may change the order of a message's headers when it delivers it again.
    for name, raw in sorted(one for one in headers.raw_fields() if not stays_behind(one[0])):
        yield name.encode("utf-8", "surrogateescape")
        yield raw
    yield (delivery.properties.message_id or "").encode("utf-8", "surrogateescape")
