"""Watch current queue depths through AMQP, because the management API is up to five seconds
late."""

import threading
import time
from collections.abc import Collection
from dataclasses import dataclass
from datetime import UTC, datetime

from redrive.errors import PermissionDenied, RedriveError
from redrive.pubsub.blocking.connection import Connector
from redrive.pubsub.blocking.declarer import Declarer, Depth, declaring

_EVERY = 2.0
_SHOWN_FOR = 30.0
"""How many seconds a queue is watched after the last request for it."""
_MOST_QUEUES = 200
_AGAIN_AFTER = 1.0


@dataclass(frozen=True, slots=True)
class Reading:
    """The depth of a queue at a moment.

    Args:
        depth: its ready messages and consumers; None if there is no such queue or access was
            refused.
        at: when it was read.
        problem: why the depth is unknown; empty if it is known.
    """

    depth: Depth | None
    at: datetime
    problem: str = ""

    @property
    def all(self) -> int | None:
        """Number of messages in the queue; None if a consumer may hold some, or if unknown."""
        return None if self.depth is None or self.depth.consumers else self.depth.messages


class DepthWatch:
    """A watch that reads the depths of requested queues every two seconds, on its own connection
    and thread. It touches no messages."""

    def __init__(self, connector: Connector) -> None:
        self._connector = connector
        self._lock = threading.Lock()
        self._asked: dict[str, float] = {}
        self._readings: dict[str, Reading] = {}
        self._thread: threading.Thread | None = None
        self._wanted = threading.Event()
        self._closed = threading.Event()
        self.away_since: datetime | None = None
        """Since when the broker has been unreachable; None if it is reachable."""
        self.away_because = ""

    def reading(self, queue: str) -> Reading | None:
        """Return the last reading of a queue, or None, and watch the queue from now on."""
        with self._lock:
            if queue in self._asked or len(self._asked) < _MOST_QUEUES:
                self._asked[queue] = time.monotonic()
            if self._thread is None and not self._closed.is_set():
                self._thread = threading.Thread(
                    target=self._run, name="redrive-depths", daemon=True
                )
                self._thread.start()
            self._wanted.set()
            return self._readings.get(queue)

    def close(self) -> None:
        """Stop the thread."""
        self._closed.set()
        self._wanted.set()
        if self._thread is not None:
            self._thread.join()

    def _run(self) -> None:
        while not self._closed.is_set():
            self._wanted.wait()
            try:
                with declaring(self._connector) as declarer:
                    while (queues := self._shown()) and not self._closed.is_set():
                        self._read(declarer, queues)
                        self.away_since, self.away_because = None, ""
                        self._closed.wait(_EVERY)
            except RedriveError as error:
                self.away_since = self.away_since or datetime.now(UTC)
                self.away_because = str(error).partition("\n")[0]
                self._closed.wait(_AGAIN_AFTER)

    def _read(self, declarer: Declarer, queues: Collection[str]) -> None:
        for queue in queues:
            try:
                reading = Reading(declarer.depth(queue), datetime.now(UTC))
            except PermissionDenied as error:
                problem = str(error).partition("\n")[0]
                reading = Reading(None, datetime.now(UTC), problem)
            with self._lock:
                self._readings[queue] = reading

    def _shown(self) -> list[str]:
        """Return the recently requested queues; if there are none, clear the event so that the
        connection closes until there are."""
        oldest = time.monotonic() - _SHOWN_FOR
        with self._lock:
            for queue in [one for one, when in self._asked.items() if when < oldest]:
                del self._asked[queue]
                self._readings.pop(queue, None)
            if not self._asked:
                self._wanted.clear()
            return list(self._asked)
