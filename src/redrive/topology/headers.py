"""Our headers and the broker's: their names, and how they are read.

Reading tolerates anything a peer can send: what is damaged counts as not there.
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
"""What giving up writes and a requeue takes off."""

OURS = ABOUT_THE_FAILURE | {
    ORIG_EXCHANGE,
    ORIG_ROUTING_KEY,
    FIRST_FAILED_AT,
    ORIG_EXPIRATION,
    ORIG_USER_ID,
    COUNT,
    JOB,
}
"""What only redrive writes."""

NOTES = OURS - {ORIG_ROUTING_KEY}
"""What redrive writes into a message that it moves. The original routing key every publisher may
say itself."""

MAX_COUNT = 1_000_000_000
"""A count beyond this is no count: no message is retried as often, and sums of it must stay
small."""

MOST_DEATHS = 100
"""How many entries of `x-death`, and routing keys of an entry, are read. A broker writes one entry
for each queue and reason, the latest first, so a longer one is not of a broker's making, or what is
behind has nothing to do with this queue.

Source: RabbitMQ 3.10.8, 4.0.5 and 4.3.6."""
_CLOCKS_DIFFER_BY = 60.0
"""Seconds that the clock of a publisher may be ahead."""
_MOST_OF_A_DEATH = 16  # a broker writes at most seven fields
_ROUTING_KEYS = "routing-keys"


@lru_cache(maxsize=4096)
def stays_behind(name: str) -> bool:
    """Whether a header must not travel with any publish of ours.

    `CC` and `BCC` would send copies elsewhere; the rest are the broker's notes on one stay in one
    queue, stale or forged elsewhere.
    """
    return name in {DELIVERY_COUNT, ACQUIRED_COUNT, "CC", "BCC"} or name.startswith(
        ("x-first-death-", "x-last-death-", "x-opt-")
    )


def counted(value: FieldValue) -> int:
    """`value` where it is a count, else 0."""
    return (
        value
        if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= MAX_COUNT
        else 0
    )


def moment(timestamp: int | None) -> datetime | None:
    """The time of an AMQP timestamp, in seconds since 1970; None where it is none."""
    try:
        return None if timestamp is None else datetime.fromtimestamp(timestamp, UTC)
    except (OverflowError, OSError, ValueError):
        return None


def seconds_since(timestamp: int | None, now: float) -> float | None:
    """How long ago a message was published, by its timestamp; None where it says nothing usable.

    A timestamp is in whole seconds, rounded down by redrive's publishers, so it is up to a second
    too much. One that is ahead by no more than clocks may differ counts as now; one that is further
    ahead, such as one in milliseconds, as none.
    """
    if timestamp is None:
        return None
    seconds = now - timestamp
    if seconds < 0:
        return 0.0 if seconds >= -_CLOCKS_DIFFER_BY else None
    return seconds


def text(value: FieldValue) -> str | None:
    """`value` where it is a text, else None."""
    return value if isinstance(value, str) else None


class Deaths(NamedTuple):
    """What an `x-death` says, read as far as a broker would have written it.

    Args:
        entries: its readable entries, the latest first.
        are_well_formed: whether a broker that continues this `x-death` can read it: a list of
            entries as it writes them itself.
    """

    entries: tuple[Mapping[str, FieldValue], ...] = ()
    are_well_formed: bool = False


_NO_DEATHS = Deaths()


def deaths_in(raw: bytes | None) -> Deaths:
    """Reads an `x-death`, its type first; None where there is none. Never raises.

    A publisher can make up one of a hundred thousand items, so no more of it is read than a broker
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
    """An entry of `x-death`, None where it is no table; and whether all of its routing keys were
    read."""
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
    """How many attempts on `queue` the broker has counted as failed.

    Either side of the trip may have been lost from the header (a republish starts it anew), so the
    larger counts.
    """
    return min(max(_rejected_and_expired(deaths, queue)), MAX_COUNT)


def trips_before(deaths: Deaths, queue: str) -> int:
    """How many trips through the retry queue a message that waits in it has made before this one,
    by the broker's count."""
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
    """Whether `x-death` has an entry of `queue` or of its retry queue."""
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
    """When the first attempt on `queue` failed, as far as the broker has noted it: its rejection,
    or its first way back."""
    # Compared and not looked up: what a peer has sent may have no hash.
    places = ((queue, "rejected"), (names.retry_queue(queue), "expired"))
    times = [
        entry.get("time")
        for entry in deaths.entries
        if (entry.get("queue"), entry.get("reason")) in places
    ]
    return min((time for time in times if isinstance(time, datetime)), default=None)


def first_rejection(deaths: Deaths, queue: str) -> Mapping[str, FieldValue]:
    """The entry of the first failed attempt on `queue`, or an empty one."""
    return next(
        (
            entry
            for entry in deaths.entries
            if entry.get("queue") == queue and entry.get("reason") == "rejected"
        ),
        {},
    )


def earliest_death(deaths: Deaths, queue: str) -> Mapping[str, FieldValue]:
    """The entry that says how a message first came into a queue in which it died, for whatever
    reason; an empty one where it did not.

    An entry keeps the exchange and the keys of the first death of its kind, and they are ordered by
    the last one. Source: measured on RabbitMQ 3.10.8, 4.0.5 and 4.3.6.
    """
    entries = [entry for entry in deaths.entries if entry.get("queue") == queue]
    return min(entries, key=_time_of_death, default={})


def _time_of_death(entry: Mapping[str, FieldValue]) -> datetime:
    time = entry.get("time")
    return time if isinstance(time, datetime) else datetime.max.replace(tzinfo=UTC)


def _way_into(entry: Mapping[str, FieldValue]) -> tuple[str, str]:
    """The exchange and the key that a message came with when it first died in a queue for a reason;
    no key where they can't be read."""
    keys = entry.get(_ROUTING_KEYS)
    exchange, key = (
        text(entry.get("exchange")),
        text(keys[0]) if isinstance(keys, list) and keys else None,
    )
    return ("", "") if exchange is None or key is None else (exchange, key)


@dataclass(slots=True)  # not frozen, which takes four times as long to make: one for each message
class Delivery:
    """A message as a queue delivered it; nobody changes it.

    Args:
        queue: the subscription's main queue, also where the delivery is from its failed queue.
        exchange: the exchange that it came through last; empty for the default exchange.
        routing_key: the key that it came with.
        properties: its properties, as received.
        body: its body, as received.
        redelivered: the broker's flag; no more than a hint.
        way_back: the exchange through which messages come back from the retry queue.
        in_place: whether a failed message is tried again where it is, at the head of its queue.
        held_back: whether the broker itself holds a failed message back, in its queue.
        dead_letter_queue: the queue that it was read from, where redrive did not make that: then
            `queue` is the one that it failed in, as far as that is known. Empty for a message of a
            subscription's queues.
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
        """What its `x-death` says. Read once: it may be long, and is asked for many times."""
        if self._deaths is None:
            self._deaths = deaths_in(self.properties.headers.raw_by_name().get(X_DEATH))
        return self._deaths

    @property
    def was_moved(self) -> bool:
        """Whether it came to where it is by a move of this pattern, all of which end with the
        queue's name as the key."""
        return self.routing_key == self.queue or self._came_down_the_ladder

    @property
    def came_back(self) -> bool:
        """Whether it came by a way that a retry takes. Whatever else claims earlier attempts has
        made them up."""
        return (
            self.exchange == self.way_back and self.routing_key == self.queue
        ) or self._came_down_the_ladder

    @property
    def notes_are_ours(self) -> bool:
        """Whether redrive can have written its notes into a message of the main queue, and no
        publisher has made them up.

        Each of its moves to that queue ends in the same few ways, and a rejection writes nothing:
        what came by another way when it was rejected first has no notes of ours, though it comes
        back by one. Whoever may publish to the default exchange can forge them all the same; where
        retries are republished, to the main exchange too.
        """
        if not self._is_a_way_of_ours(self.exchange, self.routing_key):
            return False
        return all(
            self._is_a_way_of_ours(*_way_into(entry))
            for entry in self.deaths.entries
            if entry.get("queue") == self.queue
        )

    def note(self, name: str) -> FieldValue:
        """What a note of redrive's says; None where there is none, or it can't be redrive's."""
        return self.properties.headers.scalar(name) if self.notes_are_ours else None

    @property
    def job(self) -> str | None:
        """The job that requeued it, if one did."""
        return text(self.note(JOB))

    @property
    def _came_down_the_ladder(self) -> bool:
        return self._is_the_end_of_the_ladder(self.exchange, self.routing_key)

    def _is_the_end_of_the_ladder(self, exchange: str, routing_key: str) -> bool:
        return (
            routing_key.endswith(self.queue)  # as hardly any does, and the rest costs ten times it
            and delay_route.destination_of(routing_key, "r") == self.queue
            and names.is_of_a_ladder(exchange)
        )

    def _is_a_way_of_ours(self, exchange: str, routing_key: str) -> bool:
        """Whether a move of ours to the main queue ends with this exchange and this key."""
        if routing_key == self.queue:
            return exchange in ("", self.way_back)
        return self._is_the_end_of_the_ladder(exchange, routing_key)

    @property
    def original_routing_key(self) -> str:
        """The key that the message was first published with.

        Ours says so itself; for a foreign publisher's it is what the broker noted at the first
        rejection, else the delivery's own.
        """
        noted = self.noted_routing_key
        return self.routing_key if noted is None else noted

    @property
    def noted_routing_key(self) -> str | None:
        """The same, but None where a message of a dead-letter queue says it nowhere: the key that
        it was delivered with is that of its dead-lettering."""
        own = text(self.properties.headers.scalar(ORIG_ROUTING_KEY))
        if own is not None:
            return own
        if self.dead_letter_queue:
            return _way_into(earliest_death(self.deaths, self.queue))[1] or None
        if self.routing_key != self.queue:
            # It came by no way of ours, so it was not rejected here; or down the ladder, whose keys
            # say where to.
            return delay_route.destination_of(self.routing_key, "p") or self.routing_key
        keys = first_rejection(self.deaths, self.queue).get(_ROUTING_KEYS)
        noted = text(keys[0]) if isinstance(keys, list) and keys else None
        return self.routing_key if noted is None else noted


def failure_id(delivery: Delivery) -> str:
    """The identity of a failure: our header, or for a peer's message a SHA-256 over body, routing
    keys, headers and message id."""
    own = text(delivery.properties.headers.scalar(FAILURE_ID))
    return own if own else fingerprint(delivery)


def fingerprint(delivery: Delivery) -> str:
    """A SHA-256, in hex, that is the same for each delivery of the same message and survives an
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
    # Sorted: a broker may put a message's headers in another order when it delivers it again.
    for name, raw in sorted(one for one in headers.raw_fields() if not stays_behind(one[0])):
        yield name.encode("utf-8", "surrogateescape")
        yield raw
    yield (delivery.properties.message_id or "").encode("utf-8", "surrogateescape")
