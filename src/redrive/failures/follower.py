"""What is known of a broker's failed queues just now, for whoever shows them: their depths, what
fails, and what becomes of what was requeued. No message is touched for it."""

import threading
from datetime import datetime

from redrive.failures.depth_watch import DepthWatch, Reading
from redrive.failures.failure_feed import FeedState
from redrive.failures.feed_writer import FeedWriter
from redrive.failures.index import Index, index_of
from redrive.pubsub.blocking.connection import Connector, default_name
from redrive.pubsub.service_connection import Address
from redrive.topology.names import ExchangeFamily


class Follower:
    """Follows one broker, on threads of its own."""

    def __init__(
        self,
        url: Address,
        family: ExchangeFamily,
        index: Index | None = None,
        *,
        keeps_bodies: bool = True,
    ) -> None:
        self._depths = DepthWatch(Connector(url, default_name("depths")))
        connector = Connector(url, default_name("failures"))
        index = index_of(connector.url, keeps_bodies=keeps_bodies) if index is None else index
        self._feed = None if index is None else FeedWriter(index, connector, family)
        self._lock = threading.Lock()
        self._has_begun = False
        self._is_closed = False

    @property
    def feed(self) -> FeedState:
        """How what fails is followed."""
        return FeedState() if self._feed is None else self._feed.state

    @property
    def away_since(self) -> datetime | None:
        """Since when the broker is away; None while it is there."""
        return self._depths.away_since or self.feed.away_since

    @property
    def away_because(self) -> str:
        """What was last heard of a broker that is away."""
        return self._depths.away_because or self.feed.problem

    def reading(self, queue: str) -> Reading | None:
        """What was in a queue within the last seconds; None where that is not known yet. It is
        watched from now on, for as long as somebody asks."""
        return self._depths.reading(queue)

    def want(self, queue: str) -> None:
        """Follow what fails of a main queue, where the broker does not let this user follow
        all."""
        if self._feed is not None:
            self._feed.want(queue)

    def start(self) -> None:
        """Begins to follow what fails; the second call does nothing."""
        with self._lock:
            if self._feed is None or self._has_begun or self._is_closed:
                return
            self._has_begun = True
            self._feed.start()

    def close(self) -> None:
        """Ends it."""
        with self._lock:
            self._is_closed = True
        if self._feed is not None:
            self._feed.close()
        self._depths.close()
