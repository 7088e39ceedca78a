"""How fast messages may be sent."""

import time
from collections.abc import Callable

BATCH = 100
_BATCHES_A_SECOND = 10


class RateLimit:
    """At most so many messages a second, evenly."""

    def __init__(self, rate: float | None, clock: Callable[[], float] = time.monotonic) -> None:
        self._rate = rate
        self._clock = clock
        self._began: float | None = None
        self._sent = 0
        self.batch = BATCH if rate is None else max(1, min(BATCH, int(rate / _BATCHES_A_SECOND)))
        """How many are sent together."""

    def pause(self) -> float:
        """The seconds until the next one may be sent; 0 for now."""
        if self._rate is None:
            return 0.0
        now = self._clock()
        if self._began is None:
            self._began = now
        due = self._began + self._sent / self._rate
        if now - due > 1.0:
            # What could not be sent in time is not made up for: the receiver is to get no more than
            # the rate.
            self._began, self._sent = now, 0
            return 0.0
        return max(0.0, due - now)

    def sent(self, count: int) -> None:
        """So many more were sent."""
        self._sent += count
