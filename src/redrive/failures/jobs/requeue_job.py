"""Carry out an order: send messages, stop if guards say so, and record progress in the journal."""

import contextlib
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING, NamedTuple

from redrive.errors import RedriveError
from redrive.failures.jobs.job_record import JobRecord, State
from redrive.failures.jobs.job_stop import Stopper
from redrive.failures.message.cause import Cause
from redrive.failures.message.failed_message import FailedMessage
from redrive.failures.message.route import WayBack
from redrive.failures.queue.canary import (
    Canary,
    CanaryDecision,
    CanaryStep,
    longest_watch,
    verdict_on_share,
    watched,
)
from redrive.failures.queue.failed_queue_base import (
    FailedQueueBase,
    directed,
    source_of,
    whereabouts_of,
)
from redrive.failures.queue.order import Order
from redrive.failures.queue.outcome_watch import Watch, reason_of_stop
from redrive.failures.queue.plan import plan_of
from redrive.failures.queue.requeue import Cancel, Progress, RequeueOptions
from redrive.failures.queue.return_checks import ReturnChecks
from redrive.pubsub.reports import MOST_IDS, RequeueProgress, RequeueReport
from redrive.topology.outcome_events import OutcomeTotals

if TYPE_CHECKING:
    from redrive.failures.jobs.local_journal import LocalJournal


class JournalDeliveries:
    """Records in a journal which messages of a job are in flight."""

    def __init__(self, journal: "LocalJournal", job_id: str) -> None:
        self._journal = journal
        self._job_id = job_id

    def sending(self, digests: Sequence[str]) -> None:
        """Record messages that are about to be sent."""
        self._journal.sending(self._job_id, digests)

    def settled(self, digests: Sequence[str]) -> None:
        """Record that messages are no longer in flight."""
        self._journal.settled(self._job_id, digests)


Notice = Callable[[str], None]


class OutcomeCounts(NamedTuple):
    """The outcomes known so far of the messages that a run has sent.

    Args:
        standing: number of messages that succeeded, are failing, and failed again.
        causes: number of messages that failed again, by cause.
    """

    standing: OutcomeTotals
    causes: Mapping[Cause, int]


OnOutcome = Callable[[OutcomeCounts], None]

_GLANCE_SECONDS = 0.1
_TOLD_WITHIN = 5.0
"""Seconds within which the job's own queue has what its watch has heard."""
_FIRST_PORTION = 100
_BETWEEN_PORTIONS = 5.0
"""Seconds to wait for messages to come back after each portion, if only a look shows them."""


class RequeueJob:
    """One run of a job that requeues messages."""

    def __init__(
        self,
        failed: FailedQueueBase,
        journal: "LocalJournal",
        job: JobRecord,
        order: Order,
        *,
        some_stay: bool = True,
        watch: timedelta | None = None,
        arrivals: Collection[WayBack] = (),
        listens: bool = True,
        on_notice: Notice = lambda _: None,
        on_outcome: OnOutcome = lambda _: None,
    ) -> None:
        self._failed = failed
        self._journal = journal
        self._job = job
        self._order = order
        self._some_stay = some_stay
        self._longest_watch = watch or longest_watch(None)
        self._arrivals = arrivals
        self._listens = listens
        self._on_notice = on_notice
        self._on_outcome = on_outcome
        self._edit = order.edit()
        self._ledger = JournalDeliveries(journal, job.id)
        self._report = RequeueReport(job.id)
        self._sent_before = 0
        self._unknown_before = 0
        self._stopped = ""
        self._is_listening = False

    def run(self, on_progress: Progress, cancel: Cancel) -> tuple[JobRecord, RequeueReport]:
        """Send the messages, and record the outcome."""
        self._take_up()
        stopper = Stopper(self._journal, self._job, cancel)
        cancel = stopper
        try:
            with contextlib.ExitStack() as held:
                held.enter_context(stopper)
                watch = self._watch()
                if watch is not None:
                    held.enter_context(watch)
                    held.enter_context(self._telling(watch))
                self._listen()
                self._send_in_stages(watch, on_progress, cancel)
                if watch is not None:
                    self._note_what_was_heard(watch, cancel)
        except RedriveError as error:
            self._write_down(State.FAILED, str(error).partition("\n")[0])
            raise
        except BaseException:
            self._write_down(State.INTERRUPTED)
            raise
        self._report.cancelled = cancel.is_set()
        state = (
            State.STOPPED if self._stopped else State.INTERRUPTED if cancel.is_set() else State.DONE
        )
        self._write_down(state, self._stopped or stopper.problem)
        return self._job, self._report

    def _watch(self) -> Watch | ReturnChecks | None:
        if not self._order.guards.are_up:
            return None
        return self._failed.watch(self._job.id, self._order.to, self._arrivals)

    @contextlib.contextmanager
    def _telling(self, watch: Watch | ReturnChecks) -> Iterator[None]:
        """Report outcomes to the caller until the block ends, and once more then."""
        through = threading.Event()

        def tell() -> None:
            while not through.wait(_GLANCE_SECONDS):
                self._on_outcome(OutcomeCounts(watch.standing, watch.causes))

        telling = threading.Thread(target=tell, name="redrive-outcomes", daemon=True)
        telling.start()
        try:
            yield
        finally:
            through.set()
            telling.join()
            self._on_outcome(OutcomeCounts(watch.standing, watch.causes))

    def _take_up(self) -> None:
        """Begin the job, or find out what an earlier run of it has sent.

        A message was sent if it was handed over and is no longer in the queue.
        """
        # Begin it first: until then, somebody else may have resumed it.
        self._job = self._journal.begin(self._job)
        under_way = self._journal.under_way(self._job.id)
        handed_over = self._journal.handed_over(self._job.id)
        if not handed_over:
            return
        plan = plan_of(
            self._order,
            self._failed.browse(),
            under_way,
            self._job.id,
            direction=directed(self._failed, self._order.direction),
        )
        self._sent_before = max(0, handed_over - plan.found_again)
        twice = self._job.possible_duplicates + plan.found_again
        self._report.possible_duplicates = twice
        self._report.duplicate_ids = _joined(self._job.duplicate_ids, plan.found_again_ids)
        self._job = self._journal.take_up(
            replace(
                self._job,
                sent=self._sent_before,
                possible_duplicates=twice,
                duplicate_ids=self._report.duplicate_ids,
            )
        )
        if self._order.guards.canary:
            self._ask_what_became_of_them(plan.came_back)

    def _ask_what_became_of_them(self, came_back: int) -> None:
        """Count messages of earlier runs without an outcome.

        Their successes must not be attributed to the new canary.
        """
        with contextlib.suppress(RedriveError):  # more outcomes stay unknown then
            told = self._failed._heard(self._job.id)
            heard = self._journal.heard(self._job.id, told, came_back)
            # Nobody but this run holds the job's lock, which would look as if nobody ran it.
            self._job = replace(heard, state=State.RUNNING)
        self._unknown_before = self._job.unknown

    def _note_what_was_heard(self, watch: Watch | ReturnChecks, cancel: Cancel) -> None:
        """Record the outcomes that the run has learned, so that the journal knows them, too.

        They come to the job's own queue as they come to the watch, but a quorum queue has them a
        moment later. Nobody who cancels waits for that.
        """
        known_before = _told_of(self._job)
        deadline = time.monotonic() + _TOLD_WITHIN
        with contextlib.suppress(RedriveError):  # whoever asks later hears them
            while True:
                standing = watch.standing
                came_back = standing.failed_again if self._comes_back_to else self._job.failed_here
                told = self._failed._heard(self._job.id) if self._is_listening else []
                heard = self._journal.heard(self._job.id, told, came_back)
                self._job = replace(heard, state=State.RUNNING)
                is_behind = _told_of(heard) - known_before < standing.heard_of
                is_late = cancel.is_set() or time.monotonic() > deadline
                if not self._is_listening or not is_behind or is_late:
                    return
                time.sleep(_GLANCE_SECONDS)

    def _listen(self) -> None:
        """Keep subscribers' reports about this job; without them, only failures are known."""
        if not self._listens or self._comes_back_to:
            return  # nobody would ask, or its consumers report nothing
        try:
            self._failed._listen(self._job.id)
            self._is_listening = True
        except RedriveError as error:
            self._on_notice(
                "Reports of subscribers about this job can't be kept: "
                f"{str(error).partition(chr(10))[0]}"
            )

    def _send_in_stages(
        self, watch: Watch | ReturnChecks | None, on_progress: Progress, cancel: Cancel
    ) -> None:
        if watch is None:
            self._send(None, None, on_progress, cancel)
            return
        if self._order.guards.canary:
            # A resumed job gets a new canary: its consumers may have changed.
            watch.begin()
            self._send(
                self._order.guards.canary,
                lambda: self._canary.verdict(watch.standing, time_is_up=False),
                on_progress,
                cancel,
            )
            watch.sent(self._report.requeued)
            if self._stopped:  # it stopped before the number sent was known
                self._stopped = self._canary.verdict(watch.standing, time_is_up=False).reason
            elif not cancel.is_set():
                self._look_after(watch, cancel)
        if not self._over(cancel) and (self._report.requeued or not self._order.guards.canary):
            if watch.sees_while_sending or self._order.guards.stop_at is None:
                self._send(None, self._share_of(watch), on_progress, cancel)
            else:
                self._send_in_portions(watch, on_progress, cancel)

    def _send_in_portions(
        self, watch: Watch | ReturnChecks, on_progress: Progress, cancel: Cancel
    ) -> None:
        """Send portions, each ten times the last, and check in between what has come back."""
        judge = self._share_of(watch)
        assert judge is not None
        portion = max(_FIRST_PORTION, 10 * self._order.guards.canary)
        while not self._over(cancel):
            before = self._report.requeued
            watch.begin()
            self._send(portion, None, on_progress, cancel)
            sent = self._report.requeued - before
            watch.sent(sent)
            if sent < portion:
                return
            until = time.monotonic() + _BETWEEN_PORTIONS
            while time.monotonic() < until and not self._over(cancel):
                watch.look()
                verdict = judge()
                if verdict.act is CanaryStep.STOP:
                    self._stopped = verdict.reason
                time.sleep(_GLANCE_SECONDS)
            portion *= 10

    def _over(self, cancel: Cancel) -> bool:
        return cancel.is_set() or bool(self._stopped)

    @property
    def _canary(self) -> Canary:
        """A canary of the messages sent in this run, as long as nothing else was sent."""
        guards = self._order.guards
        return Canary(
            max(self._report.requeued, self._sent_in_this_run),
            self._unknown_before + self._twice_in_this_run,
            self._longest_watch if guards.watch is None else guards.watch,
            guards.unknown,
            self._comes_back_to,
        )

    @property
    def _comes_back_to(self) -> str:
        """The dead-letter queue that messages come back to if they fail again.

        Empty if subscribers with redrive report outcomes.
        """
        source = source_of(self._failed)
        return source.queue if source.main is None and self._order.to is None else ""

    @property
    def _sent_in_this_run(self) -> int:
        return self._job.sent - self._sent_before

    @property
    def _twice_in_this_run(self) -> int:
        return self._report.possible_duplicates - self._job.possible_duplicates

    def _look_after(self, watch: Watch | ReturnChecks, cancel: Cancel) -> None:
        """Watch the canary until it is known whether the rest may follow."""
        if not self._report.requeued:
            if self._report.failed:
                self._stopped = (
                    "none of the canary could be sent: "
                    f"{str(self._report.failed[0].error).partition(chr(10))[0]}"
                )
            return
        canary = self._canary
        self._journal.judge(self._job)
        self._on_notice(canary.in_words)
        verdict = watched(canary, watch.look, cancel.is_set)
        if verdict.act is CanaryStep.GO_ON:
            self._on_notice(f"{verdict.reason}.")
        elif verdict.act is CanaryStep.STOP and self._comes_back_to:
            self._stopped = verdict.reason
        elif verdict.act is CanaryStep.STOP:
            self._stopped = reason_of_stop(
                verdict, watch.standing, lambda: [whereabouts_of(self._failed, self._order.to)]
            )

    def _share_of(self, watch: Watch | ReturnChecks) -> Callable[[], CanaryDecision] | None:
        """Return a judge of the failing share; None if the order has no limit for it."""
        share = self._order.guards.stop_at
        return (
            None
            if share is None
            else lambda: verdict_on_share(self._sent_in_this_run, watch.standing, share)
        )

    def _send(
        self,
        most: int | None,
        judge: Callable[[], CanaryDecision] | None,
        on_progress: Progress,
        cancel: Cancel,
    ) -> None:
        done = self._report
        left = (
            None
            if self._order.limit is None
            else max(0, self._order.limit - self._sent_before - done.requeued)
        )
        limit = min((number for number in (left, most) if number is not None), default=None)

        def told(so_far: RequeueProgress) -> None:
            sent = done.requeued + so_far.requeued
            self._job = self._journal.update(replace(self._job, sent=self._sent_before + sent))
            on_progress(replace(so_far, requeued=sent))

        order = self._order
        manner = RequeueOptions(
            order.direction,
            order.rate,
            None if self._edit is None else self._edited,
            self._ledger,
            order.most_redrives,
            pace_by_depth=order.pace_by_depth,
        )
        # Without a filter, messages are sent as they come, which is faster, if none that stay are
        # in the way.
        all_go = self._order.filter.is_all and not self._some_stay
        with self._halting(judge, cancel) as halt:
            report = self._failed._send(
                None if all_go else self._order.filter,
                limit,
                manner,
                self._job.id,
                on_progress=told,
                cancel=halt,
            )
        report.requeued += done.requeued
        report.possible_duplicates += done.possible_duplicates
        report.duplicate_ids = _joined(done.duplicate_ids, report.duplicate_ids)
        self._report = report

    @contextlib.contextmanager
    def _halting(
        self, judge: Callable[[], CanaryDecision] | None, cancel: Cancel
    ) -> Iterator[Cancel]:
        """Provide an event that is set when somebody cancels, or when the verdict is to stop."""
        if judge is None:
            yield cancel
            return
        halt, through = threading.Event(), threading.Event()

        def look() -> None:
            while not through.wait(_GLANCE_SECONDS) and not halt.is_set():
                verdict = judge()
                if verdict.act is CanaryStep.STOP:
                    self._stopped = verdict.reason
                if self._over(cancel):
                    halt.set()

        looking = threading.Thread(target=look, name="redrive-verdict", daemon=True)
        looking.start()
        try:
            yield halt
        finally:
            through.set()
            looking.join()

    def _edited(self, message: FailedMessage) -> bytes:
        assert self._edit is not None
        body = self._edit(message)
        if body != message.body:
            self._journal.keep(self._job.id, message.failure_id, message.delivery)
        return body

    def _write_down(self, state: State, problem: str = "") -> None:
        done = self._report
        self._job = self._journal.update(
            replace(
                self._job,
                state=state,
                problem=problem,
                sent=max(self._job.sent, self._sent_before + done.requeued),
                not_sent=len(done.failed),
                possible_duplicates=done.possible_duplicates,
                duplicate_ids=done.duplicate_ids,
                not_sent_ids=[one.failure_id for one in done.failed[:MOST_IDS]],
            )
        )


def _told_of(job: JobRecord) -> int:
    """Return how many outcomes subscribers have reported of a job's messages."""
    return job.handled + job.failed_told + job.retrying_told


def _joined(before: list[str], more: list[str]) -> list[str]:
    """Merge ids without duplicates, up to the limit of ids kept."""
    return list(dict.fromkeys((*before, *more)))[:MOST_IDS]
