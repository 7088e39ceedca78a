"""Which queues this process takes few messages from now, or none, and why."""

import threading
from collections import Counter
from typing import NamedTuple


class Stop(NamedTuple):
    """Why a subscriber of a queue is stopped.

    Args:
        queue: its main queue.
        reason: `paused`, or the name of what is down.
        note: who has paused it, why, since when and until when; empty if nobody has.
    """

    queue: str
    reason: str
    note: str = ""


class Stops:
    """Counts stopped subscribers; can be used from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts: Counter[Stop] = Counter()

    def add(self, stop: Stop) -> None:
        """Record that a subscriber has stopped."""
        with self._lock:
            self._counts[stop] += 1

    def remove(self, stop: Stop) -> None:
        """Record that it goes on."""
        with self._lock:
            self._counts[stop] -= 1
            if not self._counts[stop]:
                del self._counts[stop]

    def counts(self) -> dict[Stop, int]:
        """Return the number of stopped subscribers."""
        with self._lock:
            return dict(self._counts)


of_this_process = Stops()
