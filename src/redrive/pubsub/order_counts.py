"""What ordered queues of this process wait for, by queue, for metrics."""

import threading
from typing import NamedTuple, Protocol


class OrderCounts(NamedTuple):
    """What an ordered queue waits for.

    Args:
        blocked: number of keys that wait for a retry.
        behind: number of messages that wait behind these.
        parked: number of keys whose messages are set aside behind one that was given up.
        keyless: number of messages without a key so far.
    """

    blocked: int = 0
    behind: int = 0
    parked: int = 0
    keyless: int = 0


class Ordered(Protocol):
    """A running subscriber of an ordered queue."""

    @property
    def queue(self) -> str:
        """The main queue."""

    @property
    def order_counts(self) -> OrderCounts:
        """What it waits for."""


class OrderedQueues:
    """The running subscribers of ordered queues; can be used from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._running: list[Ordered] = []

    def add(self, one: Ordered) -> None:
        """Add a subscriber that starts."""
        with self._lock:
            self._running.append(one)

    def remove(self, one: Ordered) -> None:
        """Remove a subscriber that has ended."""
        with self._lock:
            if one in self._running:
                self._running.remove(one)

    def counts(self) -> dict[str, OrderCounts]:
        """Return what each queue waits for; the sum, if several subscribers have it."""
        with self._lock:
            running = list(self._running)
        found: dict[str, OrderCounts] = {}
        for one in running:
            before = found.get(one.queue, OrderCounts())
            found[one.queue] = OrderCounts(*map(sum, zip(before, one.order_counts, strict=True)))
        return found


of_this_process = OrderedQueues()
