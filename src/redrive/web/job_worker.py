"""Runs a console's jobs in a separate process, so that they do not depend on any request."""

import contextlib
import json
import os
import subprocess
import sys
import threading
import uuid
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import IO

from redrive.errors import ConfigurationError
from redrive.failures.jobs.journal import Journal
from redrive.failures.queue.order import Order
from redrive.failures.store.operator_name import acting_for
from redrive.web.console_job import ConsoleJob, Task, TaskKind
from redrive.web.console_settings import ConsoleSettings
from redrive.web.page_request import QueuePlace
from redrive.web.questions import without_address

_COMMAND = (sys.executable, "-P", "-m", "redrive.web.worker_process")


class JobWorker:
    """The console's job runner: one job at a time per queue, in a process that starts with the
    first job."""

    def __init__(self, settings: ConsoleSettings) -> None:
        self._settings = settings
        self._lock = threading.Lock()
        self._jobs: dict[str, ConsoleJob] = {}
        self._process: subprocess.Popen[bytes] | None = None
        self._orders: IO[bytes] | None = None
        self._hearing: list[threading.Thread] = []
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
        """The id of the process that runs the jobs; None before it starts."""
        with self._lock:
            return None if self._process is None else self._process.pid

    def job(self, id_: str) -> ConsoleJob | None:
        """Return the state of a job that runs or ran here; None for any other."""
        with self._lock:
            job = self._jobs.get(id_)
            # A copy, as the job goes on while the caller reads the journal: a page that mixes
            # states from before and after its end would show it as running forever.
            return None if job is None else replace(job)

    def running(self) -> list[ConsoleJob]:
        """Return the states of the jobs that are running here."""
        with self._lock:
            return [replace(job) for job in self._jobs.values() if not job.has_ended]

    def begin(self, place: QueuePlace, order: Order, reason: str) -> str:
        """Start a job, and return its id.

        The worker plans it again from what is in the queue now, as the page's plan is only as
        recent as its look.
        """
        id_ = str(uuid.uuid4())
        self._start(place, TaskKind.BEGIN, id_, order, reason)
        return id_

    def resume(self, place: QueuePlace, id_: str, digest: str) -> None:
        """Resume a job of the journal."""
        self._start(place, TaskKind.RESUME, id_, digest=digest)

    def approve(self, place: QueuePlace, id_: str, digest: str) -> None:
        """Start a job that somebody else requested."""
        self._start(place, TaskKind.APPROVE, id_, digest=digest)

    def stop(self, id_: str) -> bool:
        """Stop a job that runs here, and return whether it does; messages on the way are settled
        first."""
        with self._lock:
            job = self._jobs.get(id_)
            if job is None or job.has_ended:
                return False
            self._send(Task(kind=TaskKind.STOP, id=id_))
            return True

    def close(self, on_wait: Callable[[], object] = lambda: None) -> None:
        """Stop all jobs cleanly, and wait until messages on the way are settled."""
        with self._lock:
            self._is_closed = True
            process = self._process
            is_busy = any(not job.has_ended for job in self._jobs.values())
        if process is None:
            return
        if is_busy:
            on_wait()
        assert self._orders is not None
        with contextlib.suppress(OSError):  # the process may be gone
            self._orders.close()
        process.wait()
        for thread in self._hearing:
            thread.join()

    def _start(
        self,
        place: QueuePlace,
        kind: TaskKind,
        id_: str,
        order: Order | None = None,
        reason: str = "",
        digest: str = "",
    ) -> None:
        settings = self._settings
        task = Task(
            kind=kind,
            id=id_,
            url=settings.url,
            queue=place.name,
            literal=place.literal,
            family=settings.family.as_json(),
            management_url=settings.management_url,
            journal=None if settings.journal is None else str(settings.journal),
            order={} if order is None else order.as_json(),
            reason=reason,
            digest=digest,
            operator=settings.operator,
        )
        with self._lock:
            if self._is_closed:
                raise ConfigurationError("this console is shutting down", "Restart redrive web.")
            for other in self._jobs.values():
                if other.place == place and not other.has_ended:
                    raise ConfigurationError(
                        f"job {other.id} of {place.name!r} is already running here",
                        "Wait until it ends, or stop it.",
                    )
            self._run_process()
            self._jobs[id_] = ConsoleJob(id_, place)
            self._send(task)

    def _run_process(self) -> None:
        """Start the process that runs jobs, unless it is running."""
        if self._process is not None and self._process.poll() is None:
            return
        read, write = os.pipe()
        orders = self._orders = os.fdopen(write, "wb")
        try:
            # A separate session: Ctrl-C reaches only the console, which stops this process cleanly.
            process = self._process = subprocess.Popen(
                [*_COMMAND, str(read)],
                env=without_address(os.environ),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                start_new_session=True,
                pass_fds=(read,),
            )
        finally:
            os.close(read)
        thread = threading.Thread(
            target=self._hear, args=(process, orders), name="redrive-worker", daemon=True
        )
        self._hearing = [one for one in self._hearing if one.is_alive()] + [thread]
        thread.start()

    def _send(self, task: Task) -> None:
        assert self._orders is not None
        with contextlib.suppress(OSError):  # it was just killed, which _hear reports
            self._orders.write(task.encode())
            self._orders.flush()

    def _hear(self, process: subprocess.Popen[bytes], orders: IO[bytes]) -> None:
        assert process.stdout is not None
        with process.stdout as told:
            self._take(told)
        code = process.wait()
        with self._lock:
            with contextlib.suppress(OSError):  # unsent data may remain
                orders.close()
            for job in self._jobs.values():
                if not job.has_ended and (self._process is process):
                    job.problem = job.problem or _ended(code)
                    job.has_ended = True

    def _take(self, told: IO[bytes]) -> None:
        for line in told:
            try:
                values = json.loads(line)
            except ValueError:
                continue  # the process was killed in the middle of a line
            with self._lock:
                job = self._jobs.get(values["id"])
                if job is not None:
                    job.take(values)


def _ended(code: int) -> str:
    """Return the problem of a job whose process ended with this exit code."""
    how = f"killed by signal {-code}" if code < 0 else f"exit code {code}"
    problem = f"the process that ran this job ended ({how})"
    remedy = "Resume the job: the journal knows what it sent."
    return f"{problem}\n{remedy}"
