"""A link of the asyncio shell, without a broker."""

import asyncio
import threading
import time
from collections.abc import Callable

import pytest

from redrive.pubsub.aio import connection
from unit.pubsub.fake_wire import EndListener


def test_a_link_that_is_closed_while_it_declares_ends_after_that(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(connection, "CLOSING_TIME", 60.0)
    declaring, declared = threading.Event(), threading.Event()

    def declare() -> None:
        declaring.set()
        time.sleep(0.2)
        declared.set()

    assert asyncio.run(closed_while(declaring, declare))
    assert declared.is_set()


def test_a_link_does_not_wait_for_ever_for_a_declaration(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "CLOSING_TIME", 0.1)
    declaring, hangs = threading.Event(), threading.Event()

    def declare() -> None:
        declaring.set()
        hangs.wait()

    assert asyncio.run(closed_while(declaring, declare))
    hangs.set()


async def closed_while(declaring: threading.Event, declare: Callable[[], None]) -> bool:
    """Whether a link ends that is closed while `declare` runs."""
    listener = EndListener()
    link = connection.Link(
        connection.Connector("amqp://guest:guest@127.0.0.1:1/", "test"), listener, prepare=declare
    )
    link.start()
    await asyncio.to_thread(declaring.wait, 60)
    link.close()
    return await asyncio.to_thread(listener.has_ended.wait, 60)
