"""Counts messages that are published but not settled yet; shared by both shells.

A message is in flight from its publish until the broker has confirmed or refused it, or until its
connection is lost. Each shell waits in its own way; the counts, and the check for a stall, are
here.
"""

import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Generic, TypeVar

from redrive.errors import RedriveError
from redrive.pubsub.confirms import Outgoing
from redrive.pubsub.reports import PublishReport


class InFlight:
    """Counts messages in flight, and wakes threads or tasks that wait for room."""

    def __init__(
        self,
        lock: AbstractContextManager[object],
        wake: Callable[[], object],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.lock = lock
        self.count = 0
        """Messages in flight."""
        self._wake = wake
        self._clock = clock
        self._awaited = 0
        self._progress_at = clock()

    def add(self, count: int) -> None:
        """Count messages that are about to be sent."""
        with self.lock:
            if not self.count:
                self._progress_at = self._clock()
            self.count += count

    def settle(self, count: int = 1) -> None:
        """Count messages as settled, whatever the result."""
        with self.lock:
            self.count -= count
            self._progress_at = self._clock()
            if self.count < self._awaited:
                self._wake()

    def is_stalled(self, timeout: float) -> bool:
        """Check whether messages are in flight and none was settled for `timeout` seconds."""
        return self.count > 0 and self._seconds_left(timeout) <= 0

    def _await(self, count: int) -> None:
        """Ask to be woken once a quarter of the awaited messages is settled, not for each: a
        wake-up costs more than a message."""
        self._awaited = max(1, count * 3 // 4)

    def _is_awaited(self) -> bool:
        return self.count >= self._awaited

    def _seconds_left(self, timeout: float) -> float:
        return self._progress_at + timeout - self._clock()


class ThreadInFlight(InFlight):
    """Messages in flight that a thread waits for."""

    def __init__(self) -> None:
        self._condition = threading.Condition()
        super().__init__(self._condition, self._condition.notify)

    def wait_until_below(self, count: int, timeout: float, at_most: float = float("inf")) -> bool:
        """Wait until fewer than `count` are in flight; return False if that takes too long."""
        with self.lock:
            if self.count < count:
                return True
            end = time.monotonic() + at_most
            self._await(count)
            while self._is_awaited():
                left = min(self._seconds_left(timeout), end - time.monotonic())
                if left <= 0:
                    break
                self._condition.wait(left)
            self._awaited = 0
            return self.count < count


Flight = TypeVar("Flight", bound=InFlight)


class BulkTicket(Generic[Flight]):
    """Progress of one `publish_many` call."""

    def __init__(self, report: PublishReport, mandatory: bool, in_flight: Flight) -> None:
        self.in_flight = in_flight
        self._report = report
        self._mandatory = mandatory
        self._open: dict[Outgoing, int] = {}
        self._unrouted: set[str] = set()

    def add(self, batch: list[tuple[int, Outgoing]]) -> None:
        """Count messages, each with its position, that are about to be sent."""
        with self.in_flight.lock:
            self._open.update((outgoing, position) for position, outgoing in batch)
            self.in_flight.add(len(batch))

    def settle(self, outgoing: Outgoing, error: RedriveError | None) -> None:
        """Record the result of a message, unless it was withdrawn before."""
        with self.in_flight.lock:
            position = self._open.pop(outgoing, None)
            if position is None:
                return
            if self._report.note(outgoing.message_id, position, error, self._mandatory):
                self._unrouted.add(outgoing.routing_key)
            self.in_flight.settle()

    def take_unrouted(self) -> set[str]:
        """Return the routing keys of messages that reached no queue since the last call."""
        with self.in_flight.lock:
            unrouted, self._unrouted = self._unrouted, set()
        return unrouted

    def withdraw(self, error_of: Callable[[Outgoing], RedriveError]) -> None:
        """Settle everything that is still open as failed."""
        with self.in_flight.lock:
            for outgoing, position in self._open.items():
                outgoing.withdrawn = True
                self._report.note(
                    outgoing.message_id, position, error_of(outgoing), self._mandatory
                )
            self.in_flight.settle(len(self._open))
            self._open.clear()
