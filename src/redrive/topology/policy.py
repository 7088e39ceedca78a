"""How often and after how long a failing message is tried again."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from types import MappingProxyType
from typing import Self

from redrive.errors import ConfigurationError
from redrive.topology.backoff import NOTHING, Backoff, Delays, backoff_of

MAX_TTL_MS = 2**32 - 1
"""The longest TTL of a retry queue, 49 days: as far as one timer of the broker counts. Source: Erlang, `erlang:start_timer/3`."""

ROCKETMQ_LEVELS = "10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h"
"""The delays of RocketMQ's sixteen retries. Source: RocketMQ 4 and 5, `messageDelayLevel` from its third level on."""

_MILLISECOND = timedelta(milliseconds=1)


def _check_whole(name: str, value: int, least: int) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        raise ConfigurationError(f"{name} is {value!r}", f"Give a whole number from {least}.")


@dataclass(frozen=True, slots=True)
class ErrorRule:
    """What a kind of error has instead of the policy's own numbers; None leaves these as they are.

    Args:
        max_retries: the retries of a message that fails so, counting all that were made of it; 0 gives it up at once.
        backoff: how long each retry waits.

    Raises:
        ConfigurationError: a number is negative or not whole, or the backoff is none.
    """

    max_retries: int | None = None
    backoff: Backoff | timedelta | Sequence[timedelta] | None = None

    def __post_init__(self) -> None:
        if self.max_retries is not None:
            _check_whole("max_retries of an error rule", self.max_retries, 0)
        if self.backoff is not None:
            object.__setattr__(self, "backoff", backoff_of(self.backoff))


NO_RETRY = ErrorRule(max_retries=0)
"""Sets a message aside at its first error of this kind."""

_NO_RULES: Mapping[type[BaseException], ErrorRule] = MappingProxyType({})
_THE_USUAL = ErrorRule()


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """The budget of a subscription's messages.

    Args:
        max_retries: retries allowed after the first attempt: a message that always fails is handled `max_retries + 1` times.
        delay: the TTL of the retry queue: how long a message waits before each retry where nothing else says otherwise; whole
            milliseconds, at most 49 days.
        max_crashes: how many times a message may take its process down with it before it is set aside without being run
            again. Quorum queues only: classic queues do not count it.
        backoff: delays that differ from retry to retry: a list of them, or `Exponential`. What the retry queue can't do goes
            through the delay ladder.
        errors: rules for kinds of exceptions; those of a class count for what inherits from it, and the most specific one wins.
            Of an exception group's errors the one that is allowed the fewest retries decides.
        max_age: a message published longer ago is not tried again. One that was sent back is judged by its retries alone.

    Raises:
        ConfigurationError: a number is negative or not whole, or a delay is none or too long.
    """

    max_retries: int = 3
    delay: timedelta = timedelta(seconds=30)
    max_crashes: int = 5
    backoff: Backoff | timedelta | Sequence[timedelta] | None = None
    errors: Mapping[type[BaseException], ErrorRule] = field(default_factory=lambda: _NO_RULES, hash=False)
    max_age: timedelta | None = None

    def __post_init__(self) -> None:
        _check_whole("max_retries", self.max_retries, 0)
        _check_whole("max_crashes", self.max_crashes, 1)
        if not isinstance(self.delay, timedelta):
            raise ConfigurationError(f"the retry delay is {self.delay!r}", "Give a timedelta, such as timedelta(seconds=30).")
        if not _MILLISECOND <= self.delay <= MAX_TTL_MS * _MILLISECOND:
            raise ConfigurationError(f"the retry delay is {self.delay}", "Give one between 1 millisecond and 49 days.")
        if self.delay % _MILLISECOND:
            raise ConfigurationError(f"the retry delay is {self.delay}", "Give whole milliseconds: the broker counts no finer.")
        if self.backoff is not None:
            object.__setattr__(self, "backoff", backoff_of(self.backoff))
        object.__setattr__(self, "errors", _checked_rules(self.errors))
        if self.max_age is not None and not (isinstance(self.max_age, timedelta) and self.max_age > NOTHING):
            raise ConfigurationError(f"max_age is {self.max_age!r}", "Give a timedelta above zero.")

    @classmethod
    def levels(cls, text: str, *, max_crashes: int = 5) -> Self:
        """A retry for each of RocketMQ's delay levels, whose n-th waits the n-th delay: `levels("10s 30s 1m")`.

        Raises:
            ConfigurationError: a part of the text can't be read; the message says which.
        """
        backoff = Delays.levels(text)
        return cls(max_retries=len(backoff.delays), backoff=backoff, max_crashes=max_crashes)

    @classmethod
    def rocketmq(cls) -> Self:
        """RocketMQ's own default: sixteen retries, from ten seconds to two hours."""
        return cls.levels(ROCKETMQ_LEVELS)

    @property
    def delay_ms(self) -> int:
        """The retry queue's delay in whole milliseconds."""
        return self.delay // _MILLISECOND

    @property
    def most_retries(self) -> int:
        """The most retries that any error is allowed."""
        return max(self.max_retries, *(rule.max_retries or 0 for rule in self.errors.values())) if self.errors else self.max_retries

    def max_retries_of(self, error: type[BaseException] | None) -> int:
        """The retries that a message which fails so is allowed."""
        rule = self._rule_of(error).max_retries
        return self.max_retries if rule is None else rule

    def leniency(self, error: type[BaseException]) -> tuple[int, bool]:
        """What orders kinds of errors, the one that decides for several first: fewer retries, then a rule of its own."""
        return self.max_retries_of(error), self._rule_of(error) is _THE_USUAL

    def delay_of(self, error: type[BaseException] | None, retry: int, chance: float) -> timedelta:
        """How long the n-th retry, from 1, of a message which fails so waits, with a random number from 0 to 1."""
        backoff = self._rule_of(error).backoff or self.backoff
        return self.delay if backoff is None else backoff_of(backoff).delay(retry, chance)

    @property
    def longest_on_the_ladder(self) -> timedelta:
        """The longest delay that the retry queue can't do; zero where it can do all of them."""
        backoffs = [
            backoff_of(backoff) for backoff in (self.backoff, *(rule.backoff for rule in self.errors.values())) if backoff is not None
        ]
        return max((backoff.longest for backoff in backoffs if backoff != Delays((self.delay,))), default=NOTHING)

    @property
    def longest(self) -> timedelta:
        """The longest delay that a retry waits for by this policy."""
        backoffs = [self.backoff or self.delay, *(rule.backoff for rule in self.errors.values() if rule.backoff is not None)]
        return max(backoff_of(backoff).longest for backoff in backoffs)

    def _rule_of(self, error: type[BaseException] | None) -> ErrorRule:
        if error is None or not self.errors:
            return _THE_USUAL
        return next((self.errors[kind] for kind in error.__mro__ if kind in self.errors), _THE_USUAL)


def _checked_rules(rules: Mapping[type[BaseException], ErrorRule]) -> Mapping[type[BaseException], ErrorRule]:
    if not isinstance(rules, Mapping):
        raise ConfigurationError(f"errors is {rules!r}", "Give a dict of exception classes and their ErrorRule, or NO_RETRY.")
    for kind, rule in rules.items():
        if not (isinstance(kind, type) and issubclass(kind, BaseException)):
            raise ConfigurationError(f"errors has a rule for {kind!r}, which is no exception class", "Give exception classes.")
        if issubclass(kind, BaseExceptionGroup):
            raise ConfigurationError(
                f"errors has a rule for {kind.__name__}, a group of exceptions, and groups are taken apart",
                "Give rules for the exceptions in it.",
            )
        if not isinstance(rule, ErrorRule):
            raise ConfigurationError(f"the rule for {kind.__name__} is {rule!r}", "Give an ErrorRule, or NO_RETRY.")
    return MappingProxyType(dict(rules))
