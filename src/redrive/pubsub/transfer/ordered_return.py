"""Returns what several consumers hold to its queue, in its order."""

import contextlib
import threading
import time
from collections.abc import Callable
from queue import Empty, SimpleQueue
from typing import TypeVar

from redrive.errors import RedriveError
from redrive.pubsub.blocking.connection import Connector, Link
from redrive.pubsub.blocking.declarer import Declarer, declaring
from redrive.pubsub.consumer import Consumer

T = TypeVar("T")
Leave = Callable[[Callable[[list[Consumer]], None]], None]

PATIENCE = 60.0
"""Seconds that a broker may take to end a consumer or a channel: thousands of acks may be before
that, and each costs it a search."""
_BACK_WITHIN = 5.0
"""Seconds after which somebody else must have taken what was returned."""
_BETWEEN_LOOKS = 0.005
_QUIET = 0.1


def return_in_order(
    connector: Connector,
    link: Link,
    queue: str,
    leave: Leave,
    ended: threading.Event,
    on_returned: Callable[[int], None] = lambda _: None,
    patience: float = PATIENCE,
) -> bool:
    """Ends consumers, the oldest first, and waits between them until what one held is back.

    A quorum queue puts what is returned behind what was returned before, and before what was never
    taken: its order is kept where all of it is held, and where nothing is. A broker says that a
    channel is closed a moment before its messages are back.

    Args:
        connector: how to connect, to look.
        link: whose connection they are of.
        queue: what they consume.
        leave: cancels them on the link's thread, and says which they are once no more can come to
            any of them.
        ended: set once the link is gone.
        on_returned: told, after each consumer, how many messages it has returned.
        patience: seconds that the broker may take for each answer.

    Returns:
        Whether the broker has taken in every ack.
    """
    consumers: list[Consumer] = _answer(link, ended, leave, patience) or []
    with contextlib.ExitStack() as stack:
        declarer = None
        if len(consumers) > 1:
            with contextlib.suppress(RedriveError):
                declarer = stack.enter_context(declaring(connector))
        for consumer in consumers:
            before = _depth(declarer, queue)
            returned = _answer(link, ended, consumer.return_in_order, patience)
            if returned is None:
                return False
            if before is not None and returned:
                _wait_until_there_are(before + returned, declarer, queue)
            on_returned(returned)
    return bool(consumers)


def _answer(
    link: Link,
    ended: threading.Event,
    ask: Callable[[Callable[[T], None]], None],
    patience: float,
) -> T | None:
    """What is answered on the link's thread; None where that has ended, or takes too long."""
    answers: SimpleQueue[T] = SimpleQueue()
    link.call(lambda: ask(answers.put))
    deadline = time.monotonic() + patience
    while not ended.is_set() and time.monotonic() < deadline:
        with contextlib.suppress(Empty):
            return answers.get(timeout=_QUIET)
    return None


def _wait_until_there_are(count: int, declarer: Declarer | None, queue: str) -> None:
    deadline = time.monotonic() + _BACK_WITHIN
    while (
        (depth := _depth(declarer, queue)) is not None
        and depth < count
        and time.monotonic() < deadline
    ):
        time.sleep(_BETWEEN_LOOKS)


def _depth(declarer: Declarer | None, queue: str) -> int | None:
    """How many messages are ready; None where that can't be told."""
    with contextlib.suppress(RedriveError):
        depth = None if declarer is None else declarer.depth(queue)
        return None if depth is None else depth.messages
    return None
