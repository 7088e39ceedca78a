"""What the blocking shell offers, the asyncio shell offers, by the same names with the same
arguments."""

import inspect

import pytest

from redrive import (
    AsyncFailedQueue,
    AsyncPublisher,
    AsyncSubscriber,
    FailedQueue,
    Publisher,
    Subscriber,
)

WAITS = {("stopped", "timeout")}
"""Arguments that wait, which on an event loop `await subscriber.wait()` does."""
SHELLS = [
    (FailedQueue, AsyncFailedQueue),
    (Publisher, AsyncPublisher),
    (Subscriber, AsyncSubscriber),
]


def offered(shell: type) -> dict[str, list[tuple[str, object, object]]]:
    """The public methods of a class, and the arguments of each: name, default and kind."""
    return {
        name: [
            (argument.name, argument.default, argument.kind)
            for argument in inspect.signature(method).parameters.values()
            if (name, argument.name) not in WAITS
        ]
        for name, method in inspect.getmembers(shell, inspect.isroutine)
        if name == "__init__" or not name.startswith("_")
    }


@pytest.mark.parametrize(
    ("blocking", "asynchronous"), SHELLS, ids=["failed queue", "publisher", "subscriber"]
)
def test_both_shells_offer_the_same(blocking: type, asynchronous: type) -> None:
    assert offered(asynchronous) == offered(blocking)
