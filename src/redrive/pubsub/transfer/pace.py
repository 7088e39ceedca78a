"""Limit sending by the depth of the target queue."""

import contextlib
import time
from collections.abc import Callable

from redrive.errors import BrokerUnavailable, ConfigurationError, PermissionDenied
from redrive.pubsub.blocking.connection import Connector
from redrive.pubsub.blocking.declarer import Declarer, declaring

_BETWEEN_LOOKS = 0.25

DepthOf = Callable[[str], int | None]
"""Returns the number of ready messages of a queue, or None if the queue does not exist."""


class Pace:
    """A limit on sending: at most `most` messages may be ready in the target queue.

    Messages in flight may or may not be in the queue's count, so they are always added. That way
    this run never makes the queue exceed the limit.
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
        """Return whether one more message may be sent to a queue now."""
        if self._most is None:
            return True
        now = self._clock()
        asked_at = self._asked_at.get(queue)
        if asked_at is None or now - asked_at >= _BETWEEN_LOOKS:
            self._asked_at[queue] = now
            self._left[queue] = self._room(queue, self._most - in_flight, now)
        return self._left[queue] > 0

    def sent(self, queue: str) -> None:
        """Count a message sent to a queue."""
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
        # A queue that is gone refuses messages; that is reported for each message.
        return most - (depth or 0)


class DepthProbe:
    """A probe of queue depths on its own connection, which is kept open and renewed after a
    loss."""

    def __init__(self, connector: Connector) -> None:
        self._connector = connector
        self._open = contextlib.ExitStack()
        self._declarer: Declarer | None = None

    def depth(self, queue: str) -> int | None:
        """Return the number of ready messages of a queue, or None if it does not exist.

        Source: RabbitMQ 4.3.6 lets nobody look at a queue without a permission on it; 3.10.8 and
        4.0.5 let everybody.
        """
        try:
            if self._declarer is None:
                self._declarer = self._open.enter_context(declaring(self._connector))
            depth = self._declarer.depth(queue)
        except PermissionDenied as error:
            raise ConfigurationError(
                f"this user may not see how many messages queue {queue!r} has",
                "Grant a permission on the queue, or omit `pace_by_depth` and give a rate.",
            ) from error
        except Exception as error:
            self._forget(error)
            raise
        return None if depth is None else depth.messages

    def close(self) -> None:
        """Close the connection."""
        self._declarer = None
        self._open.close()

    def _forget(self, error: Exception) -> None:
        """Exit the connection's context with the error, so that it raises the matching redrive
        error."""
        self._declarer = None
        self._open.__exit__(type(error), error, error.__traceback__)
