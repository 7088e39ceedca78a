"""Threads that run handlers: as many as are needed, and no more than were asked for."""

import queue
import threading
from collections.abc import Iterator

import pytest

from redrive.pubsub.blocking.workers import Workers
from waiting import DEADLINE, wait_until

NAME = "redrive-test-workers"


class Pool:
    """Workers whose items run until a test ends them."""

    def __init__(self, count: int) -> None:
        self.begun: queue.SimpleQueue[str] = queue.SimpleQueue()
        self.ends: dict[str, threading.Event] = {}
        self.workers: Workers[str] = Workers(count, NAME, self._work, lambda _: None)

    def _work(self, item: str) -> None:
        self.begun.put(item)
        self.ends[item].wait(DEADLINE)

    def put(self, item: str) -> None:
        """Has an item done."""
        self.ends[item] = threading.Event()
        self.workers.put(item)

    def wait_for_begun(self) -> str:
        """The item that has begun next."""
        return self.begun.get(timeout=DEADLINE)


def threads() -> int:
    """How many threads the workers have."""
    return sum(one.name.startswith(NAME) for one in threading.enumerate())


@pytest.fixture
def pool() -> Iterator[Pool]:
    pool = Pool(2)
    yield pool
    for end in pool.ends.values():
        end.set()
    pool.workers.stop()
    wait_until(lambda: not threads(), "all threads have left")


def test_no_thread_is_there_before_an_item_comes(pool: Pool) -> None:
    assert threads() == 0


def test_a_thread_that_is_free_takes_the_next_item(pool: Pool) -> None:
    pool.put("first")
    assert pool.wait_for_begun() == "first"
    pool.ends["first"].set()
    wait_until(lambda: not pool.workers._under_way, "it is free")
    pool.put("second")
    assert pool.wait_for_begun() == "second"
    assert threads() == 1


def test_another_is_started_when_none_is_free(pool: Pool) -> None:
    pool.put("first")
    pool.put("second")
    assert {pool.wait_for_begun(), pool.wait_for_begun()} == {"first", "second"}
    assert threads() == 2


def test_no_more_are_started_than_were_asked_for(pool: Pool) -> None:
    for item in ("first", "second", "third"):
        pool.put(item)
    assert {pool.wait_for_begun(), pool.wait_for_begun()} == {"first", "second"}
    assert threads() == 2
    assert pool.workers.drop_waiting() == ["third"]


def test_a_thread_that_ends_without_having_been_told_to_is_replaced(
    caplog: pytest.LogCaptureFixture,
) -> None:
    done: queue.SimpleQueue[str] = queue.SimpleQueue()

    def work(item: str) -> None:
        if item == "exit":
            raise SystemExit
        done.put(item)

    workers: Workers[str] = Workers(1, NAME, work, lambda _: None)
    for item in ("exit", "exit", "last"):
        workers.put(item)
    assert done.get(timeout=DEADLINE) == "last"
    wait_until(lambda: threads() == 1, "those that ended are gone")
    assert caplog.text.count("another takes its place") == 2
    workers.stop()
    wait_until(lambda: not threads(), "all threads have left")


def test_an_item_that_was_abandoned_is_told_of_when_it_ends() -> None:
    begun, end, ended_late = threading.Event(), threading.Event(), threading.Event()

    def work(_: str) -> None:
        begun.set()
        end.wait(DEADLINE)

    workers: Workers[str] = Workers(1, NAME, work, lambda _: None, ended_late.set)
    workers.put("hangs")
    assert begun.wait(DEADLINE)
    ((item, stack),) = workers.abandon_overdue(-1, 1)
    assert item == "hangs"
    assert "end.wait(DEADLINE)" in stack
    assert not ended_late.is_set()
    end.set()
    assert ended_late.wait(DEADLINE)
    workers.stop()
    wait_until(lambda: not threads(), "all threads have left")
