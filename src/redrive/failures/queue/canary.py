"""Decide from the outcomes of sent messages whether a job continues, waits or stops.

The command line and Spark share this code. A canary shows only that its own messages succeed with
the consumers running now; it says nothing about messages of another kind. No news is never good
news: a job continues only on reported success.
"""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum
from typing import Any, NamedTuple, Self

from redrive.duration_text import format_duration
from redrive.failures.message.failed_message import FailedMessage
from redrive.topology.outcome_events import OutcomeTotals

_GLANCE_SECONDS = 0.1
_ENOUGH_TO_JUDGE = 20
"""How many messages must have been sent before a share of them is meaningful."""
_USUAL_WATCH = timedelta(minutes=2)
"""The maximum watch of a canary if the duration of its retries is unknown."""
_MARGIN = timedelta(seconds=30)
_LONGEST_WATCH = timedelta(hours=1)


class Unknown(StrEnum):
    """What a job does if outcomes of its canary are still unknown when the watch ends."""

    STOP = "stop"
    GO_ON = "go-on"


@dataclass(frozen=True, slots=True)
class Guards:
    """The limits that stop a requeue whose messages fail again, on one machine or on Spark.

    Args:
        canary: how many messages are sent first, each of which must succeed; 0 for none.
        watch: how long to watch them at most; None for as long as their retries would take.
        stop_at: the share of sent messages that may be failing; None for no limit.
        unknown: what to do if outcomes of the canary are still unknown when the watch ends.
    """

    canary: int = 0
    watch: timedelta | None = None
    stop_at: float | None = None
    unknown: Unknown = Unknown.STOP

    @property
    def are_up(self) -> bool:
        """Whether outcomes must be watched while messages are sent."""
        return bool(self.canary) or self.stop_at is not None

    def as_json(self) -> dict[str, object]:
        """Return the guards as JSON values; the watch is in seconds."""
        return {
            "canary": self.canary,
            "watch": None if self.watch is None else self.watch.total_seconds(),
            "stop_at": self.stop_at,
            "unknown": self.unknown.value,
        }

    @classmethod
    def from_json(cls, values: Mapping[str, object]) -> Self:
        """Return the guards that `as_json` wrote, in this version or an older one."""
        known: dict[str, Any] = dict(values)
        watch = known.get("watch")
        return cls(
            known.get("canary", 0),
            None if watch is None else timedelta(seconds=watch),
            known.get("stop_at"),
            Unknown(known.get("unknown", Unknown.STOP)),
        )


class CanaryStep(StrEnum):
    """What a job does next."""

    GO_ON = "go on"
    WAIT = "wait"
    STOP = "stop"


class CanaryDecision(NamedTuple):
    """What a job does next, and why: a sentence without a full stop, empty while it waits."""

    act: CanaryStep
    reason: str = ""


_WAIT = CanaryDecision(CanaryStep.WAIT)


class Canary(NamedTuple):
    """A canary that was sent.

    Args:
        sent: how many messages it has.
        doubtful: how many other messages of the job may still succeed: sent by an earlier run with
            an unknown outcome, or possible duplicates.
        watch: how long to watch it at most.
        unknown: what to do if outcomes are still unknown then.
        comes_back_to: the dead-letter queue of consumers without redrive, which report no success;
            messages that fail again come back there. Empty if subscribers report outcomes.
    """

    sent: int
    doubtful: int
    watch: timedelta
    unknown: Unknown = Unknown.STOP
    comes_back_to: str = ""

    @property
    def in_words(self) -> str:
        """The notice shown when the watch begins."""
        if self.comes_back_to:
            whether = "it comes" if self.sent == 1 else "one of them comes"
            return (
                f"{self.sent:,} sent; watching for {format_duration(self.watch)} whether {whether} "
                f"back to {self.comes_back_to}. Its consumers do not report success."
            )
        besides = f", and {self.doubtful:,} sent earlier are unknown" if self.doubtful else ""
        whom = "it has" if self.sent + self.doubtful == 1 else "each has"
        return (
            f"{self.sent:,} sent{besides}; waiting until {whom} succeeded, at most "
            f"{format_duration(self.watch)}."
        )

    def verdict(self, standing: OutcomeTotals, *, time_is_up: bool) -> CanaryDecision:
        """Decide what the job does next, given the outcomes so far."""
        if standing.failing:
            return CanaryDecision(
                CanaryStep.STOP, _failing(standing, max(self.sent, standing.failing))
            )
        expected = self.sent + self.doubtful
        if standing.succeeded >= expected:
            return CanaryDecision(
                CanaryStep.GO_ON,
                f"{'It' if expected == 1 else f'All {expected:,}'} succeeded; going on",
            )
        if not time_is_up:
            return _WAIT
        if self.comes_back_to:
            return self._not_seen_again()
        left = expected - standing.succeeded
        unknown = (
            f"{left:,} of {expected:,} {'is' if left == 1 else 'are'} unknown after "
            f"{format_duration(self.watch)}"
            f" ({standing.succeeded:,} succeeded, none is failing)"
        )
        if self.unknown is Unknown.GO_ON:
            return CanaryDecision(
                CanaryStep.GO_ON, f"{unknown}; going on all the same, as asked for"
            )
        return CanaryDecision(CanaryStep.STOP, unknown)

    def _not_seen_again(self) -> CanaryDecision:
        """Decide what to do if nothing came back and nobody reports success."""
        who = "it was not" if self.sent == 1 else f"none of {self.sent:,} was"
        known = f"{who} seen again in {self.comes_back_to} for {format_duration(self.watch)}"
        if self.unknown is Unknown.GO_ON:
            return CanaryDecision(
                CanaryStep.GO_ON, f"{known[0].upper()}{known[1:]}; going on, as asked for"
            )
        return CanaryDecision(CanaryStep.STOP, f"{known}, and whether they succeeded is not known")


def verdict_on_share(sent: int, standing: OutcomeTotals, share: float) -> CanaryDecision:
    """Decide whether a job continues, by the share of its sent messages that is failing.

    Args:
        sent: how many messages it has sent. Messages with a reported outcome were sent too, even if
            they are not counted yet.
        standing: the outcomes so far.
        share: the share that may be failing, from 0 to 1.
    """
    sent = max(sent, standing.heard_of)
    if sent < _ENOUGH_TO_JUDGE or standing.failing <= share * sent:
        return CanaryDecision(CanaryStep.GO_ON)
    return CanaryDecision(
        CanaryStep.STOP, f"{_failing(standing, sent, first=False)}, which is more than {share:.1%}"
    )


def watched(
    canary: Canary,
    look: Callable[[], OutcomeTotals],
    cancelled: Callable[[], bool],
    on_progress: Callable[[OutcomeTotals], None] = lambda _: None,
) -> CanaryDecision:
    """Watch a canary until there is a verdict; return `WAIT` if cancelled.

    Args:
        canary: the canary that was sent.
        look: returns the outcomes so far.
        cancelled: returns whether to stop watching.
        on_progress: called with the outcomes, ten times a second.
    """
    until = time.monotonic() + canary.watch.total_seconds()
    while not cancelled():
        time_is_up = time.monotonic() >= until  # first, so that outcomes heard by then count
        standing = look()
        on_progress(standing)
        verdict = canary.verdict(standing, time_is_up=time_is_up)
        if verdict.act is not CanaryStep.WAIT:
            return verdict
        time.sleep(_GLANCE_SECONDS)
    return _WAIT


def longest_watch(
    retry_delay: timedelta | None, retries: int = 0, took: timedelta = timedelta(0)
) -> timedelta:
    """Return how long to watch a canary at most by default: the time of all its retries plus 30
    seconds.

    Where subscribers report a retry, it stops the canary at the first attempt. Otherwise a failure
    is known only once the message is back in the failed queue. The result is at least two minutes,
    also if the time of the retries is unknown, and at most an hour.

    Args:
        retry_delay: how long the retry queue holds a message; None if unknown.
        retries: the highest retry count of any of the messages.
        took: the longest time that any of them was retried.
    """
    needed = (
        took
        if retry_delay is None
        else max(took, min(retry_delay, _LONGEST_WATCH) * min(retries + 1, 1000))
    )
    return min(_LONGEST_WATCH, max(_USUAL_WATCH, needed + _MARGIN))


def time_of_retries(message: FailedMessage) -> timedelta:
    """Return how long a message was retried before it was set aside, in whole seconds; 0 if
    unknown."""
    first, last = message.first_failed_at, message.failed_at
    # The time of the first failure survives a requeue, so it says nothing about the last retries of
    # a requeued message.
    if first is None or last is None or message.redrive_count:
        return timedelta(0)
    return timedelta(seconds=round(max(0.0, (last - first).total_seconds())))


def _failing(standing: OutcomeTotals, sent: int, *, first: bool = True) -> str:
    """Describe how many messages fail, and how."""
    of = f"of the first {sent:,}" if first else f"of {sent:,}"
    are = "is" if standing.failing == 1 else "are"
    if not standing.retrying:
        return f"{standing.failing:,} {of} failed again"
    if not standing.failed_again:
        return f"{standing.failing:,} {of} {are} failing and retrying"
    return (
        f"{standing.failing:,} {of} {are} failing ({standing.retrying:,} retrying, "
        f"{standing.failed_again:,} failed again)"
    )
