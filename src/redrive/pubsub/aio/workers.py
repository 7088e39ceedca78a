"""Tasks that run handlers concurrently, up to a limit."""

import asyncio
import logging
import time
import traceback
from collections.abc import Awaitable, Callable, Coroutine, Generator
from types import FrameType
from typing import Generic, Protocol, TypeVar

logger = logging.getLogger("redrive")


class StepTimes(Protocol):
    """An item that records how long it blocks the event loop."""

    held: float
    """Seconds for which it has blocked the loop so far."""
    step_began: float
    """When its current step began, by the monotonic clock."""


Item = TypeVar("Item", bound=StepTimes)
Result = TypeVar("Result")

_IN_A_ROW = 32
"""How many jobs a task does before it yields to the event loop, if none of them waits for
anything."""

_A_MOMENT = 0.1


class TimedCoroutine(Generic[Result]):
    """An awaitable around a coroutine that adds up how long its steps block the event loop."""

    __slots__ = ("_coroutine", "_item")

    def __init__(self, coroutine: Coroutine[object, object, Result], item: StepTimes) -> None:
        self._coroutine = coroutine
        self._item = item

    def __await__(self) -> Generator[object, None, Result]:
        timed = self._coroutine  # `stack_of` finds it under this name
        resume: Callable[..., object] = timed.send
        given: object = None
        while True:
            self._item.step_began = time.monotonic()
            try:
                awaited = resume(given)
            except StopIteration as done:
                result: Result = done.value
                return result
            finally:
                self._item.held += time.monotonic() - self._item.step_began
            try:
                resume, given = timed.send, (yield awaited)
            except BaseException as error:  # noqa: BLE001 - any exception is the coroutine's
                resume, given = timed.throw, error


class _Worker(Generic[Item]):
    """A task, its current item, and whether it was abandoned."""

    __slots__ = ("abandoned", "discounted", "held", "item", "started_at", "task")

    def __init__(self) -> None:
        self.task: asyncio.Task[None] | None = None
        self.item: Item | None = None
        self.abandoned = False
        self.begin()

    def begin(self) -> None:
        """Start the clock for an item."""
        self.started_at = time.monotonic()
        self.discounted = 0.0
        """Seconds during which others have blocked the event loop."""
        self.held = 0.0
        """How long its item had blocked the loop at the last check."""

    def discount(self, since: float, now: float) -> None:
        """Deduct the time since `since`, when the loop did not run, except for what its own item
        blocked."""
        if self.item is not None:
            own, self.held = self.item.held - self.held, self.item.held
            self.discounted += max(0.0, now - max(since, self.started_at) - own)

    def runs_longer_than(self, seconds: float, now: float) -> bool:
        """Return whether its item has run for longer, not counting time blocked by others."""
        return self.item is not None and now - self.started_at - self.discounted > seconds


class Workers(Generic[Item]):
    """A pool of `count` tasks that run items in order of arrival."""

    def __init__(
        self,
        count: int,
        name: str,
        work: Callable[[Item], Awaitable[None]],
        longest: Callable[[float], None],
        ended_late: Callable[[], None] = lambda: None,
    ) -> None:
        self._name = name
        self._work = work
        self._longest = longest
        self._ended_late = ended_late
        self._most_seconds = 0.0
        self._started = 0
        self._loop = asyncio.get_running_loop()
        self._items: asyncio.Queue[Item] = asyncio.Queue()
        self._workers: set[_Worker[Item]] = set()
        self._stopped = False
        self._next_look = float("inf")
        for _ in range(count):
            self._start_one()

    def put(self, item: Item) -> None:
        """Run an item as soon as a task is free."""
        self._items.put_nowait(item)

    def drop_waiting(self) -> list[Item]:
        """Take back the items that no task has started."""
        return [self._items.get_nowait() for _ in range(self._items.qsize())]

    def abandon_overdue(self, seconds: float, every: float) -> list[tuple[Item, str]]:
        """Abandon items that have run for longer than `seconds`: cancel their tasks and start new
        ones.

        Time during which the event loop was blocked only counts for the item that blocked it.
        """
        overdue: list[tuple[Item, str]] = []
        now = time.monotonic()
        due, self._next_look = self._next_look, now + every
        for worker in list(self._workers):
            worker.discount(due, now)
            item = worker.item
            if item is not None and worker.runs_longer_than(seconds, now):
                overdue.append((item, stack_of(worker.task)))
                worker.abandoned = True
                self._workers.discard(worker)
                self._start_one()
                if worker.task is not None:
                    worker.task.cancel()
        return overdue

    def stop(self) -> None:
        """Cancel all tasks, including running handlers."""
        self._stopped = True
        for worker in self._workers:
            if worker.task is not None:
                worker.task.cancel()

    def _start_one(self) -> None:
        self._started += 1
        worker: _Worker[Item] = _Worker()
        worker.task = self._loop.create_task(
            self._run(worker), name=f"{self._name}-{self._started}"
        )
        worker.task.add_done_callback(lambda _: self._left(worker))
        self._workers.add(worker)

    async def _run(self, worker: _Worker[Item]) -> None:
        in_a_row = 0
        while not worker.abandoned:
            if self._items.empty() or in_a_row >= _IN_A_ROW:
                in_a_row = 0
                await asyncio.sleep(0)
            item = await self._items.get()
            in_a_row += 1
            worker.begin()
            worker.item = item
            try:
                await self._work(item)
                self._finished(worker, time.monotonic() - worker.started_at)
            finally:
                worker.item = None

    def _finished(self, worker: _Worker[Item], seconds: float) -> None:
        if worker.abandoned:
            logger.warning(
                "an abandoned handler returned after %.1f s; its result is dropped",
                seconds,
            )
        elif seconds > self._most_seconds:
            self._most_seconds = seconds
            self._longest(seconds)

    def _left(self, worker: _Worker[Item]) -> None:
        """Handle the end of a task. If it was cancelled from outside, start another one, unless
        everything in the loop is ending now."""
        if worker.abandoned:
            self._ended_late()
        if worker in self._workers:
            self._workers.discard(worker)
            self._loop.call_later(_A_MOMENT, lambda: None if self._stopped else self._start_one())


def stack_of(task: asyncio.Task[Result] | None) -> str:
    """Return where a task is suspended, innermost frame last. The task itself only knows its
    outermost frame."""
    frames: list[tuple[FrameType, int]] = []
    waiting: object = task.get_coro() if task is not None else None
    while waiting:
        frame = getattr(waiting, "cr_frame", None) or getattr(waiting, "gi_frame", None)
        if isinstance(frame, FrameType):
            frames.append((frame, frame.f_lineno))
        waiting = (
            getattr(waiting, "cr_await", None)
            or getattr(waiting, "gi_yieldfrom", None)
            or (isinstance(frame, FrameType) and frame.f_locals.get("timed"))
        )
    return "".join(traceback.StackSummary.extract(iter(frames)).format())
