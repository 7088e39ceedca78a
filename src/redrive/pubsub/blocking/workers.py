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

Item = TypeVar("Item")


class _Worker(threading.Thread, Generic[Item]):
    """A thread, its current item, and whether it was abandoned."""

    def __init__(self, pool: "Workers[Item]", name: str) -> None:
        super().__init__(name=name, daemon=True)
        self._pool = pool
        self.item: Item | None = None
        self.started_at = 0.0
        self.abandoned = False

    def run(self) -> None:
        try:
            self._serve()
        except BaseException:  # nobody has told it to stop
            logger.exception("the thread %s has ended; another takes its place", self.name)
            self._pool.replace(self)

    def _serve(self) -> None:
        items = self._pool.items
        while not self.abandoned:
            item = items.get()
            if item is None:
                return
            self.started_at = time.monotonic()
            self.item = item
            try:
                self._pool.work(item)
            finally:
                self.item = None
                self._pool.finished(self, time.monotonic() - self.started_at)
                self._pool.free()


class Workers(Generic[Item]):
    """A pool of up to `count` threads that run items in order of arrival.

    A thread is started when an item comes and none is free, so a service with many queues, few of
    them busy, needs few threads.
    """

    def __init__(
        self,
        count: int,
        name: str,
        work: Callable[[Item], None],
        longest: Callable[[float], None],
        ended_late: Callable[[], None] = lambda: None,
    ) -> None:
        self._name = name
        self.work = work
        self._longest = longest
        self._ended_late = ended_late
        self._most_seconds = 0.0
        self._started = 0
        self.items: queue.SimpleQueue[Item | None] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._workers: set[_Worker[Item]] = set()
        self._not_started = count
        self._under_way = 0
        """Items that were put and are not done; no longer counted once all threads are started."""

    def put(self, item: Item) -> None:
        """Run an item as soon as a thread is free."""
        if self._not_started:
            with self._lock:
                self._under_way += 1
                if self._not_started and self._under_way > len(self._workers):
                    self._not_started -= 1
                    self._start_one()
        self.items.put(item)

    def free(self) -> None:
        """Note that a thread is free."""
        if self._not_started:
            with self._lock:
                self._under_way -= 1

    def drop_waiting(self) -> list[Item]:
        """Take back the items that no thread has started."""
        dropped: list[Item] = []
        try:
            while True:
                item = self.items.get_nowait()
                if item is not None:
                    dropped.append(item)
                    self.free()
        except queue.Empty:
            return dropped

    def abandon_overdue(self, seconds: float, every: float) -> list[tuple[Item, str]]:
        """Abandon items that have run for longer than `seconds`, and start new threads in place of
        theirs.

        A thread can't be stopped from outside; an abandoned one exits when its item returns.
        """
        overdue: list[tuple[Item, str]] = []
        now = time.monotonic()
        with self._lock:
            for worker in list(self._workers):
                item = worker.item
                if item is not None and now - worker.started_at > seconds:
                    worker.abandoned = True
                    self._workers.discard(worker)
                    self._start_one()
                    overdue.append((item, _stack_of(worker)))
        return overdue

    def replace(self, worker: "_Worker[Item]") -> None:
        """Replace a thread that ended without being told to."""
        with self._lock:
            if worker in self._workers:
                self._workers.discard(worker)
                self._start_one()

    def finished(self, worker: "_Worker[Item]", seconds: float) -> None:
        """Note that a thread's item is done."""
        if worker.abandoned:
            logger.warning(
                "an abandoned handler returned after %.1f s; its result is dropped",
                seconds,
            )
            self._ended_late()
        elif seconds > self._most_seconds:
            self._most_seconds = seconds
            self._longest(seconds)

    def stop(self) -> None:
        """Let every thread exit once its item is done."""
        with self._lock:
            for _ in self._workers:
                self.items.put(None)

    def _start_one(self) -> None:
        self._started += 1
        worker: _Worker[Item] = _Worker(self, f"{self._name}-{self._started}")
        self._workers.add(worker)
        worker.start()


def _stack_of(thread: threading.Thread) -> str:
    frame = sys._current_frames().get(thread.ident or 0)
    return "".join(traceback.format_stack(frame)) if frame is not None else ""
