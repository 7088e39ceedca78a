"""Limit the rate at which messages are sent."""

import time
from collections.abc import Callable

BATCH = 100
_BATCHES_A_SECOND = 10


class RateLimit:
    """A limit of `rate` messages per second, evenly spaced; None for no limit."""

    def __init__(self, rate: float | None, clock: Callable[[], float] = time.monotonic) -> None:
        self._rate = rate
        self._clock = clock
        self._began: float | None = None
        self._sent = 0
        self.batch = BATCH if rate is None else max(1, min(BATCH, int(rate / _BATCHES_A_SECOND)))
        """How many messages are sent together."""

    def pause(self) -> float:
        """Return the seconds until the next message may be sent; 0 for now."""
        if self._rate is None:
            return 0.0
        now = self._clock()
        if self._began is None:
            self._began = now
        due = self._began + self._sent / self._rate
        if now - due > 1.0:
            # Time lost is not made up for: the receiver must never get more than the rate.
            self._began, self._sent = now, 0
            return 0.0
        return max(0.0, due - now)

    def sent(self, count: int) -> None:
        """Count sent messages."""
        self._sent += count
