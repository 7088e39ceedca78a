"""Which queues this process takes no messages from now, and why."""

import threading
from collections import Counter


class Stops:
    """Counts the stopped subscribers of a queue, by reason; can be used from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts: Counter[tuple[str, str]] = Counter()

    def add(self, queue: str, reason: str) -> None:
        """Record that a subscriber has stopped."""
        with self._lock:
            self._counts[queue, reason] += 1

    def remove(self, queue: str, reason: str) -> None:
        """Record that it goes on."""
        with self._lock:
            self._counts[queue, reason] -= 1

    def counts(self) -> dict[tuple[str, str], int]:
        """Return the count for each queue and reason that has had any."""
        with self._lock:
            return dict(self._counts)


of_this_process = Stops()
