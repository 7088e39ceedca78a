"""Begin messages at most so often. Everything here runs on the connection's thread."""

import math
from collections import deque
from collections.abc import Callable

from redrive.pubsub.work import WorkItem

HELD_SECONDS = 10.0
"""For how many seconds messages are held in advance."""
LONGEST_HOLD = 60.0
"""Seconds that a message may be held for its turn; if turns are rarer, none is taken in between."""

_CATCH_UP = 0.05
"""Seconds of turns that are made up for if they were missed: timers are not exact."""

CallLater = Callable[[float, Callable[[], None]], None]


class Pacer:
    """Hands items to the workers at a rate, and no more of them than handlers run at a time: items
    that wait for a busy handler would begin in a burst.

    Args:
        put: hands an item to the workers.
        width: how many handlers run at a time.
        call_later: runs a function on the connection's thread after some seconds.
        now: the time in seconds, by the monotonic clock.
    """

    def __init__(
        self,
        put: Callable[[WorkItem], None],
        width: int,
        call_later: CallLater,
        now: Callable[[], float],
    ) -> None:
        self._put = put
        self._width = width
        self._call_later = call_later
        self._now = now
        self._items: deque[WorkItem] = deque()
        self._begun: list[WorkItem] = []
        self._next = 0.0
        """When the next item may begin."""
        self._is_timed = False
        self.rate: float | None = None
        """Messages per second; None for no limit, 0 for none until it is known."""

    @property
    def room(self) -> int | None:
        """How many unsettled messages to take at a time; None for no limit."""
        if self.rate is None:
            return None
        if self.rate * LONGEST_HOLD < 1:
            return 1
        return max(math.ceil(self.rate * HELD_SECONDS), 1)

    @property
    def rests(self) -> float:
        """Seconds for which to take no message, because turns are rare; 0 to go on taking them."""
        if self.rate is None or self._items:
            return 0.0
        if not self.rate:
            return math.inf
        wait = self._next - self._now()
        return wait if wait > LONGEST_HOLD else 0.0

    def limit(self, rate: float | None) -> None:
        """Change the rate; the next item begins in its turn by the new one."""
        if rate != self.rate:
            before, self.rate = self.rate, rate
            if rate is None:
                self._begun = []
            self._next = self._now() + (1 / rate if rate and before else 0.0)
            self.pump()

    def put(self, item: WorkItem) -> None:
        """Hand an item to the workers in its turn."""
        self._items.append(item)
        self.pump()

    def drop_waiting(self) -> list[WorkItem]:
        """Remove and return the items that wait for their turn."""
        dropped, self._items = list(self._items), deque()
        return dropped

    def pump(self) -> None:
        """Hand over what may begin now."""
        while self._items and self.rate != 0:
            item = self._items[0]
            if self.rate is not None:
                now = self._now()
                if now < self._next:
                    self._look_again_in(self._next - now)
                    return
                if len(self._begun) >= self._width:
                    return  # `ended` comes when a handler is free
                self._next = max(self._next, now - _CATCH_UP) + 1 / self.rate
                self._begun.append(item)
            self._items.popleft()
            self._put(item)

    def ended(self, item: WorkItem) -> None:
        """Record that an item is done, or was taken back."""
        if item in self._begun:
            self._begun.remove(item)
            self.pump()

    def _look_again_in(self, seconds: float) -> None:
        if self._is_timed:
            return
        self._is_timed = True

        def look() -> None:
            self._is_timed = False
            self.pump()

        self._call_later(seconds, look)
