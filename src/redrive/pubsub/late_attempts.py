"""How many handlers of this process still run though their time is up, by queue."""

import threading
from collections import Counter


class LateAttempts:
    """Counts them; from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts: Counter[str] = Counter()

    def add(self, queue: str, change: int) -> None:
        """Count one more, or one less."""
        with self._lock:
            self._counts[queue] += change

    def counts(self) -> dict[str, int]:
        """How many there are, of each queue that has had any."""
        with self._lock:
            return dict(self._counts)


of_this_process = LateAttempts()
