"""Check which of a job's messages are back in their dead-letter queue, if only a look shows it.

Messages that arrive by the default exchange can't be copied to another queue.
"""

import time
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Self

from redrive.errors import RedriveError
from redrive.failures.message.cause import Cause, cause_of
from redrive.failures.message.failed_message import FailedMessage
from redrive.topology.outcome_events import OutcomeTotals

_BETWEEN_DEPTHS = 0.5
_SHORTEST_REST, _LONGEST_REST = 1.0, 60.0
"""Seconds between two looks, which hold the queue; doubled after each look that found nothing new.
"""


class ReturnChecks:
    """Looks into a queue whenever it is deeper than expected; a context manager, like `Watch`."""

    @property
    def causes(self) -> Counter[Cause]:
        """Number of messages that had come back at the last look, by cause; safe to read from any
        thread."""
        return self._causes

    sees_while_sending = False
    """A look would have to wait until sending ends, since sending holds the queue."""

    def __init__(
        self, job: str, depth: Callable[[], int], browse: Callable[[], Iterable[FailedMessage]]
    ) -> None:
        self._job = job
        self._depth = depth
        self._browse = browse
        self._expected = 0
        self._came_back = 0
        self._causes: Counter[Cause] = Counter()
        self._rest = 0.0
        self._next = 0.0

    @property
    def standing(self) -> OutcomeTotals:
        """The outcomes known at the last look; safe to read from any thread."""
        return OutcomeTotals(0, self._came_back, self._came_back)

    def begin(self) -> None:
        """Prepare for messages about to be sent."""
        self._expected = self._depth()

    def sent(self, count: int) -> None:
        """Lower the expected depth by the number of messages sent."""
        self._expected -= count
        self._rest = _SHORTEST_REST
        self._next = 0.0

    def look(self) -> OutcomeTotals:
        """Look if the queue is deeper than expected and the last look was a while ago; return the
        outcomes.

        If the broker doesn't answer, it is asked again next time.
        """
        if time.monotonic() >= self._next:
            self._next = time.monotonic() + _BETWEEN_DEPTHS
            try:
                self._look()
            except RedriveError:
                return self.standing
        return self.standing

    def _look(self) -> None:
        depth = self._depth()
        if depth <= self._expected:
            return
        causes: Counter[Cause] = Counter()
        for message in self._browse():
            if message.job == self._job:
                causes[cause_of(message)] += 1
        came_back, self._causes = causes.total(), causes
        is_new = came_back != self._came_back
        self._rest = _SHORTEST_REST if is_new else min(2 * self._rest, _LONGEST_REST)
        self._next = time.monotonic() + self._rest
        self._came_back, self._expected = came_back, depth

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Do nothing: no resources are held between two looks."""
