"""Objects that a thread waits on while the connection's thread collects the confirms."""

import threading
import time

from redrive.errors import RedriveError
from redrive.pubsub.confirms import Outgoing
from redrive.pubsub.in_flight import InFlight


class Ticket:
    """The confirm of one message that `publish` waits for."""

    __slots__ = ("done", "error")

    def __init__(self) -> None:
        self.done = threading.Event()
        self.error: RedriveError | None = None

    def settle(self, _: Outgoing, error: RedriveError | None) -> None:
        """Note the outcome of the message, and wake the waiting thread."""
        self.error = error
        self.done.set()


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
