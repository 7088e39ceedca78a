"""What the blocking shell offers, the asyncio shell offers, by the same names with the same
arguments."""

import inspect

import pytest

from redrive import (
    AsyncFailedQueue,
    AsyncJob,
    AsyncPublisher,
    AsyncSubscriber,
    FailedQueue,
    Job,
    Publisher,
    Subscriber,
)

WAITS = {("stopped", "timeout")}
"""Arguments that wait, which on an event loop `await subscriber.wait()` does."""
MADE_OF = frozenset({"written_down"})
"""How a job is found; `FailedQueue.job` and `AsyncFailedQueue.job` do it."""
SHELLS = [
    (FailedQueue, AsyncFailedQueue),
    (Job, AsyncJob),
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
        if (name == "__init__" and shell not in (Job, AsyncJob))
        or not (name.startswith("_") or name in MADE_OF)
    }


@pytest.mark.parametrize(
    ("blocking", "asynchronous"), SHELLS, ids=["failed queue", "job", "publisher", "subscriber"]
)
def test_both_shells_offer_the_same(blocking: type, asynchronous: type) -> None:
    assert offered(asynchronous) == offered(blocking)
