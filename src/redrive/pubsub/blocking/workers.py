"""A pool of handler threads."""

import logging
import queue
import sys
import threading
import time
import traceback
from collections.abc import Callable
from typing import Generic, TypeVar

logger = logging.getLogger("redrive")

Job = TypeVar("Job")


class _Worker(threading.Thread, Generic[Job]):
    """One thread, its job, and whether it was given up on."""

    def __init__(self, pool: "Workers[Job]", name: str) -> None:
        super().__init__(name=name, daemon=True)
        self._pool = pool
        self.job: Job | None = None
        self.started_at = 0.0
        self.abandoned = False

    def run(self) -> None:
        jobs = self._pool.jobs
        while not self.abandoned:
            job = jobs.get()
            if job is None:
                return
            self.started_at = time.monotonic()
            self.job = job
            try:
                self._pool.work(job)
            finally:
                self.job = None
                self._pool.finished(self, time.monotonic() - self.started_at)


class Workers(Generic[Job]):
    """Runs jobs on `count` threads, in the order in which they come.

    Args:
        count: how many threads.
        name: what the threads are called.
        work: does a job; it must not raise.
        longest: told each time a job took longer than any before, with the seconds.
    """

    def __init__(self, count: int, name: str, work: Callable[[Job], None], longest: Callable[[float], None]) -> None:
        self._name = name
        self.work = work
        self._longest = longest
        self._most_seconds = 0.0
        self._started = 0
        self.jobs: queue.SimpleQueue[Job | None] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._workers: set[_Worker[Job]] = set()
        for _ in range(count):
            self._start_one()

    def put(self, job: Job) -> None:
        """Has a job done as soon as a thread is free."""
        self.jobs.put(job)

    def drop_waiting(self) -> list[Job]:
        """Takes back the jobs that no thread has begun."""
        dropped: list[Job] = []
        try:
            while True:
                job = self.jobs.get_nowait()
                if job is not None:
                    dropped.append(job)
        except queue.Empty:
            return dropped

    def abandon_overdue(self, seconds: float) -> list[tuple[Job, str]]:
        """Gives up on jobs that run for longer than `seconds`: puts new threads in place of theirs.

        A thread can't be ended from outside; an abandoned one leaves when its job returns.

        Returns:
            Each job, and the stack of the thread that hangs in it.
        """
        overdue: list[tuple[Job, str]] = []
        now = time.monotonic()
        with self._lock:
            for worker in list(self._workers):
                job = worker.job
                if job is not None and now - worker.started_at > seconds:
                    worker.abandoned = True
                    self._workers.discard(worker)
                    self._start_one()
                    overdue.append((job, _stack_of(worker)))
        return overdue

    def finished(self, worker: "_Worker[Job]", seconds: float) -> None:
        """A thread tells that its job is done."""
        if worker.abandoned:
            logger.warning("a handler that was given up on returned after %.1f s; its result is dropped", seconds)
        elif seconds > self._most_seconds:
            self._most_seconds = seconds
            self._longest(seconds)

    def stop(self) -> None:
        """Lets every thread leave once its job is done."""
        with self._lock:
            for _ in self._workers:
                self.jobs.put(None)

    def _start_one(self) -> None:
        self._started += 1
        worker: _Worker[Job] = _Worker(self, f"{self._name}-{self._started}")
        self._workers.add(worker)
        worker.start()


def _stack_of(thread: threading.Thread) -> str:
    frame = sys._current_frames().get(thread.ident or 0)
    return "".join(traceback.format_stack(frame)) if frame is not None else ""
