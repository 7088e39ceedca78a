"""Declares what a running subscriber finds missing. All but the declaring is done on the
connection's thread."""

import logging
import threading
from collections.abc import Callable

from redrive.errors import RedriveError
from redrive.pubsub.lifecycle import Link
from redrive.topology.ladder import levels_of
from redrive.topology.model import Subscription

logger = logging.getLogger("redrive")


class Redeclarer:
    """Declares what is missing: somebody has removed a part, or a retry needs more of the delay
    ladder than is there."""

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
        """Whether so many levels of the ladder are more than are known to be there."""
        return self._declare is not None and levels > self._levels

    @property
    def under_way(self) -> bool:
        """Whether it is being declared now."""
        return self._under_way

    def begin(self, levels: int = 0, then: Callable[[], None] | None = None) -> None:
        """Declares all of it on a thread of its own, and calls `then`, whether or not that went
        well: what is refused is tried again."""
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
