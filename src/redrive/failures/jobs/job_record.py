"""A job's record in the journal."""

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any, NamedTuple, Self

from redrive.topology.names import ExchangeFamily
from redrive.topology.outcome_events import Outcomes


class State(StrEnum):
    """The state of a job."""

    WAITING = "waiting"
    """Written down on this machine, to be run; nothing was sent."""
    RUNNING = "running"
    DONE = "done"
    INTERRUPTED = "interrupted"
    """Interrupted by Ctrl-C, or because its process died."""
    STOPPED = "stopped"
    """Stopped by itself, because messages that it had sent failed again."""
    FAILED = "failed"
    """It could not continue."""
    ASKED = "asked"
    """Waiting for somebody else's approval; nothing was sent."""
    DECLINED = "declined"
    """Not approved, and never run."""
    FORGOTTEN = "forgotten"
    """Marked as not a job by somebody: it is not listed and never run."""


class JobOutcome(NamedTuple):
    """What became of the messages that a job sent. The numbers add up to how many it sent.

    Args:
        succeeded: number of messages that subscribers reported as handled. Consumers without
            redrive report nothing: their messages are unknown.
        retrying: number of messages that failed and are still being retried, according to
            subscribers.
        failed_again: number of messages known to have been given up again.
        unknown: number of messages without any report.
    """

    succeeded: int
    retrying: int
    failed_again: int
    unknown: int


@dataclass(slots=True)
class RunProgress:
    """How far a run of a job has got.

    Args:
        planned: how many messages it should send; None until that is known.
        sent: how many it has sent.
        looked_at: how many messages it has read.
        rate: its recent rate, in messages per second.
        succeeded: how many are known to have succeeded at once.
        retrying: how many are known to be retrying.
        failed_again: how many are known to have failed again.
        causes: why they failed again: group id, description and count of each cause.
        notices: the latest notices for the user.
    """

    planned: int | None = None
    sent: int = 0
    looked_at: int = 0
    rate: float = 0.0
    succeeded: int = 0
    retrying: int = 0
    failed_again: int = 0
    causes: list[tuple[str, str, int]] = field(default_factory=list)
    notices: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class JobRecord:
    """A job over failed messages, as recorded in the journal.

    Args:
        id: its id, which each message that it sends carries.
        kind: what it does: `requeue`, `discard`, `restore`, `expire`.
        queue: the subscription's main queue, or a dead-letter queue.
        broker: the broker's address, without credentials.
        order: the request: the filter and options, as JSON values.
        who: the user that ran it, and on which host.
        reason: the reason that this user gave.
        begun_at: when it began.
        changed_at: when the journal last received an update about it.
        process: the id of the process that runs it.
        state: its state.
        planned: number of messages that it was to send.
        sent: number of confirmed messages.
        possible_duplicates: how many of them may exist twice.
        not_sent: number of messages that could not be sent.
        handled: number of messages that subscribers reported as handled.
        failed_told: number of messages that subscribers reported as set aside.
        failed_here: number of its messages that were in the failed queue at the last look.
        retrying_told: number of messages that subscribers reported as being retried, each counted
            once.
        retried_told: how many of those were reported as handled or set aside since.
        exchanges: the exchange family, as JSON values; empty in a journal of an older version.
        file: the file that it has written or read.
        problem: why it could not continue.
        literal: whether `queue` is a dead-letter queue that redrive didn't make.
        user: the broker user that ran it; empty if the broker did not validate it.
        locked: whether its process holds a lock at the broker, for as long as it is connected.
        since: a text that says when its last run began.
        run: the id of the last run; each time a job is resumed, it has a new one.
        plan: what it was to send when it began, by cause, and what was to stay, in the form of
            `Plan.noted`; empty if the queue was not scanned, or if an older version began it.
        program: what ran it last: the command line, or the console; empty for a program, and in a
            journal of an older version.
        duplicate_ids: the known failure ids of its possible duplicates, at most a thousand.
        not_sent_ids: the failure ids of messages that could not be sent, at most a thousand.
        asked_by: who asked for somebody else's approval; empty if nobody did.
        approved_by: who approved it; empty if nobody did.
    """

    id: str
    kind: str
    queue: str
    broker: str
    order: dict[str, object] = field(default_factory=dict)
    who: str = ""
    reason: str = ""
    begun_at: datetime = field(default_factory=lambda: datetime.now(UTC))
    changed_at: datetime = field(default_factory=lambda: datetime.now(UTC))
    process: int = 0
    state: State = State.RUNNING
    planned: int = 0
    sent: int = 0
    possible_duplicates: int = 0
    not_sent: int = 0
    handled: int = 0
    failed_told: int = 0
    failed_here: int = 0
    retrying_told: int = 0
    retried_told: int = 0
    exchanges: dict[str, object] = field(default_factory=dict)
    file: str = ""
    problem: str = ""
    literal: bool = False
    user: str = ""
    locked: bool = False
    since: str = ""
    run: str = ""
    plan: dict[str, object] = field(default_factory=dict)
    program: str = ""
    duplicate_ids: list[str] = field(default_factory=list)
    not_sent_ids: list[str] = field(default_factory=list)
    asked_by: str = ""
    approved_by: str = ""

    @property
    def digest(self) -> str:
        """A hash of what the job sends: the queue, the order, how many messages and which.

        It never changes: nothing that is recorded about a job later changes its order.
        """
        sends = [
            self.kind,
            self.queue,
            self.literal,
            self.exchanges,
            self.order,
            self.planned,
            self.plan,
        ]
        written = json.dumps(sends, sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(written.encode()).hexdigest()[:32]

    @property
    def origin(self) -> str:
        """Which program last began or resumed it; empty if the journal doesn't say."""
        return "Spark" if self.kind.startswith("spark ") else self.program

    @property
    def by(self) -> str:
        """Who runs it, or ran it last, as text."""
        return f"{self.who} as {self.user}" if self.user else self.who

    @property
    def failed_again(self) -> int:
        """Number of messages known to have been given up again.

        There may be more: events can be lost, and messages that were given up may be gone since.
        """
        return min(self.sent, self._failures_reported)

    @property
    def succeeded(self) -> int:
        """Number of messages that subscribers reported as handled.

        If a message was delivered twice and both outcomes were reported, only the failure counts.
        """
        return min(self.handled, self.sent - self.failed_again)

    @property
    def retrying(self) -> int:
        """Number of messages that failed and are still being retried, according to subscribers."""
        reported = max(0, self.retrying_told - self.retried_told)
        return min(reported, self.sent - self.succeeded - self.failed_again)

    @property
    def unknown(self) -> int:
        """Number of messages without any report."""
        return self.sent - self.succeeded - self.retrying - self.failed_again

    @property
    def reported_twice(self) -> int:
        """Number of outcomes beyond the messages sent: some messages were delivered twice."""
        return self._settled - self.succeeded - self.failed_again

    @property
    def _failures_reported(self) -> int:
        return max(self.failed_told, self.failed_here)

    @property
    def _settled(self) -> int:
        return self.handled + self._failures_reported

    @property
    def family(self) -> ExchangeFamily | None:
        """The exchange family; None if an older version did not record it."""
        return ExchangeFamily.from_json(self.exchanges) if self.exchanges else None

    @property
    def outcome(self) -> JobOutcome:
        """What became of the messages that it sent."""
        return JobOutcome(self.succeeded, self.retrying, self.failed_again, self.unknown)

    def with_reported(self, told: Iterable[Outcomes], failed_here: int, handed_over: int) -> Self:
        """Return the record updated with reports about its messages.

        Args:
            told: new reports from subscribers.
            failed_here: number of its messages in the failed queue.
            handed_over: number of messages that it has handed to the broker. While a job runs, and
                after it was killed, its own count of confirmed messages lags behind: a message with
                a known outcome was sent.
        """
        some = list(told)
        found = replace(
            self,
            failed_here=failed_here,
            handled=self.handled + sum(one.handled for one in some),
            failed_told=self.failed_told + sum(one.failed for one in some),
            retrying_told=self.retrying_told + sum(one.retrying for one in some),
            retried_told=self.retried_told
            + sum(one.handled_after_retry + one.failed_after_retry for one in some),
        )
        return replace(found, sent=max(found.sent, min(found._settled, handed_over)))

    def with_order_of(self, first: Self) -> Self:
        """Return the record with the order of the job's first record, overriding its own.

        The order is what is sent, how much of it, why, and who asked for it. Fields that the first
        record lacks are taken from this one: the broker may have dropped the beginning of a job,
        and an entry may be too long to hold its order.
        """
        kept = {name: getattr(first, name) for name in _OF_THE_ORDER}
        filled = {name: getattr(self, name) for name in _MAY_BE_LACKING if not kept[name]}
        if self.kind.startswith("spark "):
            # The total of a Spark job becomes known only while it runs.
            filled["planned"] = self.planned
        return replace(self, **{**kept, **filled})

    def with_known_of(self, other: Self) -> Self:
        """Return the record with the outcome that another record of the same job has."""
        return replace(self, **{name: getattr(other, name) for name in _TOLD})

    def as_json(self) -> dict[str, object]:
        """Return the record as JSON values."""
        values: dict[str, Any] = {name: getattr(self, name) for name in self.__slots__}
        return {
            name: value.isoformat() if isinstance(value, datetime) else value
            for name, value in values.items()
        }

    @classmethod
    def from_json(cls, values: Mapping[str, object]) -> Self:
        """Read the result of `as_json`, written by this version or an older one."""
        known: dict[str, Any] = {
            name: value for name, value in values.items() if name in cls.__slots__
        }
        times = {name: datetime.fromisoformat(known[name]) for name in ("begun_at", "changed_at")}
        return cls(**{**known, **times, "state": State(known["state"])})


_MAY_BE_LACKING = ("order", "exchanges", "plan", "file")
_OF_THE_ORDER = (
    *_MAY_BE_LACKING,
    *("kind", "queue", "broker", "literal", "planned", "reason", "begun_at"),
    *("asked_by", "approved_by"),
)
"""The fields that are set once, when a job begins or is requested."""
_TOLD = ("handled", "failed_told", "failed_here", "retrying_told", "retried_told")
