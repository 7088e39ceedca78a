"""What a publisher's callers wait for while its I/O thread collects the confirms."""

import threading
import time
from collections.abc import Callable

from redrive.errors import RedriveError
from redrive.pubsub.outbox import Outgoing
from redrive.pubsub.report import PublishReport


class Ticket:
    """What `publish` waits for."""

    __slots__ = ("done", "error")

    def __init__(self) -> None:
        self.done = threading.Event()
        self.error: RedriveError | None = None

    def settle(self, _: Outgoing, error: RedriveError | None) -> None:
        """The message is settled."""
        self.error = error
        self.done.set()


class Stream:
    """What `publish_many` waits for: room in the window, and progress."""

    def __init__(self, report: PublishReport, mandatory: bool) -> None:
        self._report = report
        self._mandatory = mandatory
        self._lock = threading.Condition()
        self._open: dict[Outgoing, int] = {}
        self._unheard: set[str] = set()
        self._awaited = 0
        self._progress_at = time.monotonic()

    def add(self, batch: list[tuple[int, Outgoing]]) -> None:
        """These are about to be sent."""
        with self._lock:
            if not self._open:
                self._progress_at = time.monotonic()
            self._open.update((outgoing, position) for position, outgoing in batch)

    def settle(self, outgoing: Outgoing, error: RedriveError | None) -> None:
        """A message is settled."""
        with self._lock:
            position = self._open.pop(outgoing, None)
            if position is None:
                return
            self._progress_at = time.monotonic()
            if self._report.note(outgoing.message_id, position, error, self._mandatory):
                self._unheard.add(outgoing.routing_key)
            if len(self._open) < self._awaited:
                self._lock.notify()

    def wait_until_below(self, count: int, timeout: float) -> bool:
        """Waits until fewer than `count` are unconfirmed; False where nothing was confirmed for `timeout` seconds."""
        with self._lock:
            if len(self._open) < count:
                return True
            # Woken once a quarter of them is through, not for each: a wake-up costs more than a message.
            self._awaited = max(1, count * 3 // 4)
            while len(self._open) >= self._awaited:
                left = self._progress_at + timeout - time.monotonic()
                if left <= 0:
                    return False
                self._lock.wait(left)
            self._awaited = 0
            return True

    def take_unheard(self) -> set[str]:
        """The routing keys, since the last call, that no queue got a message of."""
        with self._lock:
            unheard, self._unheard = self._unheard, set()
        return unheard

    def withdraw(self, error_of: Callable[[Outgoing], RedriveError]) -> None:
        """Settles everything that is still open as failed."""
        with self._lock:
            for outgoing, position in self._open.items():
                outgoing.withdrawn = True
                self._report.note(outgoing.message_id, position, error_of(outgoing), self._mandatory)
            self._open.clear()
