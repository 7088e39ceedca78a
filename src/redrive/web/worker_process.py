"""The process that runs a console's jobs, each in a thread, so that pages and jobs can't disturb
each other.

It reads tasks from a pipe, one per line, and writes the state of its jobs to stdout. When the
console ends, in whatever way, the pipe closes: then all jobs stop cleanly, messages on the way are
settled first, and the journal has the jobs. `python -m redrive.web.worker_process 3` runs it, with
the pipe's file descriptor. The pipe carries the broker's address and password, so it is not stdin,
which other code might read.
"""

import contextlib
import os
import signal
import sys
import threading
import time
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, cast

from redrive.errors import ConfigurationError, RedriveError
from redrive.failures.failed_queue import FailedQueue, carry_out, plan_order
from redrive.failures.jobs.approval import approve
from redrive.failures.jobs.approval_rule import check_seen
from redrive.failures.jobs.job import Job
from redrive.failures.jobs.job_record import JobRecord
from redrive.failures.jobs.journal import Journal
from redrive.failures.jobs.requeue_job import OutcomeCounts
from redrive.failures.jobs.running_job import check_alone
from redrive.failures.queue.order import Order
from redrive.failures.store.operator_name import acting_for
from redrive.pubsub.blocking.connection_pool import ConnectionPool
from redrive.pubsub.reports import RequeueProgress
from redrive.redaction import KINDS_VARIABLE, redact_kinds_named
from redrive.topology.names import ExchangeFamily
from redrive.web.console_job import ConsoleJob, Task, TaskKind

_TOLD_EVERY = 0.2
_RATE_OF = 5.0
"""Seconds that the rate is averaged over."""
_MOST_CAUSES = 20
_HEARD_EVERY = 1.0
_FOLLOWED_FOR = 300.0
"""Seconds for which results are still recorded once a run has ended."""


class WorkerRun:
    """One run of a job in this process."""

    def __init__(self, task: Task, told: BinaryIO) -> None:
        self._task = task
        self._told = told
        self._lock = threading.Lock()
        self._job = ConsoleJob(task.id, task.place)
        self._told_at = 0.0
        self._sent: deque[tuple[float, int]] = deque()
        self.cancel = threading.Event()
        self.leave = threading.Event()

    def carry_out(self) -> None:
        """Run the job to its end, and report its state."""
        try:
            with self._journal() as journal:
                done = self._done(journal)
                self._job.sent = done.requeued
        except RedriveError as error:
            self._job.problem = str(error)
        finally:
            self._job.has_ended, self._job.rate = True, 0.0
            self._tell(at_once=True)
        if not self._job.problem:
            self._follow()

    def _follow(self) -> None:
        """Record what subscribers report about the sent messages for a while; the queue is not
        touched."""
        task = self._task
        until = time.monotonic() + _FOLLOWED_FOR
        # If this fails, checking the results later still finds them.
        with (
            contextlib.suppress(RedriveError),
            self._journal() as journal,
        ):
            family = journal.job(task.id).family or ExchangeFamily.from_json(task.family)
            job = self._failed(family).job(task.id, journal)
            while not self.leave.wait(_HEARD_EVERY) and time.monotonic() < until:
                outcome = job.told()
                if not outcome.unknown and not outcome.retrying:
                    return

    def _done(self, journal: Journal) -> Job:
        task = self._task
        match task.kind:
            case TaskKind.BEGIN:
                failed = self._failed(ExchangeFamily.from_json(task.family))
                order = Order.from_json(task.order)
                plan = plan_order(failed, order)
                self._job.planned = plan.count
                with self._journal() as newest:
                    # Another requeue may have started during planning.
                    check_alone(newest, task.queue)
                return carry_out(
                    failed,
                    order,
                    plan,
                    reason=task.reason,
                    journal=journal,
                    job=task.id,
                    on_progress=self._progress,
                    on_notice=self._notice,
                    on_outcome=self._outcome,
                    cancel=self.cancel,
                )
            case TaskKind.APPROVE:
                record = self._seen(journal)
                self._job.planned = record.planned
                return approve(
                    self._failed(record.family or ExchangeFamily.from_json(task.family)),
                    journal,
                    record,
                    on_progress=self._progress,
                    on_notice=self._notice,
                    on_outcome=self._outcome,
                    cancel=self.cancel,
                )
            case TaskKind.RESUME:
                record = self._seen(journal)
                job = self._failed(record.family or ExchangeFamily.from_json(task.family)).job(
                    task.id, journal
                )
                left = job.left()
                self._job.planned = left.count
                return job.resume(
                    left,
                    on_progress=self._progress,
                    on_notice=self._notice,
                    on_outcome=self._outcome,
                    cancel=self.cancel,
                )
            case TaskKind.STOP:
                raise ConfigurationError("only a running job can be stopped", "Start a job.")

    def _seen(self, journal: Journal) -> JobRecord:
        """Return the job of the journal, which must be the one that the page showed."""
        record = journal.job(self._task.id)
        check_seen(record, self._task.digest)
        return record

    @contextlib.contextmanager
    def _journal(self) -> Iterator[Journal]:
        """Open the journal for the duration of the block."""
        task = self._task
        path = None if task.journal is None else Path(task.journal)
        with (
            acting_for(task.operator),
            contextlib.closing(Journal(task.url, path, program="console")) as journal,
        ):
            yield journal

    def _failed(self, family: ExchangeFamily) -> FailedQueue:
        task = self._task
        return FailedQueue(
            task.url,
            task.queue,
            family,
            connection_name=f"redrive console: {task.queue}"[:100],
            management_url=task.management_url,
            literal=task.literal,
        )

    def _progress(self, progress: RequeueProgress) -> None:
        now = time.monotonic()
        self._sent.append((now, progress.requeued))
        while now - self._sent[0][0] > _RATE_OF:
            self._sent.popleft()
        since, before = self._sent[0]
        if now > since:
            self._job.rate = round((progress.requeued - before) / (now - since), 1)
        self._job.sent, self._job.looked_at = progress.requeued, progress.looked_at
        self._tell()

    def _notice(self, notice: str) -> None:
        self._job.tell(notice)
        self._tell(at_once=True)

    def _outcome(self, seen: OutcomeCounts) -> None:
        standing = seen.standing
        self._job.succeeded, self._job.retrying = standing.succeeded, standing.retrying
        self._job.failed_again = standing.failed_again
        largest = sorted(seen.causes.items(), key=lambda one: -one[1])[:_MOST_CAUSES]
        self._job.causes = [(cause.group_id, cause.what, count) for cause, count in largest]
        self._tell()

    def _tell(self, *, at_once: bool = False) -> None:
        with self._lock:
            now = time.monotonic()
            if at_once or now - self._told_at >= _TOLD_EVERY:
                self._told_at = now
                # The console may be gone: the journal has everything that matters.
                with contextlib.suppress(OSError):
                    self._told.write(self._job.encode())


class Worker:
    """A runner of the tasks that it receives."""

    def __init__(self, orders: BinaryIO, told: BinaryIO) -> None:
        self._orders = orders
        self._told = told
        self._runs: dict[str, WorkerRun] = {}
        self._threads: list[threading.Thread] = []
        self.ended = threading.Event()

    def run(self) -> None:
        """Run jobs until the console ends or a signal arrives, and wait until all have stopped."""
        threading.Thread(target=self._listen, name="redrive-orders", daemon=True).start()
        while not self.ended.wait(0.2):
            pass
        for run in list(self._runs.values()):
            run.cancel.set()
            run.leave.set()
        for thread in self._threads:
            thread.join()

    def _listen(self) -> None:
        try:
            for line in self._orders:
                self._do(Task.decode(line))
        finally:
            self.ended.set()

    def _do(self, task: Task) -> None:
        if task.kind is TaskKind.STOP:
            if task.id in self._runs:
                self._runs[task.id].cancel.set()
            return
        if task.id in self._runs:
            self._runs[task.id].leave.set()
        run = self._runs[task.id] = WorkerRun(task, self._told)
        thread = threading.Thread(target=run.carry_out, name=f"redrive-job-{task.id[:8]}")
        self._threads.append(thread)
        thread.start()


@contextlib.contextmanager
def _own_output() -> Iterator[BinaryIO]:
    """Yield the pipe to the console, and redirect stdout to stderr so that nothing else writes to
    the pipe."""
    with os.fdopen(os.dup(1), "wb", buffering=0) as told:
        os.dup2(2, 1)
        yield cast("BinaryIO", told)


def main() -> None:
    """Run a worker for the console that started this process."""
    redact_kinds_named(os.environ.get(KINDS_VARIABLE, ""))
    with _own_output() as told, os.fdopen(int(sys.argv[1]), "rb") as orders:
        worker = Worker(orders, told)
        for one in (signal.SIGINT, signal.SIGTERM):
            signal.signal(one, lambda *_: worker.ended.set())
        with ConnectionPool.opened():
            worker.run()
    sys.stdout.flush()
    # The thread that reads tasks may be blocked, and would keep the process from exiting.
    os._exit(0)


if __name__ == "__main__":
    main()
