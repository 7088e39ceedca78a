"""The connection that a service publishes on: its publisher, and its subscribers where they retry
or give up by publishing.

A broker that is short of something reads nothing any more from a connection that publishes, acks
included, so nothing is consumed on it. It is opened with the first message. The same for both
shells.
"""

import threading
from collections.abc import Callable
from datetime import timedelta
from typing import TypeVar

from redrive.pubsub.lifecycle import BrokerAccess, Link, Listener
from redrive.pubsub.shared_link import LinkBranch, SharedLink

SUFFIX = " (publisher)"
"""What the name of one has besides that of the connection that consumes."""

Access = TypeVar("Access", bound=BrokerAccess)


class PublishingConnection:
    """One connection for everything that publishes, as long as anything that has published is
    open."""

    def __init__(self, access: Access, keep: Callable[[Access, Listener, timedelta], Link]) -> None:
        self._share: Callable[[timedelta, Callable[[], None]], SharedLink] = (
            lambda patience, ended: SharedLink(
                access, lambda listener: keep(access, listener, patience), ended
            )
        )
        self._lock = threading.Lock()
        self._shared: SharedLink | None = None
        self._number = 0
        """How many connections there were so far."""
        self._waiting: list[Callable[[], object]] = []

    def link_for(
        self,
        listener: Listener,
        prepare: Callable[[], None] | None = None,
        patience: timedelta = timedelta(0),
    ) -> LinkBranch:
        """Begin a link on it for a listener."""
        with self._lock:
            if self._shared is not None:
                branch = LinkBranch(self._shared, listener, prepare=prepare, patience=patience)
                if branch.join():
                    return branch
            self._number += 1
            number = self._number
            shared = self._shared = self._share(patience, lambda: self._ended(number))
            branch = LinkBranch(shared, listener, prepare=prepare, patience=patience)
            branch.join()
        shared.start()
        return branch

    def when_closed(self, done: Callable[[], object]) -> None:
        """Call `done` once it is closed, or now where others still use it."""
        with self._lock:
            closes = self._shared is not None and not self._shared.is_used
            if closes:
                self._waiting.append(done)
        if not closes:
            done()

    def _ended(self, number: int) -> None:
        with self._lock:
            if self._number == number:
                self._shared = None
            waiting, self._waiting = self._waiting, []
        for done in waiting:
            done()
