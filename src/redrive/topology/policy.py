"""How often and after how long a failing message is retried."""

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from types import MappingProxyType
from typing import Self

from redrive.duration_text import format_duration
from redrive.errors import ConfigurationError, GiveUp, InvalidMessage
from redrive.topology import names
from redrive.topology.backoff import NOTHING, Backoff, Delays, backoff_of
from redrive.topology.durations import Duration, duration_of

MAX_TTL_MS = 2**32 - 1
"""The longest TTL of a retry queue, 49 days: the limit of a timer in the broker. Source: Erlang,
`erlang:start_timer/3`."""

ROCKETMQ_LEVELS = "10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h"
"""The delays of RocketMQ's sixteen retries. Source: RocketMQ 4 and 5, `messageDelayLevel` from its
third level on."""

FINAL = (GiveUp, InvalidMessage)
"""Errors after which a message is never retried."""

_MILLISECOND = timedelta(milliseconds=1)
_USUAL_RETRIES = 3
_USUAL_CRASHES = 5
_RETRIES_LOOKED_AT = 10_000


def _check_whole(name: str, value: int, least: int) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        raise ConfigurationError(f"{name} is {value!r}", f"Give a whole number from {least}.")


@dataclass(frozen=True, slots=True, init=False)
class ErrorRule:
    """What a policy does differently for one kind of error; None keeps the policy's number.

    Args:
        max_retries: how many retries a message may have had when it fails with this error, counting
            all of its retries; 0 allows none.
        backoff: how long each retry waits: one delay for all of them, a list of delays,
            `Exponential` or `Linear`.
        when: a function of the exception that returns whether the rule applies; None if it applies
            to every exception of its class. If it raises, that is logged, and the rule does not
            apply.
        discard: whether a message that is not retried (any more) is acked, counted and logged, and
            kept nowhere.
        failed_queue: which failed queue such a message is set aside in: `invalid` is
            `QUEUE@failed.invalid`, which is declared with the subscription. By default
            `QUEUE@failed`.

    Raises:
        ConfigurationError: an argument is invalid, or two of them contradict each other.
    """

    max_retries: int | None
    backoff: Backoff | None
    when: Callable[[BaseException], bool] | None
    discard: bool
    failed_queue: str

    def __init__(
        self,
        max_retries: int | None = None,
        backoff: Backoff | Duration | Sequence[Duration] | None = None,
        *,
        when: Callable[[BaseException], bool] | None = None,
        discard: bool = False,
        failed_queue: str = "",
    ) -> None:
        if max_retries is not None:
            _check_whole("max_retries of an error rule", max_retries, 0)
        if when is not None and (isinstance(when, type) or not callable(when)):
            raise ConfigurationError(
                f"when is {when!r:.200}", "Give a function of the exception; classes are keys."
            )
        if not isinstance(discard, bool):
            raise ConfigurationError(f"discard is {discard!r:.200}", "Give True or False.")
        if failed_queue != "":
            names.check_failed_kind(failed_queue)
            if discard:
                raise ConfigurationError(
                    f"an error rule discards, and has the failed queue {failed_queue!r}",
                    "Leave one of them out.",
                )
        set_ = object.__setattr__
        set_(self, "max_retries", max_retries)
        set_(self, "backoff", None if backoff is None else backoff_of(backoff))
        set_(self, "when", when)
        set_(self, "discard", discard)
        set_(self, "failed_queue", failed_queue)

    def __repr__(self) -> str:
        given = {
            "max_retries": self.max_retries,
            "backoff": self.backoff,
            "when": None
            if self.when is None
            else getattr(self.when, "__name__", type(self.when).__name__),
            "discard": self.discard or None,
            "failed_queue": self.failed_queue or None,
        }
        parts = (f"{name}={value!r}" for name, value in given.items() if value is not None)
        return f"ErrorRule({', '.join(parts)})"


NO_RETRY = ErrorRule(max_retries=0)
"""Sets a message aside at its first error of this kind."""
DISCARD = ErrorRule(max_retries=0, discard=True)
"""Acks a message at its first error of this kind, and keeps it nowhere."""
THE_USUAL = ErrorRule()
"""The rule of an error that has none."""

ErrorRules = Mapping[type[BaseException], ErrorRule | Sequence[ErrorRule]] | Sequence[ErrorRule]
"""Rules by exception class, one or several for each; or rules for any exception."""

_NO_RULES: ErrorRules = ()


@dataclass(frozen=True, slots=True, init=False, repr=False)
class RetryPolicy:
    """The retry policy of a subscription: how often and how long its messages are retried.

    A duration is a timedelta, a number of seconds, or a text such as `500ms`, `30s` or `1h30m`.

    Args:
        max_retries: retries allowed after the first attempt: a message that always fails is handled
            `max_retries + 1` times. By default the length of the list in `backoff`, or 3 without a
            list.
        delay: the TTL of the retry queue: how long a message waits before each retry unless
            something else sets its delay; whole milliseconds, at most 49 days.
        max_crashes: how many times a message may crash its process before it is set aside without
            being run again. Quorum queues only: classic queues do not count crashes.
        backoff: delays that differ from retry to retry: a list of them, `Exponential` or `Linear`.
            Delays that neither the retry queue nor the broker itself can provide go through the
            delay ladder.
        errors: rules for kinds of exceptions, by class: one `ErrorRule`, or a list of them of which
            the first that applies wins. A rule for a class also applies to its subclasses, and the
            most specific class wins. A list without classes has rules for any exception. If no rule
            applies to an error, the rules for its explicit causes (`raise … from …`) are looked at.
            In an exception group, the error with the fewest allowed retries decides.
        max_age: a message published longer ago than this is not retried. A requeued message is
            judged by its retries alone.

    Raises:
        ConfigurationError: a number is negative or not whole, a delay is invalid or too long, or a
            rule can never apply.
    """

    max_retries: int
    delay: timedelta
    max_crashes: int
    backoff: Backoff | None
    errors: Mapping[type[BaseException], tuple[ErrorRule, ...]] = field(hash=False)
    max_age: timedelta | None

    def __init__(
        self,
        max_retries: int | None = None,
        delay: Duration = timedelta(seconds=30),
        max_crashes: int = 5,
        backoff: Backoff | Duration | Sequence[Duration] | None = None,
        errors: ErrorRules = _NO_RULES,
        max_age: Duration | None = None,
    ) -> None:
        waits = None if backoff is None else backoff_of(backoff)
        if max_retries is None:
            max_retries = len(waits.delays) if isinstance(waits, Delays) else _USUAL_RETRIES
        _check_whole("max_retries", max_retries, 0)
        _check_whole("max_crashes", max_crashes, 1)
        age = None if max_age is None else duration_of(max_age, "max_age")
        if age is not None and age <= NOTHING:
            raise ConfigurationError(f"max_age is {max_age!r}", "Give one above zero.")
        set_ = object.__setattr__
        set_(self, "max_retries", max_retries)
        set_(self, "delay", _checked_delay(duration_of(delay, "the retry delay")))
        set_(self, "max_crashes", max_crashes)
        set_(self, "backoff", waits)
        set_(self, "errors", _checked_rules(errors))
        set_(self, "max_age", age)

    def with_delay(self, delay: Duration) -> "RetryPolicy":
        """Return the same policy with this delay before each retry.

        Raises:
            ConfigurationError: the delay is invalid or too long.
        """
        rules = {
            kind: [replace(rule, backoff=None) for rule in of_kind]
            for kind, of_kind in self.errors.items()
        }
        return RetryPolicy(
            self.max_retries, delay, self.max_crashes, errors=rules, max_age=self.max_age
        )

    @classmethod
    def levels(
        cls,
        text: str,
        *,
        max_crashes: int = 5,
        errors: ErrorRules = _NO_RULES,
        max_age: Duration | None = None,
    ) -> Self:
        """Return a policy with one retry for each of RocketMQ's delay levels in a text such as `10s
        30s 1m`: the n-th retry waits the n-th delay.

        Raises:
            ConfigurationError: a part of the text can't be read, as the message says; or another
                argument is invalid.
        """
        return cls(
            backoff=Delays.levels(text), max_crashes=max_crashes, errors=errors, max_age=max_age
        )

    @classmethod
    def rocketmq(
        cls,
        *,
        max_crashes: int = 5,
        errors: ErrorRules = _NO_RULES,
        max_age: Duration | None = None,
    ) -> Self:
        """Return RocketMQ's own default: sixteen retries, from ten seconds to two hours.

        Raises:
            ConfigurationError: an argument is invalid.
        """
        return cls.levels(ROCKETMQ_LEVELS, max_crashes=max_crashes, errors=errors, max_age=max_age)

    def rules_for(self, kind: type[BaseException]) -> Iterator[ErrorRule]:
        """Yield the rules for a class of exceptions, in the order in which they are to be tried:
        those of the most specific class first. `GiveUp` and `InvalidMessage` have only rules of
        their own classes, so that a rule for `Exception` does not discard them."""
        own = next((one for one in FINAL if issubclass(kind, one)), BaseException)
        for base in kind.__mro__:
            if base in self.errors and issubclass(base, own):
                yield from self.errors[base]

    def max_retries_of(self, rule: ErrorRule) -> int:
        """Return how many retries a message that fails with an error of this rule is allowed."""
        return self.max_retries if rule.max_retries is None else rule.max_retries

    def delay_of(self, rule: ErrorRule, retry: int, chance: float) -> timedelta:
        """Return how long the n-th retry of a message that fails with an error of this rule waits;
        `retry` counts from 1, `chance` is a random number from 0 to 1."""
        backoff = rule.backoff or self.backoff
        return self.delay if backoff is None else backoff.delay(retry, chance)

    @property
    def failed_queues(self) -> tuple[str, ...]:
        """The failed queues that rules name."""
        named = (rule.failed_queue for rule in self._rules if rule.failed_queue)
        return tuple(dict.fromkeys(named))

    @property
    def span(self) -> tuple[timedelta, timedelta]:
        """The shortest and the longest time from the first failure of a message that keeps failing
        until it is set aside: the sum of its delays, for errors without a rule of their own. An
        outage that lasts longer sets messages aside. The time that attempts take and that a message
        waits in its queue is not included."""
        return self._waits_of_all(1.0), self._waits_of_all(0.0)

    def _waits_of_all(self, chance: float) -> timedelta:
        looked_at = min(self.max_retries, _RETRIES_LOOKED_AT)
        try:
            total = sum(
                (self.delay_of(THE_USUAL, retry, chance) for retry in range(1, looked_at + 1)),
                NOTHING,
            )
            if looked_at < self.max_retries:  # by then a backoff has reached its longest
                last = self.delay_of(THE_USUAL, self.max_retries, chance)
                total += (self.max_retries - looked_at) * last
        except OverflowError:
            total = timedelta.max
        return total

    def __str__(self) -> str:
        """Describe the number of retries and their duration in words."""
        if not self.max_retries:
            return "no retry"
        retries = "1 retry" if self.max_retries == 1 else f"{self.max_retries} retries"
        least, most = map(format_duration, self.span)
        span = least if least == most else f"{least} to {most}"
        text = f"{retries}, given up {span} after the first failure"
        if self.max_age is not None:
            text += f", or once older than {format_duration(self.max_age)}"
        return f"{text}, unless its error has a rule" if self.errors else text

    def __repr__(self) -> str:
        parts = [f"max_retries={self.max_retries}", f"delay={format_duration(self.delay)!r}"]
        if self.max_crashes != _USUAL_CRASHES:
            parts.append(f"max_crashes={self.max_crashes}")
        if self.backoff is not None:
            parts.append(f"backoff={self.backoff!r}")
        if self.errors:
            rules = ", ".join(
                f"{kind.__name__}: {list(of_kind) if len(of_kind) > 1 else of_kind[0]!r}"
                for kind, of_kind in self.errors.items()
            )
            parts.append(f"errors={{{rules}}}")
        if self.max_age is not None:
            parts.append(f"max_age={format_duration(self.max_age)!r}")
        return f"<RetryPolicy {', '.join(parts)}: {self}>"

    @property
    def _waits(self) -> list[tuple[Backoff, int]]:
        """Each backoff, with the largest number of retries that may use it: a message may fail in
        several ways, and all of its retries count."""
        own = [] if self.backoff is None else [(self.backoff, most_retries_of(self))]
        return own + [
            (rule.backoff, self.max_retries_of(rule))
            for rule in self._rules
            if rule.backoff is not None
        ]

    @property
    def _rules(self) -> Iterator[ErrorRule]:
        return itertools.chain.from_iterable(self.errors.values())


def most_retries_of(policy: RetryPolicy) -> int:
    """Return the largest number of retries that any error is allowed."""
    if not policy.errors:
        return policy.max_retries
    return max(policy.max_retries, *(rule.max_retries or 0 for rule in policy._rules))


def leniency_of(policy: RetryPolicy, rule: ErrorRule) -> tuple[int, bool]:
    """Return a key that sorts the rule that decides for a group first: the fewest retries, then a
    rule of its own."""
    return policy.max_retries_of(rule), rule is THE_USUAL


def longest_wait_of(policy: RetryPolicy) -> timedelta:
    """Return the longest delay of any retry."""
    waits = (backoff.longest(retries) for backoff, retries in policy._waits)
    return max(waits) if policy.backoff is not None else max(policy.delay, *waits, NOTHING)


def longest_wait_but(policy: RetryPolicy, usual: Backoff) -> timedelta:
    """Return the longest delay other than those of `usual`; zero if there is none."""
    return max(
        (backoff.longest(retries) for backoff, retries in policy._waits if backoff != usual),
        default=NOTHING,
    )


def _checked_delay(delay: timedelta) -> timedelta:
    if not _MILLISECOND <= delay <= MAX_TTL_MS * _MILLISECOND:
        raise ConfigurationError(
            f"the retry delay is {delay}", "Give one between 1 millisecond and 49 days."
        )
    if delay % _MILLISECOND:
        raise ConfigurationError(
            f"the retry delay is {delay}", "Give whole milliseconds: the broker counts no finer."
        )
    return delay


def _checked_rules(rules: ErrorRules) -> Mapping[type[BaseException], tuple[ErrorRule, ...]]:
    if isinstance(rules, list | tuple):
        rules = {BaseException: rules} if rules else {}
    if not isinstance(rules, Mapping):
        raise ConfigurationError(
            f"errors is {rules!r}",
            "Give a dict of exception classes and their ErrorRule, or NO_RETRY.",
        )
    return MappingProxyType({kind: _rules_of(kind, given) for kind, given in rules.items()})


def _rules_of(
    kind: type[BaseException], given: ErrorRule | Sequence[ErrorRule]
) -> tuple[ErrorRule, ...]:
    if not (isinstance(kind, type) and issubclass(kind, BaseException)):
        raise ConfigurationError(
            f"errors has a rule for {kind!r}, which is not an exception class",
            "Give exception classes.",
        )
    if issubclass(kind, BaseExceptionGroup):
        raise ConfigurationError(
            f"errors has a rule for {kind.__name__}, a group of exceptions, and groups are split "
            "into their exceptions",
            "Give rules for the exceptions in it.",
        )
    rules = tuple(given) if isinstance(given, list | tuple) else (given,)
    if not rules or not all(isinstance(rule, ErrorRule) for rule in rules):
        raise ConfigurationError(
            f"the rule for {kind.__name__} is {given!r}", "Give an ErrorRule, or NO_RETRY."
        )
    seen: list[object] = []
    for number, rule in enumerate(rules, 1):
        if rule.when in seen or None in seen:
            raise ConfigurationError(
                f"rule {number} for {kind.__name__} can never apply: an earlier one "
                + ("has the same `when`" if rule.when in seen else "has no `when`"),
                "Put the rule without `when` last, and give each other one its own.",
            )
        seen.append(rule.when)
        if issubclass(kind, FINAL) and (rule.max_retries or rule.backoff is not None):
            raise ConfigurationError(
                f"the rule for {kind.__name__} has retries, and such an error is never retried",
                "Leave max_retries and backoff out.",
            )
    return rules
