"""A handler that keeps the event loop from running is told of, and nothing else is."""

import asyncio
import gc
import inspect
import logging
import sys
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from types import FrameType

import pytest

from redrive import AsyncSubscriber, Message, Publisher
from redrive.pubsub.aio import loop_watch
from redrive.pubsub.aio.loop_watch import stack_of_handler, watch_of_loop
from redrive.testing import MemoryBroker
from waiting import DEADLINE, wait_until

WARNING = "blocked the event loop"


class Heard(logging.Handler):
    """What redrive has logged, heard by any thread at once."""

    def __init__(self) -> None:
        super().__init__()
        self.warned = threading.Event()
        self.texts: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.texts.append(record.getMessage())
        if WARNING in self.texts[-1]:
            self.warned.set()


@pytest.fixture
def heard(monkeypatch: pytest.MonkeyPatch) -> Iterator[Heard]:
    monkeypatch.setattr(loop_watch, "LONGEST_STANDSTILL", 0.2)
    monkeypatch.setattr(loop_watch, "_BETWEEN_BEATS", 0.02)
    # A machine that is busy for longer must not hide what a test waits for.
    monkeypatch.setattr(loop_watch, "_IN_TIME", 1000.0)
    handler = Heard()
    logging.getLogger("redrive").addHandler(handler)
    wait_until(lambda: not watchers(), "nobody watches any more what a test before has watched")
    yield handler
    logging.getLogger("redrive").removeHandler(handler)


def watchers() -> list[threading.Thread]:
    """The threads that watch a loop."""
    return [one for one in threading.enumerate() if one.name == "redrive-loop-watch"]


def handled(handle: Callable[[], object], times: int = 1) -> None:
    """Has a handler of an event loop do this, once for each message."""

    async def service() -> None:
        done = asyncio.Semaphore(0)
        subscriber = AsyncSubscriber(broker.url, "shop@orders", ["order.*"])

        @subscriber.handler
        async def on_order(message: Message) -> None:
            handle()
            done.release()

        async with subscriber:
            await asyncio.to_thread(publish)
            for _ in range(times):
                await asyncio.wait_for(done.acquire(), DEADLINE)

    def publish() -> None:
        with Publisher(broker.url) as publisher:
            for _ in range(times):
                publisher.publish("socks", "order.paid")

    with MemoryBroker(real_time=True) as broker:
        asyncio.run(service())


def test_it_is_told_with_the_place_where_the_handler_is(heard: Heard) -> None:
    def compute() -> None:
        assert heard.warned.wait(DEADLINE)

    handled(compute)
    (told,) = (text for text in heard.texts if WARNING in text)

    assert "in on_order" in told
    assert "in compute" in told
    assert "asyncio.to_thread" in told
    assert "handler_run.py" not in told


def test_it_is_told_once_a_minute_at_most(heard: Heard) -> None:
    def compute() -> None:
        assert heard.warned.wait(DEADLINE)
        time.sleep(0.5)  # however long this is: there is nothing to be missed

    handled(compute, times=3)

    assert sum(WARNING in text for text in heard.texts) == 1


def test_a_loop_that_waits_runs_no_handler() -> None:
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    asyncio.run_coroutine_threadsafe(asyncio.sleep(0), loop).result(DEADLINE)
    frame = sys._current_frames()[thread.ident or 0]
    loop.call_soon_threadsafe(loop.stop)
    thread.join()
    loop.close()

    assert stack_of_handler(frame) is None


def test_a_process_that_stood_still_blames_no_handler(
    heard: Heard, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loop_watch, "_IN_TIME", 0.0)  # whatever it waits for is over too late
    handled(lambda: time.sleep(1))

    assert not heard.warned.is_set()


def test_nobody_watches_once_the_last_subscriber_has_ended(heard: Heard) -> None:
    async def two_users() -> None:
        watch = watch_of_loop()
        watch.enter()
        watch.enter()
        watch.leave()
        assert len(watchers()) == 1
        watch.leave()
        await asyncio.to_thread(wait_until, lambda: not watchers(), "nobody watches")

    asyncio.run(two_users())


def test_a_loop_that_is_closed_is_left(heard: Heard) -> None:
    async def forget() -> None:
        watch_of_loop().enter()

    asyncio.run(forget())
    wait_until(lambda: not watchers(), "nobody watches")


def test_a_loop_that_has_ended_is_not_kept(heard: Heard) -> None:
    async def watched() -> weakref.ref[asyncio.AbstractEventLoop]:
        watch = watch_of_loop()
        watch.enter()
        watch.leave()
        return weakref.ref(asyncio.get_running_loop())

    loop = asyncio.run(watched())

    def is_gone() -> bool:
        gc.collect()
        return loop() is None

    wait_until(is_gone, "nothing holds the loop")


def test_code_outside_of_handlers_is_not_told_of() -> None:
    frame: FrameType | None = inspect.currentframe()

    assert stack_of_handler(frame) is None
    assert stack_of_handler(None) is None
