"""Declares missing topology while a subscriber runs. Everything but the declaring itself runs on
the connection's thread."""

import logging
import threading
from collections.abc import Callable

from redrive.errors import RedriveError
from redrive.pubsub.lifecycle import Link
from redrive.topology.ladder import levels_of
from redrive.topology.model import Subscription

logger = logging.getLogger("redrive")


class Redeclarer:
    """Declares what is missing because a part was deleted, or because a retry needs more levels of
    the delay ladder than exist."""

    def __init__(
        self, subscription: Subscription, declare: Callable[[int, bool], object] | None, link: Link
    ) -> None:
        self._queue = subscription.queue
        self._declare = declare
        self._link = link
        self._levels = levels_of(subscription)
        self._under_way = False
        self._waiting: list[Callable[[], None]] = []

    def lacks(self, levels: int) -> bool:
        """Check whether this many levels of the ladder are more than are known to exist."""
        return self._declare is not None and levels > self._levels

    @property
    def under_way(self) -> bool:
        """Whether declaring is in progress."""
        return self._under_way

    def begin(self, levels: int = 0, then: Callable[[], None] | None = None) -> None:
        """Declare everything on a separate thread, then call `then`, even if that failed: the
        caller retries."""
        declare = self._declare
        if then is not None:
            self._waiting.append(then)
        if self._under_way or declare is None:
            return
        self._under_way = True
        levels = max(levels, self._levels)

        def mend() -> None:
            try:
                declare(levels, True)
            except RedriveError as error:
                logger.error("queue %s: its topology could not be declared: %s", self._queue, error)
            finally:
                self._link.call(lambda: self._done(levels))

        threading.Thread(target=mend, name="redrive-mend", daemon=True).start()

    def _done(self, levels: int) -> None:
        self._under_way = False
        self._levels = levels
        waiting, self._waiting = self._waiting, []
        for then in waiting:
            then()
