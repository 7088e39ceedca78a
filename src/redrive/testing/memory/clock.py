"""The time of a broker in memory: the machine's, or one that stands still until it is turned."""

import time


class Clock:
    """Tells the time in seconds since 1970.

    Args:
        stands_still: whether time passes only by `turn_to`.
    """

    def __init__(self, *, stands_still: bool) -> None:
        self.stands_still = stands_still
        self._began = time.time()
        self._at = time.monotonic()
        self._turned = self._began

    def now(self) -> float:
        """The time."""
        return self._turned if self.stands_still else self._began + time.monotonic() - self._at

    def turn_to(self, moment: float) -> None:
        """Has it be this moment; time never goes back."""
        self._turned = max(self._turned, moment)
