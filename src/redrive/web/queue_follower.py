"""What is known of the queues just now: their depth, and how a feed of failures goes."""

import threading
from dataclasses import dataclass
from datetime import UTC, datetime

from redrive.failures.depth_watch import Reading
from redrive.failures.failure_feed import FeedState
from redrive.failures.follower import Follower
from redrive.topology.names import failed_queue
from redrive.web.console_settings import ConsoleSettings
from redrive.web.html import moment_in_words
from redrive.web.page_request import QueuePlace


@dataclass(frozen=True, slots=True)
class LiveState:
    """What is known of a queue just now.

    Args:
        depth: how many messages it has; None where nobody knows.
        difference: how many more that is than are shown; None where nobody knows.
        differs_since: since when there is a difference.
        is_held: whether somebody looks at it, so that its depth is not known.
        away_since: since when the broker is away; None while it is there.
        away_because: what it was last heard of it.
        feed: how what fails is followed.
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
        """How the queue stands now, beside what a page shows of it."""
        if self.away_since is not None:
            return (
                f"The broker has been away since {moment_in_words(self.away_since)} UTC: "
                f"{self.away_because}. What is shown is as old as it says."
            )
        if self.is_held:
            return "Somebody is looking at the queue: how many it has is not known."
        if self.depth is None:
            return "How many it has now is not known."
        if self.difference is None:
            return f"It has {self.depth:,} now."
        if not self.difference:
            return "The queue has as many now."
        which = "more" if self.difference > 0 else "fewer"
        return (
            f"The queue has {self.depth:,} now, {abs(self.difference):,} {which} than are shown, "
            f"since {moment_in_words(self.differs_since)} UTC."
        )


class QueueFollower:
    """Watches the queues that are shown, and follows what fails. It begins with the first page."""

    def __init__(self, settings: ConsoleSettings) -> None:
        self._follower = Follower(
            settings.url, settings.family, keeps_bodies=not settings.hide_bodies
        )
        self._lock = threading.Lock()
        self._differs: dict[QueuePlace, datetime] = {}

    def state(self, place: QueuePlace, shown: int | None, counted: int | None) -> LiveState:
        """What is known of a queue."""
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
        """Whether AMQP has told the depth of a queue."""
        reading = self._reading(place)
        return reading is not None and reading.all is not None

    def _reading(self, place: QueuePlace) -> Reading | None:
        return self._follower.reading(place.name if place.literal else failed_queue(place.name))

    def close(self) -> None:
        """Ends what it began."""
        self._follower.close()

    def _since(self, place: QueuePlace, difference: int | None) -> datetime | None:
        with self._lock:
            if not difference:
                self._differs.pop(place, None)
                return None
            return self._differs.setdefault(place, datetime.now(UTC))


def _is_held(reading: Reading | None) -> bool:
    return reading is not None and reading.depth is not None and bool(reading.depth.consumers)
