"""The verdict on what a job has sent: whether it goes on, waits, or stops. One for the command line
and for Spark.

A canary proves that its messages succeeded with the consumers that run now, and says nothing of
messages of another kind. No news is never good news: only success that was told lets a job go on.
"""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum
from typing import Any, NamedTuple, Self

from redrive.duration_text import format_duration
from redrive.failures.failed_message import FailedMessage
from redrive.topology.outcome_events import OutcomeTotals

_GLANCE_SECONDS = 0.1
_ENOUGH_TO_JUDGE = 20
"""Messages that must have been sent before a share of them says anything."""
_USUAL_WATCH = timedelta(minutes=2)
"""How long a canary is watched at most where nothing tells what its retries would take."""
_MARGIN = timedelta(seconds=30)
_LONGEST_WATCH = timedelta(hours=1)


class Unknown(StrEnum):
    """What a job does when nothing is known of some of its canary at the end of the watch."""

    STOP = "stop"
    GO_ON = "go-on"


@dataclass(frozen=True, slots=True)
class Guards:
    """What stops a requeue whose messages fail again, on one machine and on Spark alike.

    Args:
        canary: how many messages are sent first, each of which must succeed; 0 for none.
        watch: how long they are watched at most; None for as long as their retries would take.
        stop_at: the share of what was sent that may be failing; None for any.
        unknown: what happens if the outcome of some of the canary is unknown at the end of the
            watch.
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
        """Return them as JSON values; the watch in seconds."""
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
    """What a job does now."""

    GO_ON = "go on"
    WAIT = "wait"
    STOP = "stop"


class CanaryDecision(NamedTuple):
    """What a job does now, and why, in a sentence without its full stop; nothing where it waits."""

    act: CanaryStep
    reason: str = ""


_WAIT = CanaryDecision(CanaryStep.WAIT)


class Canary(NamedTuple):
    """A canary that was sent.

    Args:
        sent: how many messages it has.
        doubtful: messages that may succeed besides it: of an earlier run of the job and unknown
            yet, or possible duplicates.
        watch: how long it is watched at most.
        unknown: what happens when nothing is known of some of it then.
        comes_back_to: the dead-letter queue of consumers that are not redrive's, which tell of no
            success: what fails again comes back there. Empty where subscribers tell.
    """

    sent: int
    doubtful: int
    watch: timedelta
    unknown: Unknown = Unknown.STOP
    comes_back_to: str = ""

    @property
    def in_words(self) -> str:
        """What is said when the watch begins."""
        if self.comes_back_to:
            whether = "it comes" if self.sent == 1 else "one of them comes"
            return (
                f"{self.sent:,} sent; watching for {format_duration(self.watch)} whether {whether} "
                f"back to {self.comes_back_to}. Its consumers do not tell what succeeded."
            )
        besides = f", and {self.doubtful:,} of before are unknown" if self.doubtful else ""
        whom = "it has" if self.sent + self.doubtful == 1 else "each has"
        return (
            f"{self.sent:,} sent{besides}; waiting until {whom} succeeded, at most "
            f"{format_duration(self.watch)}."
        )

    def verdict(self, standing: OutcomeTotals, *, time_is_up: bool) -> CanaryDecision:
        """What is to be done, by what is known of it now."""
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
        """What is to be done when nothing came back, and nobody tells what succeeded."""
        who = "it was not" if self.sent == 1 else f"none of {self.sent:,} was"
        known = f"{who} seen again in {self.comes_back_to} for {format_duration(self.watch)}"
        if self.unknown is Unknown.GO_ON:
            return CanaryDecision(
                CanaryStep.GO_ON, f"{known[0].upper()}{known[1:]}; going on, as asked for"
            )
        return CanaryDecision(CanaryStep.STOP, f"{known}, and whether they succeeded is not known")


def verdict_on_share(sent: int, standing: OutcomeTotals, share: float) -> CanaryDecision:
    """Whether a job goes on sending, by the share of what it has sent that is failing.

    Args:
        sent: how many it has sent; what is heard of was sent, too, though it may not be counted
            yet.
        standing: what is known of them.
        share: how much of it may be failing, from 0 to 1.
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
    """Watches a canary until the verdict is there; `WAIT` where that was cancelled.

    Args:
        canary: what was sent.
        look: what is known of it now.
        cancelled: whether to end at once.
        on_progress: told what is known, ten times a second.
    """
    until = time.monotonic() + canary.watch.total_seconds()
    while not cancelled():
        time_is_up = time.monotonic() >= until  # before the look: what is heard until then counts
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
    """How long a canary is watched at most, where nobody said: as long as all its retries would
    take, and half a minute.

    A retry that is seen stops the canary at its first attempt; one that nobody tells of is known
    only when its message is in the failed queue again. Where nothing says how long that takes, it
    is two minutes. It is never more than an hour.

    Args:
        retry_delay: how long the retry queue holds a message; None where that is not known.
        retries: the most retries that one of the messages had.
        took: the longest that one of them was retried.
    """
    needed = (
        took
        if retry_delay is None
        else max(took, min(retry_delay, _LONGEST_WATCH) * min(retries + 1, 1000))
    )
    return min(_LONGEST_WATCH, max(_USUAL_WATCH, needed + _MARGIN))


def time_of_retries(message: FailedMessage) -> timedelta:
    """For how long a message was retried before it was set aside, in whole seconds; 0 where that is
    not known."""
    first, last = message.first_failed_at, message.failed_at
    # When a message failed first stays with it when it is requeued: then it says nothing of its
    # last retries.
    if first is None or last is None or message.redrive_count:
        return timedelta(0)
    return timedelta(seconds=round(max(0.0, (last - first).total_seconds())))


def _failing(standing: OutcomeTotals, sent: int, *, first: bool = True) -> str:
    """How many fail, and how."""
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
