"""The connection that a service publishes on, for its publisher and for subscribers that publish
retries and failed messages.

A broker that is short of memory or disk stops reading from connections that publish, acks included,
so nothing is consumed on this one. It is opened with the first message. Shared by both shells.
"""

import threading
from collections.abc import Callable
from datetime import timedelta
from typing import TypeVar

from redrive.pubsub.lifecycle import BrokerAccess, Link, Listener
from redrive.pubsub.shared_link import LinkBranch, SharedLink

SUFFIX = " (publisher)"
"""Appended to the name of the connection that consumes."""

Access = TypeVar("Access", bound=BrokerAccess)


class PublishingConnection:
    """One connection for everything that publishes, open as long as any of its users is."""

    def __init__(self, access: Access, keep: Callable[[Access, Listener, timedelta], Link]) -> None:
        self._share: Callable[[timedelta, Callable[[], None]], SharedLink] = (
            lambda patience, ended: SharedLink(
                access, lambda listener: keep(access, listener, patience), ended
            )
        )
        self._lock = threading.Lock()
        self._shared: SharedLink | None = None
        self._number = 0
        """Number of connections so far."""
        self._waiting: list[Callable[[], object]] = []

    def link_for(
        self,
        listener: Listener,
        prepare: Callable[[], None] | None = None,
        patience: timedelta = timedelta(0),
    ) -> LinkBranch:
        """Start a link on this connection for a listener."""
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
        """Call `done` once the connection is closed, or now if others still use it."""
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
