"""Carries out an order: sends, stops where that is asked for, and writes down in the journal how far it is."""

import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace

from redrive.errors import RedriveError
from redrive.failures.journal import Journal
from redrive.failures.ledger import JournalLedger
from redrive.failures.order import Order
from redrive.failures.plan import plan_of
from redrive.failures.record import Job, State
from redrive.failures.selection import Chooser
from redrive.pubsub.blocking.failed import FailedQueue
from redrive.pubsub.blocking.watching import Watch
from redrive.pubsub.message import FailedMessage
from redrive.pubsub.report import RequeueProgress, RequeueReport

Progress = Callable[[RequeueProgress], None]
Note = Callable[[str], None]

_GLANCE = 0.1
_ENOUGH_TO_JUDGE = 20
"""Messages that must have been sent before a share of them says anything."""


class Requeueing:
    """One run of a job that sends messages back.

    Args:
        failed: the failed queue.
        journal: where it is written down.
        job: the job, new or taken up again.
        order: what it was told to do.
        some_stay: whether messages are known that it is not to send, though its selection means them.
        note: is told, in a sentence, what people may want to know meanwhile.

    Raises:
        ConfigurationError: the order's patch or function can't be used.
    """

    def __init__(
        self, failed: FailedQueue, journal: Journal, job: Job, order: Order, *, some_stay: bool = True, note: Note = lambda _: None
    ) -> None:
        self._failed = failed
        self._journal = journal
        self._job = job
        self._order = order
        self._some_stay = some_stay
        self._note = note
        self._edit = order.edit()
        self._ledger = JournalLedger(journal, job.id)
        self._report = RequeueReport(job.id)
        self._sent_before = 0
        self._stopped = ""

    def run(self, progress: Progress, cancel: threading.Event) -> tuple[Job, RequeueReport]:
        """Sends, and writes down what became of it.

        Raises:
            RedriveError: it could not go on; that is written down too.
        """
        self._take_up()
        try:
            with contextlib.ExitStack() as held:
                chooser = held.enter_context(Chooser(self._order.selection))
                watch = held.enter_context(self._failed.watch(self._job.id, self._order.to)) if self._order.is_watched else None
                self._listen()
                self._send_in_stages(chooser, watch, progress, cancel)
        except RedriveError as error:
            self._write_down(State.FAILED, str(error).partition("\n")[0])
            raise
        except BaseException:
            self._write_down(State.INTERRUPTED)
            raise
        self._report.cancelled = cancel.is_set()
        state = State.STOPPED if self._stopped else State.INTERRUPTED if cancel.is_set() else State.DONE
        self._write_down(state, self._stopped)
        return self._job, self._report

    def _take_up(self) -> None:
        """Begins, or finds out what an earlier run of the job has sent: all that it handed over and that is not there any more."""
        under_way = self._journal.under_way(self._job.id)
        self._job = self._journal.begin(self._job)
        handed_over = self._journal.handed_over(self._job.id)
        if not handed_over:
            return
        plan = plan_of(self._order, self._failed.browse(), under_way, self._job.id)
        self._sent_before = max(0, handed_over - plan.found_again)
        twice = self._job.possible_duplicates + plan.found_again
        self._report.possible_duplicates = twice
        self._job = self._journal.take_up(replace(self._job, sent=self._sent_before, possible_duplicates=twice))

    def _listen(self) -> None:
        """Has what subscribers tell of this job kept; without it only failures are known."""
        try:
            self._failed.listen(self._job.id)
        except RedriveError as error:
            self._note(f"What subscribers tell of this job can't be kept: {str(error).partition(chr(10))[0]}")

    def _send_in_stages(self, chooser: Chooser, watch: Watch | None, progress: Progress, cancel: threading.Event) -> None:
        canary = self._order.canary - self._sent_before
        if watch is not None and canary > 0:
            self._send(chooser, watch, canary, progress, cancel)
            if not self._over(cancel):
                self._look_after(watch, cancel)
        if not self._over(cancel):
            self._send(chooser, watch, None, progress, cancel)

    def _over(self, cancel: threading.Event) -> bool:
        return cancel.is_set() or bool(self._stopped)

    def _look_after(self, watch: Watch, cancel: threading.Event) -> None:
        """Watches what was sent until it was handled, fails again, or time is up."""
        sent = self._report.requeued
        self._note(f"{sent:,} sent; watching them for {self._order.watch:g} s.")
        deadline = time.monotonic() + self._order.watch
        while time.monotonic() < deadline and not cancel.wait(_GLANCE):
            if watch.failed_again:
                self._stopped = f"{watch.failed_again:,} of the first {sent:,} failed again"
                return
            if watch.handled >= sent:
                self._note(f"All {sent:,} were handled; going on.")
                return
        if not cancel.is_set():
            self._note(f"None of {sent:,} failed within {self._order.watch:g} s ({watch.handled:,} were handled for sure); going on.")

    def _send(self, chooser: Chooser, watch: Watch | None, most: int | None, progress: Progress, cancel: threading.Event) -> None:
        done = self._report
        left = None if self._order.limit is None else max(0, self._order.limit - self._sent_before - done.requeued)
        limit = min((number for number in (left, most) if number is not None), default=None)

        def told(so_far: RequeueProgress) -> None:
            sent = done.requeued + so_far.requeued
            self._job = self._journal.update(replace(self._job, sent=self._sent_before + sent))
            progress(replace(so_far, requeued=sent))

        with self._halting(watch, cancel) as halt:
            report = self._failed.requeue(
                limit=limit,
                # Without a choice messages are sent as they come, which is faster; what stays is to be in the way of none.
                choose=None if self._order.selection.is_all and not self._some_stay else chooser,
                to=self._order.to,
                rate=self._order.rate,
                edit=None if self._edit is None else self._edited,
                ledger=self._ledger,
                most_redrives=self._order.most_redrives,
                job=self._job.id,
                progress=told,
                cancel=halt,
            )
        report.requeued += done.requeued
        report.possible_duplicates += done.possible_duplicates
        self._report = report

    @contextlib.contextmanager
    def _halting(self, watch: Watch | None, cancel: threading.Event) -> Iterator[threading.Event]:
        """An event that is set when people stop it, or too many fail again."""
        share = self._order.stop_at
        if watch is None or share is None:
            yield cancel
            return
        halt, through = threading.Event(), threading.Event()

        def look() -> None:
            while not through.wait(_GLANCE) and not halt.is_set():
                sent = self._job.sent
                if sent >= _ENOUGH_TO_JUDGE and watch.failed_again > share * sent:
                    self._stopped = f"{watch.failed_again:,} of {sent:,} failed again, which is more than {share:.1%}"
                if self._over(cancel):
                    halt.set()

        looking = threading.Thread(target=look, name="redrive-stop-at", daemon=True)
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
            )
        )
