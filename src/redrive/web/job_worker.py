"""The jobs that a console runs: each in a thread of its own, whatever becomes of the request that
began it."""

import contextlib
import threading
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from redrive.errors import ConfigurationError, RedriveError
from redrive.failures.failed_queue import FailedQueue
from redrive.failures.job import Job
from redrive.failures.journal import Journal
from redrive.failures.operator_name import acting_for
from redrive.failures.order import Order
from redrive.failures.requeue import Progress
from redrive.pubsub.reports import RequeueProgress
from redrive.web.asked import QueuePlace
from redrive.web.console_settings import ConsoleSettings

_MOST_NOTICES = 20
_Run = Callable[[Journal, "ConsoleJob"], Job]


@dataclass(slots=True)
class ConsoleJob:
    """A job that this console runs, or has run.

    Args:
        id: its id.
        place: the queue.
        planned: how many it is to send, as far as that is known.
        sent: how many it has sent in this run.
        looked_at: how many messages it has looked at.
        notices: what people may want to know, the last ones.
        problem: why it could not go on; empty otherwise.
        has_ended: whether this run is over.
        cancel: ends it.
    """

    id: str
    place: QueuePlace
    planned: int | None = None
    sent: int = 0
    looked_at: int = 0
    notices: list[str] = field(default_factory=list)
    problem: str = ""
    has_ended: bool = False
    cancel: threading.Event = field(default_factory=threading.Event)

    def note(self, progress: RequeueProgress) -> None:
        """Notes how far it is."""
        self.sent, self.looked_at = progress.requeued, progress.looked_at

    def tell(self, notice: str) -> None:
        """Keeps what people may want to know."""
        self.notices = [*self.notices, notice][-_MOST_NOTICES:]


class JobWorker:
    """Runs jobs, one at a time for each queue.

    Args:
        settings: where the journal is, and the broker.
    """

    def __init__(self, settings: ConsoleSettings) -> None:
        self._settings = settings
        self._lock = threading.Lock()
        self._jobs: dict[str, ConsoleJob] = {}
        self._threads: list[threading.Thread] = []
        self._is_closed = False

    @contextlib.contextmanager
    def journal(self) -> Iterator[Journal]:
        """The journal, for as long as the block.

        Raises:
            ConfigurationError: it can't be opened.
        """
        with (
            acting_for(self._settings.operator),
            contextlib.closing(
                Journal(self._settings.url, self._settings.journal, program="console")
            ) as journal,
        ):
            yield journal

    def job(self, id_: str) -> ConsoleJob | None:
        """A job that runs here, or has; None for any other."""
        with self._lock:
            return self._jobs.get(id_)

    def running(self) -> list[ConsoleJob]:
        """The jobs that run here now."""
        with self._lock:
            return [job for job in self._jobs.values() if not job.has_ended]

    def begin(self, place: QueuePlace, failed: FailedQueue, order: Order, reason: str) -> str:
        """Begins a job; returns its id.

        What it sends is planned anew, of what is in the queue now: what people saw is as old as the
        look that it was of.

        Raises:
            ConfigurationError: a job of this queue runs here.
        """
        id_ = str(uuid.uuid4())

        def run(journal: Journal, job: ConsoleJob) -> Job:
            plan = failed.plan_order(order)
            job.planned = plan.count
            on_progress, cancel = _told(job)
            return failed.carry_out(
                order,
                plan,
                reason=reason,
                journal=journal,
                job=id_,
                on_progress=on_progress,
                on_notice=job.tell,
                cancel=cancel,
            )

        self._start(ConsoleJob(id_, place), run)
        return id_

    def resume(self, place: QueuePlace, failed: FailedQueue, id_: str) -> None:
        """Takes up a job of the journal again.

        Raises:
            ConfigurationError: a job of this queue runs here.
        """

        def run(journal: Journal, job: ConsoleJob) -> Job:
            on_progress, cancel = _told(job)
            return failed.job(id_, journal).resume(
                on_progress=on_progress, on_notice=job.tell, cancel=cancel
            )

        self._start(ConsoleJob(id_, place), run)

    def close(self, on_wait: Callable[[], object] = lambda: None) -> None:
        """Ends all jobs cleanly, and waits for it: what is on its way is settled first.

        Args:
            on_wait: called where there are some.
        """
        with self._lock:
            self._is_closed = True
            for job in self._jobs.values():
                job.cancel.set()
            threads = [thread for thread in self._threads if thread.is_alive()]
        if threads:
            on_wait()
        for thread in threads:
            thread.join()

    def _start(self, job: ConsoleJob, run: _Run) -> None:
        with self._lock:
            if self._is_closed:
                raise ConfigurationError("this console is ending", "Start redrive web again.")
            for other in self._jobs.values():
                if other.place == job.place and not other.has_ended:
                    raise ConfigurationError(
                        f"job {other.id} of {job.place.name!r} runs here already",
                        "Wait for its end, or stop it.",
                    )
            self._jobs[job.id] = job
            # No daemon: what is on its way is settled before the process ends.
            thread = threading.Thread(
                target=self._work, args=(job, run), name=f"redrive-job-{job.id[:8]}"
            )
            self._threads = [one for one in self._threads if one.is_alive()] + [thread]
            thread.start()

    def _work(self, job: ConsoleJob, run: _Run) -> None:
        try:
            with self.journal() as journal:
                done = run(journal, job)
                job.sent = done.requeued
        except RedriveError as error:
            job.problem = str(error)
        finally:
            job.has_ended = True


def _told(job: ConsoleJob) -> tuple[Progress, threading.Event]:
    return job.note, job.cancel
