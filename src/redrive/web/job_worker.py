"""Runs a console's jobs, so that they do not depend on any request.

A job is written into the journal, and a process of its own, `redrive jobs run ID`, runs it. The
console reads from the journal how far it has got. The process gets the broker's address, which has
the password, through a pipe; it stops the job cleanly once the console, in whatever way, is gone.
"""

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import IO

from redrive.errors import ConfigurationError, RedriveError
from redrive.failures.failed_queue import FailedQueue
from redrive.failures.jobs.job import write_down
from redrive.failures.jobs.job_record import JobRecord, RunProgress
from redrive.failures.jobs.journal import Journal
from redrive.failures.jobs.local_journal import LocalJournal
from redrive.failures.queue.order import Order
from redrive.failures.queue.plan import Plan
from redrive.failures.store.operator_name import acting_for
from redrive.pubsub.blocking.connection_pool import ConnectionPool
from redrive.web.console_settings import ConsoleSettings
from redrive.web.page_request import QueuePlace
from redrive.web.questions import without_address

_COMMAND = (sys.executable, "-P", "-m", "redrive.cli", "jobs", "run")
_ENDS = frozenset((0, 1, 130, -signal.SIGINT))
"""Exit codes of a job that has ended as the journal says, or was stopped before it had begun."""
_HEARD_EVERY = 1.0
_FOLLOWED_FOR = 300.0
"""Seconds for which results are still recorded once a run has ended."""


@dataclass(frozen=True, slots=True)
class ConsoleJob:
    """A job that this console runs or has run.

    Args:
        id: the job's id.
        place: the queue.
        progress: how far this run has got.
        problem: why it could not continue; empty otherwise.
        has_ended: whether this run is over.
    """

    id: str
    place: QueuePlace
    progress: RunProgress
    problem: str
    has_ended: bool


class _Run:
    """A run of a job, in a process of its own."""

    def __init__(self, record: JobRecord, process: "subprocess.Popen[bytes]", pipe: IO[bytes]):
        self.id = record.id
        self.place = QueuePlace(record.queue, record.literal)
        self.family = record.family
        self.process = process
        self.pipe = pipe
        self.problem = ""
        self.has_ended = False
        self.leave = threading.Event()
        """Set once nobody needs the results of its messages."""


class JobWorker:
    """The console's job runner: one job at a time per queue."""

    def __init__(self, settings: ConsoleSettings) -> None:
        self._settings = settings
        self._lock = threading.Lock()
        self._runs: dict[str, _Run] = {}
        self._beginning: set[QueuePlace] = set()
        """The queues whose next job is being written down."""
        self._threads: list[threading.Thread] = []
        self._is_closed = False

    @contextlib.contextmanager
    def journal(self) -> Iterator[Journal]:
        """Open the journal for the duration of the block."""
        with (
            acting_for(self._settings.operator),
            contextlib.closing(
                Journal(self._settings.url, self._settings.journal, program="console")
            ) as journal,
        ):
            yield journal

    @property
    def process(self) -> int | None:
        """The id of the process that runs the latest job; None before the first."""
        with self._lock:
            return next((run.process.pid for run in reversed(self._runs.values())), None)

    def job(self, id_: str) -> ConsoleJob | None:
        """Return the state of a job that runs or ran here; None for any other."""
        with self._lock:
            run = self._runs.get(id_)
            # Taken together: a page that mixes states from before and after its end would show it
            # as running forever.
            ended = None if run is None else (run.problem, run.has_ended)
        if run is None or ended is None:
            return None
        return ConsoleJob(run.id, run.place, self._progress(run), *ended)

    def running(self) -> list[ConsoleJob]:
        """Return the states of the jobs that are running here."""
        with self._lock:
            runs = [run for run in self._runs.values() if not run.has_ended]
        return [ConsoleJob(run.id, run.place, self._progress(run), "", False) for run in runs]

    def _progress(self, run: _Run) -> RunProgress:
        with (
            contextlib.suppress(RedriveError),
            LocalJournal(self._settings.journal) as journal,
        ):
            return journal._progress(run.id, run.process.pid)
        return RunProgress()

    def begin(
        self, place: QueuePlace, failed: FailedQueue, order: Order, plan: Plan, reason: str
    ) -> str:
        """Write a planned job down, start it, and return its id."""
        with self._lock:
            self._check_free(place)
            self._beginning.add(place)
        try:
            # Not under the lock: pages ask for the state of jobs, and the broker may be slow.
            with self.journal() as journal:
                record = write_down(failed, journal, order, plan, reason=reason)
        except BaseException:
            with self._lock:
                self._beginning.discard(place)
            raise
        with self._lock:
            self._beginning.discard(place)
            self._run(record)
        return record.id

    def run(self, record: JobRecord) -> None:
        """Run a job of the journal, if it still is what this record says."""
        with self._lock:
            self._run(record)

    def _run(self, record: JobRecord) -> None:
        self._check_free(QueuePlace(record.queue, record.literal))
        if record.id in self._runs:
            self._runs.pop(record.id).leave.set()
        run = self._runs[record.id] = self._started(record)
        thread = threading.Thread(
            target=self._follow, args=(run,), name=f"redrive-job-{run.id[:8]}", daemon=True
        )
        thread.start()
        self._threads = [one for one in self._threads if one.is_alive()] + [thread]

    def _check_free(self, place: QueuePlace) -> None:
        """Check that no job of a queue is running here."""
        if self._is_closed:
            raise ConfigurationError("this console is shutting down", "Restart redrive web.")
        if place in self._beginning:
            raise ConfigurationError(
                f"another job of {place.name!r} is about to begin here", "Wait until it ends."
            )
        for run in self._runs.values():
            if run.place == place and not run.has_ended:
                raise ConfigurationError(
                    f"job {run.id} of {place.name!r} is already running here",
                    "Wait until it ends, or stop it.",
                )

    def stop(self, id_: str) -> bool:
        """Stop a job that runs here, and return whether it does; messages on the way are settled
        first."""
        with self._lock:
            run = self._runs.get(id_)
            if run is None or run.has_ended:
                return False
            run.process.send_signal(signal.SIGINT)
            return True

    def close(self, on_wait: Callable[[], object] = lambda: None) -> None:
        """Stop all jobs cleanly, and wait until messages on the way are settled."""
        with self._lock:
            self._is_closed = True
            runs, threads = list(self._runs.values()), self._threads
        if any(not run.has_ended for run in runs):
            on_wait()
        for run in runs:
            run.leave.set()
            run.pipe.close()
        for thread in threads:
            thread.join()

    def _started(self, record: JobRecord) -> _Run:
        """Start the process that runs a job."""
        settings = self._settings
        read, write = os.pipe()
        pipe = os.fdopen(write, "wb", buffering=0)
        words = [record.id, "--digest", record.digest, "--yes", "--output", "json"]
        if settings.journal is not None:
            words += ["--journal", str(settings.journal)]
        try:
            # A separate session: Ctrl-C reaches only the console, which stops this process cleanly.
            process = subprocess.Popen(
                [*_COMMAND, *words, "--console", str(read)],
                env=without_address(os.environ),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                start_new_session=True,
                pass_fds=(read,),
            )
        except BaseException:
            pipe.close()
            raise
        finally:
            os.close(read)
        said = {name: getattr(settings, name) for name in ("url", "management_url", "operator")}
        with contextlib.suppress(OSError):  # it was just killed, which _follow reports
            pipe.write(json.dumps(said).encode() + b"\n")
        return _Run(record, process, pipe)

    def _follow(self, run: _Run) -> None:
        """Wait for the end of a run, and record for a while what subscribers report about the sent
        messages; the queue is not touched."""
        _, printed = run.process.communicate()
        problem = _problem_of(run.process.returncode, printed.decode(errors="replace"))
        run.pipe.close()
        with self._lock:
            run.problem, run.has_ended = problem, True
        if problem:
            return
        settings = self._settings
        # If this fails, checking the results later still finds them.
        with contextlib.suppress(RedriveError), ConnectionPool.opened(), self.journal() as journal:
            failed = FailedQueue(
                settings.url,
                run.place.name,
                run.family or settings.family,
                connection_name=f"redrive console: {run.place.name}"[:100],
                management_url=settings.management_url,
                literal=run.place.literal,
            )
            job = failed.job(run.id, journal)
            for _ in range(int(_FOLLOWED_FOR / _HEARD_EVERY)):
                if run.leave.wait(_HEARD_EVERY):
                    return
                outcome = job.told()
                if not outcome.unknown and not outcome.retrying:
                    return


def _problem_of(code: int, printed: str) -> str:
    """Return why a job could not go on, from the exit code and the output of its process."""
    for line in reversed(printed.splitlines()):
        with contextlib.suppress(ValueError, KeyError, TypeError):
            error = json.loads(line)["error"]
            if error["kind"] != "Interrupted":
                return "\n".join(filter(None, (error["problem"], error["remedy"])))
    if code in _ENDS:
        return ""
    how = f"killed by signal {-code}" if code < 0 else f"exit code {code}"
    problem = f"the process that ran this job ended ({how})"
    return f"{problem}\nResume the job: the journal knows what it sent."
