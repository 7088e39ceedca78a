"""A job, as the journal has it."""

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
    """Where a job stands."""

    RUNNING = "running"
    DONE = "done"
    INTERRUPTED = "interrupted"
    """By Ctrl-C, or because its process died."""
    STOPPED = "stopped"
    """By itself: what it had sent failed again."""
    FAILED = "failed"
    """It could not go on."""
    ASKED = "asked"
    """It waits for the approval of somebody else, and has sent nothing."""
    DECLINED = "declined"
    """It was not approved, and is never run."""
    FORGOTTEN = "forgotten"
    """Somebody has said that it is none: it is not listed, and is never run."""


class JobOutcome(NamedTuple):
    """What became of what a job has sent. The numbers add up to that.

    Args:
        succeeded: how many a subscriber has reported as handled. Consumers without redrive report
            nothing: theirs are unknown.
        retrying: how many failed and are still retried, as far as subscribers report.
        failed_again: how many are known to have been given up again.
        unknown: how many nothing was reported of.
    """

    succeeded: int
    retrying: int
    failed_again: int
    unknown: int


@dataclass(frozen=True, slots=True)
class JobRecord:
    """One run over failed messages, as the journal has it.

    Args:
        id: its id, which each message that it sends carries.
        kind: what it does: `requeue`, `discard`, `restore`, `expire`.
        queue: the subscription's main queue, or a dead-letter queue.
        broker: the broker's address, without credentials.
        order: how it was asked for: the filter and the manner, as JSON values.
        who: the user that ran it, and on which host.
        reason: why, in that user's words.
        begun_at: when it began.
        changed_at: when the journal heard of it last.
        process: the process that runs it.
        state: where it stands.
        planned: how many messages it was to send.
        sent: how many are confirmed.
        possible_duplicates: how many of them may be there twice.
        not_sent: how many could not be sent.
        handled: how many of them a subscriber has said that it handled.
        failed_told: how many of them a subscriber has said that it set aside.
        failed_here: how many of them were in the failed queue when it was looked at last.
        retrying_told: how many of them a subscriber has said that it will retry, each counted once.
        retried_told: how many of those it has handled or set aside since.
        exchanges: the exchange family, as JSON values; empty in a journal of an older version.
        file: the file that it has written or read.
        problem: why it could not go on.
        literal: whether `queue` is a dead-letter queue, which redrive did not make.
        user: the broker's user that ran it; empty where the broker does not vouch for it.
        locked: whether whoever runs it has a lock at the broker, for as long as it is connected.
        since: when whoever ran it last began or resumed it, in words.
        run: the id of that run, which a job has one more of each time it is resumed.
        plan: what it was to send when it began, by cause, and what was to stay, as `Plan.noted` has
            it; empty where nothing was looked at, or an older version has begun it.
        program: what has run it last: the command line, or the console; empty for a program, and in
            a journal of an older version.
        duplicate_ids: the failure ids of its possible duplicates, as far as they are known; a
            thousand at most.
        not_sent_ids: those of what could not be sent, a thousand at most.
        asked_by: who has asked for somebody else's approval, in words; empty where nobody has.
        approved_by: who has approved it, in words.
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
        """What tells apart what jobs send: the queue, the order, how many messages and which. It is
        that of the job for good: nothing that is written of a job later changes its order."""
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
        """Where it was begun or resumed last, in words; empty where the journal does not say."""
        return "Spark" if self.kind.startswith("spark ") else self.program

    @property
    def by(self) -> str:
        """Who runs it, or has run it last, in words."""
        return f"{self.who} as {self.user}" if self.user else self.who

    @property
    def failed_again(self) -> int:
        """How many are known to have been given up again: an event may be lost, and a message that
        was given up may be gone since."""
        return min(self.sent, self._failures_reported)

    @property
    def succeeded(self) -> int:
        """How many a subscriber has reported as handled. If a message was delivered twice, and both
        outcomes were reported, a failure counts and a success does not."""
        return min(self.handled, self.sent - self.failed_again)

    @property
    def retrying(self) -> int:
        """How many failed and are still retried, as far as subscribers report."""
        reported = max(0, self.retrying_told - self.retried_told)
        return min(reported, self.sent - self.succeeded - self.failed_again)

    @property
    def unknown(self) -> int:
        """How many messages nothing was reported of."""
        return self.sent - self.succeeded - self.retrying - self.failed_again

    @property
    def reported_twice(self) -> int:
        """How many more outcomes were reported than messages were sent: some were delivered
        twice."""
        return self._settled - self.succeeded - self.failed_again

    @property
    def _failures_reported(self) -> int:
        return max(self.failed_told, self.failed_here)

    @property
    def _settled(self) -> int:
        return self.handled + self._failures_reported

    @property
    def family(self) -> ExchangeFamily | None:
        """The exchange family; None where an older version did not write it down."""
        return ExchangeFamily.from_json(self.exchanges) if self.exchanges else None

    @property
    def outcome(self) -> JobOutcome:
        """What became of what was sent, in the words that people read."""
        return JobOutcome(self.succeeded, self.retrying, self.failed_again, self.unknown)

    def with_reported(self, told: Iterable[Outcomes], failed_here: int, handed_over: int) -> Self:
        """Return it with what became of its messages since.

        Args:
            told: what subscribers have reported besides.
            failed_here: how many of its messages are in the failed queue.
            handed_over: how many messages it has handed to the broker. While a job runs, and after
                it was killed, its own count of what was confirmed is behind: a message of which an
                outcome is known was sent.
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
        """Return it with the order of the first record of the same job, whatever it says itself:
        what is sent, how much of it, why, and who has asked for it.

        What the first record lacks is taken from this one: the broker may have dropped where a job
        began, and an entry may be too long for its order.
        """
        kept = {name: getattr(first, name) for name in _OF_THE_ORDER}
        filled = {name: getattr(self, name) for name in _MAY_BE_LACKING if not kept[name]}
        if self.kind.startswith("spark "):
            # How many there are in all turns out while it runs.
            filled["planned"] = self.planned
        return replace(self, **{**kept, **filled})

    def with_known_of(self, other: Self) -> Self:
        """It with what another record of the same job knows of its outcome."""
        return replace(self, **{name: getattr(other, name) for name in _TOLD})

    def as_json(self) -> dict[str, object]:
        """It as JSON values."""
        values: dict[str, Any] = {name: getattr(self, name) for name in self.__slots__}
        return {
            name: value.isoformat() if isinstance(value, datetime) else value
            for name, value in values.items()
        }

    @classmethod
    def from_json(cls, values: Mapping[str, object]) -> Self:
        """What `as_json` has written, by this version or an older one."""
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
"""What is said of a job once, when it begins or is asked for."""
_TOLD = ("handled", "failed_told", "failed_here", "retrying_told", "retried_told")
