"""Tasks that run handlers."""

import asyncio
import contextlib

from redrive.pubsub.aio.workers import Workers
from waiting import DEADLINE


class Item:
    held = 0.0
    step_began = 0.0


def test_an_item_that_was_abandoned_is_told_of_when_it_ends() -> None:
    async def run() -> None:
        begun, end, ended_late = asyncio.Event(), asyncio.Event(), asyncio.Event()

        async def work(_: Item) -> None:
            begun.set()
            while not end.is_set():
                with contextlib.suppress(asyncio.CancelledError):  # it goes on all the same
                    await end.wait()

        workers: Workers[Item] = Workers(1, "test", work, lambda _: None, ended_late.set)
        workers.put(Item())
        async with asyncio.timeout(DEADLINE):
            await begun.wait()
            assert len(workers.abandon_overdue(-1, 1)) == 1
            assert not ended_late.is_set()
            end.set()
            await ended_late.wait()
        workers.stop()

    asyncio.run(run())
