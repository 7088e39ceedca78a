"""The async queue passes on whatever it is given."""

import asyncio
import inspect
from typing import Any

import pytest

from redrive import FailedQueue
from redrive.failures.aio.async_failed_queue import AsyncFailedQueue

WRAPPED = frozenset({"on_progress", "on_notice", "on_outcome", "cancel"})
"""Callbacks, and an event that another thread waits for: the queue gets what calls them."""


class Recording:
    """A failed queue that notes what it was asked with."""

    def __init__(self) -> None:
        self.given: dict[str, Any] = {}

    def __getattr__(self, name: str) -> Any:
        def ask(*given: Any, **named: Any) -> None:
            signature = inspect.signature(getattr(FailedQueue, name))
            self.given = dict(signature.bind(None, *given, **named).arguments)

        return ask


@pytest.mark.parametrize("name", ["plan", "causes", "query", "snapshot", "discard"])
def test_every_argument_of_a_method_reaches_the_queue(name: str) -> None:
    failed, recording = AsyncFailedQueue("amqp://localhost/", "shop@orders"), Recording()
    failed._blocking = recording  # type: ignore[assignment]
    method = getattr(failed, name)
    names = set(inspect.signature(method).parameters) - WRAPPED
    asyncio.run(method(**{one: f"the {one}" for one in names}))
    assert {one: recording.given.get(one) for one in names} == {one: f"the {one}" for one in names}
