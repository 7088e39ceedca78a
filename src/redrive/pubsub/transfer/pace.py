"""How full the queue may be that messages are sent to."""

import contextlib
import time
from collections.abc import Callable

from redrive.errors import BrokerUnavailable, ConfigurationError, PermissionDenied
from redrive.pubsub.blocking.connection import Connector
from redrive.pubsub.blocking.declarer import Declarer, declaring

_BETWEEN_LOOKS = 0.25

DepthOf = Callable[[str], int | None]
"""Tells how many messages of a queue are ready; None where there is no such queue."""


class Pace:
    """Messages are sent only while the queue that they go to has fewer than so many ready.

    What is on its way when the queue is asked may be counted by it or not: it takes its room
    either way, so that the queue never has more by this run's doing.
    """

    def __init__(
        self,
        most: int | None,
        depth: DepthOf,
        patience: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._most = most
        self._depth = depth
        self._patience = patience
        self._clock = clock
        self._left: dict[str, int] = {}
        self._asked_at: dict[str, float] = {}
        self._silent_since: float | None = None

    def has_room(self, queue: str, in_flight: int) -> bool:
        """Whether one more may be sent to a queue now."""
        if self._most is None:
            return True
        now = self._clock()
        asked_at = self._asked_at.get(queue)
        if asked_at is None or now - asked_at >= _BETWEEN_LOOKS:
            self._asked_at[queue] = now
            self._left[queue] = self._room(queue, self._most - in_flight, now)
        return self._left[queue] > 0

    def sent(self, queue: str) -> None:
        """One more goes to a queue."""
        if self._most is not None:
            self._left[queue] -= 1

    def _room(self, queue: str, most: int, now: float) -> int:
        try:
            depth = self._depth(queue)
        except BrokerUnavailable:
            if self._silent_since is None:
                self._silent_since = now
            if now - self._silent_since >= self._patience:
                raise
            return 0
        self._silent_since = None
        # A queue that is gone refuses what is sent to it, which is told of each message.
        return most - (depth or 0)


class DepthProbe:
    """Asks queues how much is in them, on a connection of its own that is kept between questions,
    and made anew after it was lost."""

    def __init__(self, connector: Connector) -> None:
        self._connector = connector
        self._open = contextlib.ExitStack()
        self._declarer: Declarer | None = None

    def depth(self, queue: str) -> int | None:
        """How many messages of a queue are ready; None where there is no such queue.

        Source: RabbitMQ 4.3.6 lets nobody look at a queue that they have no right on; 3.10.8 and
        4.0.5 let everybody.
        """
        try:
            if self._declarer is None:
                self._declarer = self._open.enter_context(declaring(self._connector))
            depth = self._declarer.depth(queue)
        except PermissionDenied as error:
            raise ConfigurationError(
                f"this user may not see how many messages queue {queue!r} has",
                "Give a right on the queue, or requeue at a rate: leave out `pace_by_depth`.",
            ) from error
        except Exception as error:
            self._forget(error)
            raise
        return None if depth is None else depth.messages

    def close(self) -> None:
        """Closes the connection."""
        self._declarer = None
        self._open.close()

    def _forget(self, error: Exception) -> None:
        """Has the context of the connection see why it ends, and raise that as an error of ours."""
        self._declarer = None
        self._open.__exit__(type(error), error, error.__traceback__)


def check_pace(most: int | None, *, via: bool) -> None:
    """Checks that messages can be sent by the depth of their queue."""
    if most is not None and most < 1:
        raise ConfigurationError(
            f"no message can be sent while a queue has fewer than {most:,}",
            "Give 1 or more to `pace_by_depth`.",
        )
    if most is not None and via:
        raise ConfigurationError(
            "messages that go by their first exchange can't be paced by a queue's depth: the "
            "queues that get them are not known",
            "Leave out `via` or `pace_by_depth`; a rate can be given with both.",
        )
