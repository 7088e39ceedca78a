"""How many handlers of this process are still running after their timeout, by queue."""

import threading
from collections import Counter


class LateAttempts:
    """Counts them; can be used from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts: Counter[str] = Counter()

    def add(self, queue: str, change: int) -> None:
        """Change the count for a queue, by 1 or -1."""
        with self._lock:
            self._counts[queue] += change

    def counts(self) -> dict[str, int]:
        """Return the count for each queue that has had any."""
        with self._lock:
            return dict(self._counts)


of_this_process = LateAttempts()
