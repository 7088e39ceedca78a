"""Convert delays to ticks, and build and parse the routing keys of delayed messages: `<bits, most
significant first>.<r|p>.<destination>`."""

from datetime import datetime, timedelta
from typing import Literal

from redrive.amqp.field_table import MAX_SHORT_STRING
from redrive.errors import ConfigurationError
from redrive.topology.durations import Duration, duration_of

LEVELS = 28
MAX_DESTINATION = MAX_SHORT_STRING - 2 * (LEVELS + 1)
"""197 bytes: the longest queue name, routing key or pattern of a delayed message."""

_ANY_BITS = "*." * LEVELS
_PREFIX = 2 * (LEVELS + 1)


def longest_delay(tick: timedelta) -> timedelta:
    """Return the longest delay: 8.5 years with ticks of a second."""
    return tick * ((1 << LEVELS) - 1)


def ticks_in(delay: timedelta, tick: timedelta) -> int:
    """Return a delay in ticks, rounded up: a message is never early, and at most one tick late."""
    if delay > longest_delay(tick):
        raise ConfigurationError(
            f"the delay is {delay}; the delay ladder with ticks of {tick.total_seconds():g} s ends "
            f"at {longest_delay(tick)}",
            "Give a shorter delay, or give the exchange family a longer tick.",
        )
    return max(0, -(-delay // tick))


def wait_until(delay: Duration | None, deliver_at: datetime | None, now: datetime) -> timedelta:
    """Return how long a message waits for a delay or until a time; zero if the time is past or
    neither is given."""
    if delay is not None and deliver_at is not None:
        raise ConfigurationError("both delay and deliver_at are given", "Give one of them.")
    if delay is not None:
        wait = duration_of(delay, "the delay")
        if wait < timedelta(0):
            raise ConfigurationError(f"the delay is {delay!r}", "Give zero or more.")
        return wait
    if deliver_at is None:
        return timedelta(0)
    if not isinstance(deliver_at, datetime) or deliver_at.tzinfo is None:
        raise ConfigurationError(
            f"deliver_at is {deliver_at!r}, which has no time zone", "Give an aware datetime."
        )
    return max(timedelta(0), deliver_at - now)


def delivery_key(ticks: int, kind: Literal["r", "p"], destination: str) -> str:
    """Return the routing key of a message that is delayed by this many ticks."""
    check_destination(destination)
    return f"{'.'.join(format(ticks, f'0{LEVELS}b'))}.{kind}.{destination}"


def delivery_pattern(kind: Literal["r", "p"], pattern: str) -> str:
    """Return the pattern that binds a queue to messages delayed for destinations that match
    `pattern`."""
    return f"{_ANY_BITS}{kind}.{pattern}"


def matches_of(pattern: str) -> str | None:
    """Describe which messages a binding of the ladder lets through; None if the pattern isn't the
    ladder's."""
    kind, _, destination = pattern.removeprefix(_ANY_BITS).partition(".")
    match kind if pattern.startswith(_ANY_BITS) else pattern.lstrip("*."):
        case "r":
            return f"delayed retries of {destination}"
        case "p":
            return f"delayed messages with {destination}"
        case "1.#":
            return "messages that wait at this level"
        case "0.#":
            return "messages that skip this level"
        case _:
            return None


def fits(destination: str) -> bool:
    """Return whether a message for this queue, key or pattern can be delayed."""
    return len(destination.encode("utf-8", "surrogateescape")) <= MAX_DESTINATION


def check_destination(destination: str) -> None:
    """Raise ConfigurationError if `destination` is too long for a delayed message."""
    if not fits(destination):
        raise ConfigurationError(
            f"{destination[:40]!r}… is {len(destination.encode('utf-8', 'surrogateescape'))} "
            "bytes; delayed messages have room for "
            f"{MAX_DESTINATION}",
            "Use a shorter name or key.",
        )


def destination_of(key: str, kind: Literal["r", "p"]) -> str | None:
    """Return where a message with this key was delayed to; None if the key isn't the ladder's."""
    bits, mark, destination = key[: 2 * LEVELS], key[2 * LEVELS : _PREFIX], key[_PREFIX:]
    if (
        mark != f"{kind}."
        or len(bits) != 2 * LEVELS
        or not set(bits[::2]) <= {"0", "1"}
        or set(bits[1::2]) != {"."}
    ):
        return None
    return destination
