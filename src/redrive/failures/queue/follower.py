"""Follow a broker's failed queues for display: their depths, new failures, and outcomes of
requeues. It touches no messages."""

import threading
from datetime import datetime

from redrive.failures.queue.depth_watch import DepthWatch, Reading
from redrive.failures.queue.failure_feed import FeedState
from redrive.failures.queue.feed_writer import FeedWriter
from redrive.failures.store.index import index_of
from redrive.pubsub.blocking.connection import Connector, default_name
from redrive.pubsub.service_connection import Address
from redrive.topology.names import ExchangeFamily


class Follower:
    """A follower of one broker, on its own threads."""

    def __init__(
        self,
        url: Address,
        family: ExchangeFamily,
        *,
        keeps_bodies: bool = True,
    ) -> None:
        self._depths = DepthWatch(Connector(url, default_name("depths")))
        connector = Connector(url, default_name("failures"))
        index = index_of(connector.url, keeps_bodies=keeps_bodies)
        self._feed = None if index is None else FeedWriter(index, connector, family)
        self._lock = threading.Lock()
        self._has_begun = False
        self._is_closed = False

    @property
    def feed(self) -> FeedState:
        """The state of the feed of failures."""
        return FeedState() if self._feed is None else self._feed.state

    @property
    def away_since(self) -> datetime | None:
        """Since when the broker has been unreachable; None while it is reachable."""
        return self._depths.away_since or self.feed.away_since

    @property
    def away_because(self) -> str:
        """The last error from an unreachable broker."""
        return self._depths.away_because or self.feed.problem

    def reading(self, queue: str) -> Reading | None:
        """Return the depth of a queue within the last seconds, or None if it is not known yet. The
        queue is watched as long as calls continue."""
        return self._depths.reading(queue)

    def want(self, queue: str) -> None:
        """Follow the failures of a main queue if the broker does not let this user follow all."""
        if self._feed is not None:
            self._feed.want(queue)

    def start(self) -> None:
        """Start following failures; further calls do nothing."""
        with self._lock:
            if self._feed is None or self._has_begun or self._is_closed:
                return
            self._has_begun = True
            self._feed.start()

    def close(self) -> None:
        """Stop following."""
        with self._lock:
            self._is_closed = True
        if self._feed is not None:
            self._feed.close()
        self._depths.close()
