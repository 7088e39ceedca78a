"""Backoffs: how long a message waits before each of its retries."""

import itertools
import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta

from redrive.errors import ConfigurationError
from redrive.topology.durations import Duration, duration_of

NOTHING = timedelta(0)
_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days"}
_LEVEL = re.compile(r"(\d{1,9})([smhd])")


@dataclass(frozen=True, slots=True, init=False)
class Delays:
    """A list of delays: the n-th retry waits the n-th delay, and later ones the last delay, minus a
    random share of up to `jitter`.

    Args:
        delays: at least one, each a timedelta, a number of seconds, or a text such as `30s`; none
            shorter than the one before it. One delay alone needs no list.
        jitter: as for `Exponential`.

    Raises:
        ConfigurationError: a delay is not a duration above zero, the delays are not in ascending
            order, or the jitter is out of range.
    """

    delays: Sequence[timedelta]
    jitter: float

    def __init__(self, delays: Duration | Sequence[Duration], jitter: float = 0.0) -> None:
        given = (delays,) if isinstance(delays, timedelta | float | int | str) else delays
        read = tuple(
            _delay_of(f"delay {place} of the backoff", delay)
            for place, delay in enumerate(given, 1)
        )
        if not read:
            raise ConfigurationError("the backoff is an empty list", "Give at least one.")
        for place, (delay, following) in enumerate(itertools.pairwise(read), 2):
            if following < delay:
                raise ConfigurationError(
                    f"delay {place} of the backoff, {following}, is shorter than the one before "
                    f"it, {delay}",
                    "Give them in ascending order.",
                )
        object.__setattr__(self, "delays", read)
        object.__setattr__(self, "jitter", _checked_jitter(jitter))

    @classmethod
    def levels(cls, text: str) -> "Delays":
        """Return the delays of a text such as RocketMQ's `messageDelayLevel`: `10s 30s 1m 2h`.

        Raises:
            ConfigurationError: a part of the text is not a number of s, m, h or d.
        """
        if not isinstance(text, str):
            raise ConfigurationError(
                f"the delay levels are {text!r}", "Give a string such as '10s 30s 1m'."
            )
        delays = []
        for place, part in enumerate(text.split(), 1):
            found = _LEVEL.fullmatch(part)
            if found is None:
                raise ConfigurationError(
                    f"delay level {place}, {part!r}, can't be read",
                    "Give a whole number and its unit: 30s, 5m, 2h or 1d.",
                )
            delays.append(timedelta(**{_UNITS[found[2]]: int(found[1])}))
        return cls(delays)

    def delay(self, retry: int, chance: float) -> timedelta:
        """Return how long the n-th retry waits; `retry` counts from 1, `chance` is a random number
        from 0 to 1."""
        return _jittered(self.delays[min(retry, len(self.delays)) - 1], self.jitter, chance)

    def longest(self, retries: int) -> timedelta:
        """Return the longest delay of the first `retries` retries."""
        return self.delay(max(1, retries), 0.0)


@dataclass(frozen=True, slots=True, init=False)
class Exponential:
    """An exponential backoff: each retry waits `factor` times as long as the one before it, up to
    `cap`, minus a random share of up to `jitter`.

    Args:
        first: the first retry's delay: a timedelta, a number of seconds, or a text such as `30s`.
        factor: at least 1.
        cap: the longest delay.
        jitter: the largest share of a delay that is randomly taken off, from 0 (none) to 1. It
            keeps messages that failed together from coming back together.

    Raises:
        ConfigurationError: a number is out of its range, or the cap is shorter than the first
            delay.
    """

    first: timedelta
    factor: float
    cap: timedelta
    jitter: float

    def __init__(
        self,
        first: Duration,
        factor: float = 2.0,
        cap: Duration = timedelta(hours=1),
        jitter: float = 0.0,
    ) -> None:
        set_ = object.__setattr__
        set_(self, "first", _delay_of("the first delay of the backoff", first))
        set_(self, "factor", factor)
        set_(self, "cap", _delay_of("the cap of the backoff", cap))
        set_(self, "jitter", _checked_jitter(jitter))
        if self.cap < self.first:
            raise _cap_is_too_short(self.first, self.cap)
        if not _is_number(self.factor) or not 1 <= self.factor < float("inf"):
            raise ConfigurationError(
                f"the factor of the backoff is {self.factor!r}", "Give a number from 1."
            )

    def delay(self, retry: int, chance: float) -> timedelta:
        """Return how long the n-th retry waits; `retry` counts from 1, `chance` is a random number
        from 0 to 1."""
        return _jittered(self._capped(retry), self.jitter, chance)

    def _capped(self, retry: int) -> timedelta:
        try:
            return min(self.first * float(self.factor) ** (retry - 1), self.cap)
        except OverflowError:
            return self.cap

    def longest(self, retries: int) -> timedelta:
        """Return the longest delay of the first `retries` retries."""
        return self._capped(max(1, retries))


@dataclass(frozen=True, slots=True, init=False)
class Linear:
    """A linear backoff: the n-th retry waits n times as long as the first, up to `cap`, minus
    a random share of up to `jitter`. Without jitter, a quorum queue of RabbitMQ 4.3 delays messages
    this way itself (`retry_via="broker"`).

    Args:
        first: the first retry's delay: a timedelta, a number of seconds, or a text such as `30s`.
        cap: the longest delay.
        jitter: as for `Exponential`.

    Raises:
        ConfigurationError: a delay is not a duration above zero, the cap is shorter than the first
            delay, or the jitter is out of range.
    """

    first: timedelta
    cap: timedelta
    jitter: float

    def __init__(
        self, first: Duration, cap: Duration = timedelta(hours=1), jitter: float = 0.0
    ) -> None:
        set_ = object.__setattr__
        set_(self, "first", _delay_of("the first delay of the backoff", first))
        set_(self, "cap", _delay_of("the cap of the backoff", cap))
        set_(self, "jitter", _checked_jitter(jitter))
        if self.cap < self.first:
            raise _cap_is_too_short(self.first, self.cap)

    def delay(self, retry: int, chance: float) -> timedelta:
        """Return how long the n-th retry waits; `retry` counts from 1, `chance` is a random number
        from 0 to 1."""
        whole = self.cap if retry > self.cap // self.first else self.first * retry
        return _jittered(whole, self.jitter, chance)

    def longest(self, retries: int) -> timedelta:
        """Return the longest delay of the first `retries` retries."""
        return self.delay(max(1, retries), 0.0)


Backoff = Delays | Exponential | Linear


def backoff_of(value: Backoff | Duration | Sequence[Duration]) -> Backoff:
    """Convert a backoff, a single delay or a list of delays to a backoff.

    Raises:
        ConfigurationError: the value is none of these.
    """
    match value:
        case Delays() | Exponential() | Linear():
            return value
        case list() | tuple():
            return Delays(value)
        case timedelta() | str() | int() | float() if not isinstance(value, bool):
            return Delays((value,))
    raise ConfigurationError(
        f"the backoff is {value!r:.200}",
        "Give a duration such as '30s', a list of them, Exponential(…), Linear(…), Delays(…), or "
        "RetryPolicy.levels('10s 1m').",
    )


def _delay_of(what: str, value: Duration) -> timedelta:
    delay = duration_of(value, what)
    if delay <= NOTHING:
        raise ConfigurationError(f"{what} is {delay}", "Give one above zero.")
    return delay


def _cap_is_too_short(first: timedelta, cap: timedelta) -> ConfigurationError:
    return ConfigurationError(
        f"the cap of the backoff, {cap}, is shorter than its first delay, {first}",
        "Raise the cap.",
    )


def _jittered(delay: timedelta, jitter: float, chance: float) -> timedelta:
    return delay * (1 - jitter * chance) if jitter else delay


def _checked_jitter(jitter: float) -> float:
    if not _is_number(jitter) or not 0 <= jitter <= 1:
        raise ConfigurationError(
            f"the jitter of the backoff is {jitter!r}", "Give a share between 0 and 1."
        )
    return jitter


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
