"""Publishes retries and failed messages for subscribers, on the connection for publishing. Shared
by both shells."""

import threading
from collections.abc import Callable

from redrive.errors import BrokerUnavailable, RedriveError
from redrive.pubsub.confirms import Outbox, Outgoing
from redrive.pubsub.lifecycle import Link, Listener
from redrive.pubsub.wire_protocol import Wire


class Moves:
    """What one subscriber publishes. Messages that are unconfirmed when the connection is lost, or
    when it can't be opened, are settled with an error."""

    def __init__(
        self,
        link_for: Callable[[Listener], Link],
        when_closed: Callable[[Callable[[], object]], None],
    ) -> None:
        self._link_for = link_for
        self._when_closed = when_closed
        self._outbox = Outbox(resend=False)
        self._lock = threading.Lock()
        self._link: Link | None = None
        self._pending: list[Outgoing] = []
        self._failure: RedriveError | None = None
        self._done: Callable[[], object] | None = None

    def send(self, outgoing: Outgoing) -> None:
        """Publish a message; from any thread. Its callback runs on the connection's thread."""
        with self._lock:
            self._pending.append(outgoing)
            if self._link is None:
                self._failure = None
                self._link = self._link_for(self)
            link = self._link
        link.call(self._send_pending)

    def close(self, done: Callable[[], object], *, aborted: bool) -> None:
        """Stop publishing, and call `done` once the connection is closed, or at once if others
        still use it."""
        with self._lock:
            link = self._link
            if link is not None:
                self._done = done
        if link is None:
            done()
        elif aborted:
            link.abort()
        else:
            link.close()

    # --- on the connection's thread ---------------------------------------------------------------

    def connected(self, connection: Wire) -> None:
        """Pass the open connection to the outbox."""
        self._outbox.connected(connection)

    def disconnected(self, error: RedriveError) -> None:
        """Pass the loss of the connection to the outbox; the link reconnects."""
        self._outbox.disconnected(error)

    def gave_up(self, error: RedriveError) -> None:
        """Record why there is no connection."""
        self._failure = error

    def ended(self) -> None:
        """Fail everything that is unsent or unconfirmed; the next message opens a new
        connection."""
        with self._lock:
            address = self._link.address if self._link is not None else ""
            self._link = None
            pending, self._pending = self._pending, []
            done, self._done = self._done, None
        failure = self._failure or BrokerUnavailable(address, "the connection is closed")
        self._outbox.fail_all(failure)
        for outgoing in pending:
            outgoing.settled(outgoing, failure)
        if done is not None:
            self._when_closed(done)

    def _send_pending(self) -> None:
        with self._lock:
            pending, self._pending = self._pending, []
        self._outbox.enqueue(pending)
        self._outbox.pump()
