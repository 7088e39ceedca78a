"""Counts each message of a torture run, from what the processes wrote down and what is left on the
broker. It imports nothing of what is tested."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Literal

from torture.event_journal import Event
from torture.lanes import (
    NOBODY_WANTS_IT,
    TICK_MS,
    UNROUTED,
    UNTIL_REQUEUED,
    WORKERS_PER_SHELL,
    Lane,
    Wish,
    lane_of,
    number_of,
)

FindingKind = Literal[
    "lost",
    "twice",
    "over budget",
    "under budget",
    "early",
    "late",
    "out of order",
    "left over",
]

_MS = 1_000_000
_TOLERANCE_NS = 5 * _MS
"""The broker's timers count whole milliseconds."""
LATE_NS = 15_000 * _MS
"""What comes so much after its time is late."""
LATE_ON_A_BUSY_MACHINE_NS = 60_000 * _MS
"""The same where a machine that does many other things at once is no defect."""
_UNWRITTEN_NS = 5_000 * _MS
"""A classic queue that ends may lose what came from another queue so shortly before."""
_SETTLING_NS = 10_000 * _MS
"""For so long after a fault, what was held up by it is not late."""
_SENT_AGAIN_NS = 180_000 * _MS
"""What a quorum queue dead-letters, and nobody confirms because a node ended, is sent again after
so long; until then what is behind it waits. Source: RabbitMQ, rabbit_fifo_dlx_worker,
`dead_letter_worker_publisher_confirm_timeout`; met on 3.10.8, 4.0.5 and 4.3.6.
"""


@dataclass(frozen=True, slots=True)
class Disturbance:
    """A fault, or a remedy, from its begin until everything moved again; in nanoseconds."""

    what: str
    begin: int
    end: int

    def touches(self, begin: int, end: int) -> bool:
        """Whether it was between these two moments, some of it at least."""
        return self.begin <= end and begin <= self.end


@dataclass(frozen=True, slots=True)
class Finding:
    """Something that must not be."""

    kind: FindingKind
    id: str
    text: str

    def __str__(self) -> str:
        return f"{self.kind}: {self.id}: {self.text}"


@dataclass(frozen=True, slots=True)
class Remains:
    """What is on the broker in the end.

    Args:
        failed: the ids in the failed queues, each as often as it is there.
        unrouted: those in `master.unrouted`.
        depths: of each other queue, what the management API counts in it, by the name that it has
            there; what is 0 may be left out.
    """

    failed: Counter[str] = field(default_factory=Counter)
    unrouted: Counter[str] = field(default_factory=Counter)
    depths: Mapping[str, Mapping[str, int]] = field(default_factory=dict)


@dataclass(slots=True)
class Life:
    """What happened to one message, by kind of event, the earliest first."""

    id: str
    wish: Wish = field(default_factory=Wish)
    sending: list[Event] = field(default_factory=list)
    confirmed: list[Event] = field(default_factory=list)
    begun: list[Event] = field(default_factory=list)
    failed: list[Event] = field(default_factory=list)
    handled: list[Event] = field(default_factory=list)
    requeueing: list[Event] = field(default_factory=list)

    def add(self, event: Event) -> None:
        """Notes an event."""
        if event.what == "sending":
            self.wish = Wish(event.first, event.second)
        events: list[Event] = getattr(self, event.what)
        events.append(event)

    @property
    def span(self) -> tuple[int, int]:
        """Its first and its last moment."""
        moments = [
            event.at
            for events in (self.sending, self.begun, self.failed, self.handled, self.requeueing)
            for event in events
        ]
        return min(moments), max(moments)

    def tried_last(self, max_retries: int) -> list[Event]:
        """The failed attempts after which it has no retry left."""
        return [event for event in self.failed if event.first >= max_retries]


@dataclass(frozen=True, slots=True)
class Report:
    """What a run has come to.

    Args:
        published: how many messages were sent.
        unconfirmed: how many of these nobody ever confirmed.
        handled: how many were handled.
        set_aside: how many are in a failed queue.
        parked: how many that nobody wanted are in `master.unrouted`.
        duplicates: how often a message was handled or set aside that had been before.
        held_up: how many came late because a queue waited three minutes, after a node had ended,
            until it dead-lettered again what nobody had confirmed.
        lost_by_classic_queues: the ids of what a node that ended lost between two classic queues.
        findings: what must not be.
    """

    published: int
    unconfirmed: int
    handled: int
    set_aside: int
    parked: int
    duplicates: int
    held_up: int
    lost_by_classic_queues: tuple[str, ...]
    findings: tuple[Finding, ...]

    def count(self, kind: FindingKind) -> int:
        """How many findings are of this kind."""
        return sum(finding.kind == kind for finding in self.findings)


class Ledger:
    """The lives of all messages, as far as they are written down."""

    def __init__(self, lanes: Iterable[Lane]) -> None:
        self.lanes = {lane.name: lane for lane in lanes}
        self.lives: dict[str, Life] = {}
        self._unfinished: set[str] = set()

    def add(self, events: Iterable[Event]) -> None:
        """Notes what was written down since."""
        for event in events:
            life = self.lives.setdefault(event.id, Life(event.id))
            life.add(event)
            if self._is_finished(life):
                self._unfinished.discard(event.id)
            else:
                self._unfinished.add(event.id)

    @property
    def unfinished(self) -> frozenset[str]:
        """The ids of what was not yet handled, or tried as often as it may be."""
        return frozenset(self._unfinished)

    @property
    def waiting_for_requeue(self) -> int:
        """How many messages an operator has yet to requeue."""
        return sum(
            self.lives[id_].wish.fails == UNTIL_REQUEUED and not self.lives[id_].requeueing
            for id_ in self._unfinished
        )

    @property
    def count_of_sent(self) -> int:
        """How many messages were sent."""
        return len(self.lives)

    @property
    def count_of_done(self) -> int:
        """How many messages are done with: handled, or tried as often as they may be."""
        return len(self.lives) - len(self._unfinished)

    def _is_finished(self, life: Life) -> bool:
        if life.wish.fails == NOBODY_WANTS_IT or life.handled:
            return True
        lane = self.lanes[lane_of(life.id)]
        return life.wish.fails != UNTIL_REQUEUED and bool(life.tried_last(lane.max_retries))


def check(
    ledger: Ledger,
    remains: Remains,
    disturbances: Sequence[Disturbance],
    late_ns: int = LATE_NS,
) -> Report:
    """Returns what became of all messages, and what must not be."""
    for events in ledger.lives.values():
        for name in ("sending", "confirmed", "begun", "failed", "handled", "requeueing"):
            getattr(events, name).sort(key=lambda event: event.at)
    checks = _Checks(ledger, remains, disturbances, late_ns)
    findings = tuple(checks.findings())
    lives = ledger.lives.values()
    return Report(
        published=sum(bool(life.sending) for life in lives),
        unconfirmed=sum(not life.confirmed for life in lives if life.sending),
        handled=sum(bool(life.handled) for life in lives),
        set_aside=len(remains.failed),
        parked=len(remains.unrouted),
        duplicates=sum(map(checks.extra_copies, lives)),
        lost_by_classic_queues=tuple(life.id for life in lives if checks.went_with_its_queue(life)),
        held_up=len(checks.held_up),
        findings=findings,
    )


class _Checks:
    def __init__(
        self,
        ledger: Ledger,
        remains: Remains,
        disturbances: Sequence[Disturbance],
        late_ns: int,
    ) -> None:
        self._lanes = ledger.lanes
        self._lives = ledger.lives
        self._remains = remains
        self._disturbances = disturbances
        self._late_ns = late_ns
        self.held_up: set[str] = set()

    def findings(self) -> Iterator[Finding]:
        for life in self._lives.values():
            if life.wish.fails == NOBODY_WANTS_IT:
                yield from self._unwanted(life)
                continue
            lane = self._lanes[lane_of(life.id)]
            yield from self._lost(life, lane)
            yield from self._twice(life)
            yield from self._over_budget(life, lane)
            yield from self._under_budget(life, lane)
            if life.sending:
                yield from self._punctuality(life, lane)
        yield from self._too_many_duplicates()
        for lane in self._lanes.values():
            if lane.is_ordered:
                yield from self._order(lane)
        yield from self._left_over()

    # --- where each message is --------------------------------------------------------------------

    def _unwanted(self, life: Life) -> Iterator[Finding]:
        if life.confirmed and not self._remains.unrouted[life.id]:
            yield Finding("lost", life.id, f"nobody wanted it, and it is not in {UNROUTED}")

    def _lost(self, life: Life, lane: Lane) -> Iterator[Finding]:
        if self._is_gone(life) and not self.went_with_its_queue(life):
            yield Finding(
                "lost",
                life.id,
                f"confirmed, begun {len(life.begun)} times, failed {len(life.failed)} times, "
                "neither handled nor in a failed queue",
            )
        elif life.confirmed and not life.handled and life.wish.fails == UNTIL_REQUEUED:
            yield Finding("left over", life.id, "in its failed queue, and was never requeued")

    def _is_gone(self, life: Life) -> bool:
        return bool(life.confirmed) and not life.handled and not self._remains.failed[life.id]

    def went_with_its_queue(self, life: Life) -> bool:
        """Whether a message is gone that was on its way from one classic queue to another, or had
        just come, when a node was killed or restarted. The broker waits for no confirm there, and
        may lose it without any service's doing.

        Source: measured on RabbitMQ 3.10.8 and 4.3.6 with plain pika: of confirmed messages that
        expired from one classic queue into another, the last ones before a kill were gone; and on
        4.0.5, at a restart that stopped the broker in good order, one of 70,900.
        """
        if life.wish.fails == NOBODY_WANTS_IT or not life.failed or not self._is_gone(life):
            return False
        lane = self._lanes[lane_of(life.id)]
        if lane.queue_type != "classic":
            return False
        last = life.span[1]
        delay = lane.retry_delay_ms(lane.max_retries, life.wish) * _MS
        return any(
            one.what.startswith(("node killed", "node restarted"))
            and one.touches(last - _UNWRITTEN_NS, last + delay + _UNWRITTEN_NS)
            for one in self._disturbances
        )

    def extra_copies(self, life: Life) -> int:
        """How often a message was handled or is in a failed queue, beyond once."""
        return max(0, len(life.handled) + self._remains.failed[life.id] - 1)

    def _twice(self, life: Life) -> Iterator[Finding]:
        extra = self.extra_copies(life)
        if extra and not self._faults_in(life):
            yield Finding("twice", life.id, f"{extra} times more than once, and without a fault")
        attempts = Counter((event.first, event.second) for event in life.begun)
        repeated = {attempt: count for attempt, count in attempts.items() if count > 1}
        if repeated and not extra and not self._faults_in(life):
            yield Finding(
                "twice",
                life.id,
                f"attempts (retries, requeues) {repeated} begun again without a fault",
            )

    def _too_many_duplicates(self) -> Iterator[Finding]:
        extra: Counter[str] = Counter()
        for life in self._lives.values():
            if life.wish.fails != NOBODY_WANTS_IT:
                extra[lane_of(life.id)] += self.extra_copies(life)
        for name, lane in self._lanes.items():
            most = lane.in_flight * len(self._disturbances)
            if self._disturbances and extra[name] > most:
                yield Finding(
                    "twice", name, f"{extra[name]} duplicates; at most {most} were in flight"
                )

    # --- the budget -------------------------------------------------------------------------------

    def _over_budget(self, life: Life, lane: Lane) -> Iterator[Finding]:
        faults = self._faults_in(life)
        if life.wish.fails != UNTIL_REQUEUED and any(event.second for event in life.begun):
            yield Finding("over budget", life.id, "it was requeued, and the filter leaves it")
        if lane.counts_returns:
            # A return by a dying worker counts as a retry, and the attempt after it may be one more
            # than the budget. A node that goes away takes the connections of several workers, one
            # after the other, and each of them may have had the message: met on 4.3.6.
            returns = faults * WORKERS_PER_SHELL
            if len(life.failed) > lane.max_retries + 1 + returns + self._more_sends(life):
                yield Finding(
                    "over budget",
                    life.id,
                    f"{len(life.failed)} failed attempts; {lane.max_retries + 1} are allowed, and "
                    f"{returns} for {faults} faults",
                )
            return
        over = [event.first for event in life.begun if event.first > lane.max_retries]
        if over:
            yield Finding(
                "over budget",
                life.id,
                f"begun after {over} retries; {lane.max_retries} are allowed",
            )

    def _more_sends(self, life: Life) -> int:
        """How many attempts the copies of a message may have, that was sent more than once: by a
        publisher that was started again, or by one that lost its connection before the confirm."""
        copies = len(life.sending) - 1
        if life.confirmed and self._faults_between(life.sending[-1].at, life.confirmed[-1].at):
            copies += 1
        return copies * (self._lanes[lane_of(life.id)].max_retries + 1)

    def _under_budget(self, life: Life, lane: Lane) -> Iterator[Finding]:
        allowed = lane.max_retries + 1
        faults = self._faults_in(life)
        if self._remains.failed[life.id]:
            last = max((event.second for event in life.failed), default=0)
            tried = len({event.first for event in life.failed if event.second == last})
            # A node that restarts may return a message several times.
            if tried < allowed and not (lane.counts_returns and faults):
                yield Finding(
                    "under budget",
                    life.id,
                    f"in its failed queue after {tried} failed attempts; {allowed} are allowed",
                )
        if lane.is_ordered or (lane.counts_returns and faults):
            return
        failed = {(event.first, event.second) for event in life.failed}
        unfounded = {
            event.first
            for event in life.begun
            if event.first and (event.first - 1, event.second) not in failed
        }
        if unfounded:
            yield Finding(
                "under budget",
                life.id,
                f"begun with {sorted(unfounded)} retries, and no attempt before failed",
            )

    # --- time -------------------------------------------------------------------------------------

    def _punctuality(self, life: Life, lane: Lane) -> Iterator[Finding]:
        if lane.way == "scheduled" and life.begun:
            due = life.sending[0].at + life.wish.wait_ms * _MS
            came = life.begun[0].at
            yield from self._early(life, "scheduled", due, came)
            if len(life.sending) == 1:
                yield from self._late(life, "scheduled", life.sending[0].at, due, came)
        failed: dict[tuple[int, int], list[int]] = defaultdict(list)
        begun: dict[tuple[int, int], list[int]] = defaultdict(list)
        for event in life.failed:
            failed[event.first, event.second].append(event.at)
        for event in life.begun:
            begun[event.first, event.second].append(event.at)
        for (retries, requeues), moments in begun.items():
            before = failed.get((retries - 1, requeues))
            if not before:
                continue
            # More begun than failed before: one copy came back without having been handled.
            since = before[0] if len(moments) <= len(before) else life.span[0]
            if lane.counts_returns and self._was_returned(life, since, moments[0]):
                continue
            what = f"retry {retries}"
            wait = lane.retry_delay_ms(retries, life.wish) * _MS
            yield from self._early(life, what, before[0] + wait, moments[0])
            if len(before) == len(moments) == 1:
                yield from self._late(life, what, before[0], before[0] + wait, moments[0])

    def _was_returned(self, life: Life, failed: int, begun: int) -> bool:
        """Whether a worker that died did not go on holding a message, where its return is a retry.

        Its return counts as a retry. So of two copies, where a publisher never heard of the first,
        one may be at its third attempt before the other has failed its second.
        """
        return self._faults_between(life.span[0] if begun < failed else failed, begun) > 0

    def _early(self, life: Life, what: str, due: int, came: int) -> Iterator[Finding]:
        if came < due - _TOLERANCE_NS:
            yield Finding("early", life.id, f"{what}: {(due - came) / _MS:.0f} ms before its time")

    def _late(self, life: Life, what: str, since: int, due: int, came: int) -> Iterator[Finding]:
        late = came - due - TICK_MS * _MS
        if late <= self._late_ns or self._faults_between(since - _SETTLING_NS, came):
            return
        if late <= _SENT_AGAIN_NS and self._waits_for_what_is_sent_again(life, since, came):
            self.held_up.add(life.id)
        else:
            yield Finding(
                "late", life.id, f"{what}: {late / _MS:.0f} ms after its time, without a fault"
            )

    def _waits_for_what_is_sent_again(self, life: Life, since: int, came: int) -> bool:
        """Whether a node ended so shortly before a message waited in a quorum queue that something
        before it may be sent again only now."""
        return self._lanes[lane_of(life.id)].queue_type == "quorum" and any(
            one.what.startswith("node ")
            and one.touches(came - _SENT_AGAIN_NS - self._late_ns - _SETTLING_NS, since)
            for one in self._disturbances
        )

    # --- order ------------------------------------------------------------------------------------

    def _order(self, lane: Lane) -> Iterator[Finding]:
        lives = sorted(
            (life for life in self._lives.values() if lane_of(life.id) == lane.name and life.begun),
            key=lambda life: number_of(life.id),
        )
        for before, after in pairwise(lives):
            done = [event.at for event in (*before.handled, *before.tried_last(lane.max_retries))]
            if not done or after.begun[0].at < min(done):
                yield Finding(
                    "out of order", after.id, f"begun while {before.id} was not done with"
                )

    # --- what is left -----------------------------------------------------------------------------

    def _left_over(self) -> Iterator[Finding]:
        for queue, depths in self._remains.depths.items():
            left = {name: count for name, count in depths.items() if count}
            if left:
                yield Finding("left over", queue, f"holds {left}")
        for place, ids in (
            ("a failed queue", self._remains.failed),
            (UNROUTED, self._remains.unrouted),
        ):
            for id_ in ids.keys() - self._lives.keys():
                yield Finding("left over", id_, f"in {place}, and nobody published it")
        for id_ in self._remains.unrouted:
            life = self._lives.get(id_)
            if life is not None and life.wish.fails != NOBODY_WANTS_IT:
                yield Finding("left over", id_, f"in {UNROUTED}, and somebody wanted it")

    # --- faults -----------------------------------------------------------------------------------

    def _faults_in(self, life: Life) -> int:
        return self._faults_between(*life.span)

    def _faults_between(self, begin: int, end: int) -> int:
        return sum(disturbance.touches(begin, end) for disturbance in self._disturbances)
