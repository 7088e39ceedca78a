"""The live state of the queues: their depths, and the state of the feed of failures."""

import threading
from dataclasses import dataclass
from datetime import UTC, datetime

from redrive.failures.queue.depth_watch import Reading
from redrive.failures.queue.failure_feed import FeedState
from redrive.failures.queue.follower import Follower
from redrive.topology.names import failed_queue
from redrive.web.console_settings import ConsoleSettings
from redrive.web.html import moment_in_words
from redrive.web.page_request import QueuePlace


@dataclass(frozen=True, slots=True)
class LiveState:
    """The live state of a queue.

    Args:
        depth: how many messages it has; None if unknown.
        difference: how many more it has than the page shows; None if unknown.
        differs_since: since when they differ.
        is_held: whether a look holds its messages, so that its depth is unknown.
        away_since: since when the broker is unreachable; None while it is reachable.
        away_because: the last error from the broker.
        feed: the state of the feed of failures.
    """

    depth: int | None
    difference: int | None
    differs_since: datetime | None
    is_held: bool
    away_since: datetime | None
    away_because: str
    feed: FeedState

    @property
    def in_words(self) -> str:
        """The queue's current state compared with the page, as a sentence."""
        if self.away_since is not None:
            return (
                f"The broker has been unreachable since {moment_in_words(self.away_since)}: "
                f"{self.away_because}. This page may be out of date."
            )
        if self.is_held:
            return "The queue is being scanned, so its current size is unknown."
        if self.depth is None:
            return "The queue's current size is unknown."
        if self.difference is None:
            return f"The queue has {self.depth:,} now."
        if not self.difference:
            return "The queue has the same number now."
        which = "more" if self.difference > 0 else "fewer"
        return (
            f"The queue has {self.depth:,} now, {abs(self.difference):,} {which} than shown here, "
            f"since {moment_in_words(self.differs_since)}."
        )


class QueueFollower:
    """A watcher of the queues that pages show, which also follows new failures."""

    def __init__(self, settings: ConsoleSettings) -> None:
        self._follower = Follower(
            settings.url, settings.family, keeps_bodies=not settings.hide_bodies
        )
        self._lock = threading.Lock()
        self._differs: dict[QueuePlace, datetime] = {}

    def state(self, place: QueuePlace, shown: int | None, counted: int | None) -> LiveState:
        """Return the live state of a queue."""
        if not place.literal:
            self._follower.want(place.name)
        self._follower.start()
        reading = self._reading(place)
        depth = counted if reading is None or reading.all is None else reading.all
        difference = None if depth is None or shown is None else depth - shown
        return LiveState(
            depth,
            difference,
            self._since(place, difference),
            _is_held(reading),
            self._follower.away_since,
            self._follower.away_because,
            self._follower.feed,
        )

    def knows_depth(self, place: QueuePlace) -> bool:
        """Return whether AMQP has reported the depth of a queue."""
        reading = self._reading(place)
        return reading is not None and reading.all is not None

    def _reading(self, place: QueuePlace) -> Reading | None:
        return self._follower.reading(place.name if place.literal else failed_queue(place.name))

    def close(self) -> None:
        """Stop watching."""
        self._follower.close()

    def _since(self, place: QueuePlace, difference: int | None) -> datetime | None:
        with self._lock:
            if not difference:
                self._differs.pop(place, None)
                return None
            return self._differs.setdefault(place, datetime.now(UTC))


def _is_held(reading: Reading | None) -> bool:
    return reading is not None and reading.depth is not None and bool(reading.depth.consumers)
