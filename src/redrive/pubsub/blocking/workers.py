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
    """One thread, its item, and whether it was given up on."""

    def __init__(self, pool: "Workers[Item]", name: str) -> None:
        super().__init__(name=name, daemon=True)
        self._pool = pool
        self.item: Item | None = None
        self.started_at = 0.0
        self.abandoned = False

    def run(self) -> None:
        try:
            self._serve()
        except BaseException:  # nobody has told it to leave
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
    """Runs items on up to `count` threads, in the order in which they come. A thread is started
    when an item comes and none is free: a service of many queues, few of them busy, needs few."""

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
        """Items that were put and are not done; not counted once all threads are there."""

    def put(self, item: Item) -> None:
        """Has an item done as soon as a thread is free."""
        if self._not_started:
            with self._lock:
                self._under_way += 1
                if self._not_started and self._under_way > len(self._workers):
                    self._not_started -= 1
                    self._start_one()
        self.items.put(item)

    def free(self) -> None:
        """A thread tells that it is free."""
        if self._not_started:
            with self._lock:
                self._under_way -= 1

    def drop_waiting(self) -> list[Item]:
        """Takes back the items that no thread has begun."""
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
        """Abandons items that run for longer than `seconds`: puts new threads in place of theirs.

        A thread can't be ended from outside; an abandoned one leaves when its item returns.
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
        """A thread has ended without having been told to."""
        with self._lock:
            if worker in self._workers:
                self._workers.discard(worker)
                self._start_one()

    def finished(self, worker: "_Worker[Item]", seconds: float) -> None:
        """A thread tells that its item is done."""
        if worker.abandoned:
            logger.warning(
                "a handler that was given up on returned after %.1f s; its result is dropped",
                seconds,
            )
            self._ended_late()
        elif seconds > self._most_seconds:
            self._most_seconds = seconds
            self._longest(seconds)

    def stop(self) -> None:
        """Lets every thread leave once its item is done."""
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
