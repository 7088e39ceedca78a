"""Publish prepared messages for a caller's thread, with many confirms in flight and a callback for
each.

When the connection is lost, unconfirmed messages are settled with BrokerUnavailable and not resent
automatically: only the caller knows whether somebody else has sent them in the meantime.
"""

import threading
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Self

import pika
from pika import exceptions

from redrive.errors import BrokerUnavailable, RedriveError
from redrive.pubsub import broker_errors
from redrive.pubsub.blocking.connection import Connector, Link
from redrive.pubsub.blocking.wire import WireConnection
from redrive.pubsub.confirms import WINDOW, Outbox, Outgoing
from redrive.pubsub.lifecycle import Listener
from redrive.pubsub.mailbox import Mailbox
from redrive.pubsub.wire_protocol import Wire

_LOCKED = 405
_BETWEEN_TRIES = 0.5


class Sending:
    """A connection for publishing; use it as a context manager.

    With a lock, it publishes only while it holds the lock. The lock is an exclusive queue of that
    name: the broker gives it to one connection at a time and deletes it with the connection, so a
    connection that has lost the lock can't publish any more. Source: measured on RabbitMQ 3.10.8,
    4.0.5 and 4.3.6: declaring another connection's exclusive queue is refused with 405.
    """

    def __init__(
        self,
        connector: Connector,
        *,
        lock: str | None = None,
        window: int = WINDOW,
        patience: float = 0.0,
    ) -> None:
        self._lock = lock
        self._outbox = Outbox(resend=False, window=window)
        self._link = Link(connector, self, patience=timedelta(seconds=patience))
        self._mailbox: Mailbox[Sequence[Outgoing]] = Mailbox(
            self._link, self._enqueue, self._outbox.pump
        )
        self._state = threading.Condition()
        self._connection: Wire | None = None
        self._publishes_on: Wire | None = None
        self._listeners: list[Listener] = []
        self._up = False
        self._frame_max = 0
        self._failure: RedriveError | None = None
        self._why_not = "it did not answer"
        self.locked_out = False
        """Whether another connection holds the lock."""

    # --- on the caller's thread -------------------------------------------------------------------

    @property
    def blocked(self) -> str | None:
        """Why the broker is blocking publishers now, or None if it is not."""
        return self._outbox.blocked

    @property
    def is_up(self) -> bool:
        """Whether it can publish now."""
        return self._up

    def wait_until_up(self, timeout: float) -> int:
        """Wait until it can publish; return the connection's maximum frame size in bytes, 0 for no
        limit."""
        with self._state:
            self._state.wait_for(lambda: self._up or self._failure is not None, timeout)
            if self._failure is not None:
                raise self._failure
            if not self._up:
                raise BrokerUnavailable(self._link.address, f"{self._why_not} within {timeout:g} s")
            return self._frame_max

    def lock(self, name: str) -> None:
        """From now on publish only while it holds a lock; `wait_until_up` waits for it."""
        with self._state:
            self._lock, self._up = name, False

        def take() -> None:
            if self._publishes_on is not None:
                self._begin_with_lock(self._publishes_on)

        self.call(take)

    def send(self, batch: Sequence[Outgoing]) -> None:
        """Publish messages; the `settled` callback of each is called on the I/O thread."""
        self._mailbox.put(batch)

    def add_listener(self, listener: Listener) -> None:
        """Let another listener use the connection, too: it is told when the connection is up, and
        when it is lost. It may open channels, and close them when it has been dropped."""

        def add() -> None:
            self._listeners.append(listener)
            if self._connection is not None:
                listener.connected(self._connection)

        self.call(add)

    def remove_listener(self, listener: Listener) -> None:
        """Tell a listener nothing more."""
        self.call(lambda: self._listeners.remove(listener) if listener in self._listeners else None)

    def call(self, function: Callable[[], None]) -> None:
        """Run a function on the I/O thread soon, or never if the connection has ended."""
        self._link.call(function)

    def __enter__(self) -> Self:
        self._link.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._link.close()

    # --- on the I/O thread ------------------------------------------------------------------------

    def _enqueue(self, batch: Sequence[Outgoing]) -> None:
        if self._up:
            self._outbox.enqueue(batch)
            return
        lost = BrokerUnavailable(self._link.address, "the connection was lost before it was sent")
        for outgoing in batch:
            outgoing.settled(outgoing, lost)

    def connected(self, connection: Wire) -> None:
        """Take the lock if there is one, then start publishing."""
        if self._connection is not connection:  # and not another try for the lock
            self._connection = connection
            for listener in tuple(self._listeners):
                listener.connected(connection)
        if self._lock is None:
            self._begin(connection)
        else:
            self._begin_with_lock(connection)

    def disconnected(self, error: RedriveError) -> None:
        """Settle unconfirmed messages; the link will reconnect."""
        self._connection = self._publishes_on = None
        for listener in tuple(self._listeners):
            listener.disconnected(error)
        self._set(up=False)
        self._outbox.disconnected(error)

    def gave_up(self, error: RedriveError) -> None:
        """Note that the link has failed for good."""
        for listener in tuple(self._listeners):
            listener.gave_up(error)
        self._set(up=False, failure=error)

    def ended(self) -> None:
        """Fail what is unconfirmed when the I/O thread ends."""
        closed = BrokerUnavailable(
            self._link.address, "the connection was closed before the message was confirmed"
        )
        for listener in tuple(self._listeners):
            listener.gave_up(self._failure or closed)
        self._set(up=False, failure=self._failure or closed)
        self._outbox.fail_all(self._failure or closed)

    def _begin_with_lock(self, connection: Wire) -> None:
        assert isinstance(connection, WireConnection)
        connection.channel(on_open_callback=lambda channel: self._take_lock(connection, channel))

    def _take_lock(self, connection: WireConnection, channel: pika.channel.Channel) -> None:
        assert self._lock is not None
        channel.add_on_close_callback(lambda _, reason: self._not_locked(connection, reason))
        channel.queue_declare(
            self._lock,
            exclusive=True,
            auto_delete=True,
            callback=lambda _: self._begin(connection, lock=True),
        )

    def _not_locked(self, connection: WireConnection, reason: BaseException) -> None:
        if not isinstance(reason, exceptions.ChannelClosedByBroker) or not connection.is_open:
            return
        if reason.reply_code != _LOCKED:
            self._set(
                up=False,
                failure=broker_errors.of_channel(
                    reason.reply_code,
                    reason.reply_text,
                    f"lock {self._lock!r} with an exclusive queue of that name",
                ),
            )
            return
        self._why_not = f"another connection has the lock {self._lock} and did not release it"
        self.locked_out = True
        self._link.call_later(
            _BETWEEN_TRIES, lambda: self.connected(connection) if connection.is_open else None
        )

    def _begin(self, connection: Wire, *, lock: bool = False) -> None:
        if self._publishes_on is not connection:
            self._publishes_on = connection
            self._outbox.connected(connection)
        self._why_not = "it did not come back"
        self.locked_out = False
        self._frame_max = connection.frame_max
        self._set(up=lock or self._lock is None)

    def _set(self, *, up: bool, failure: RedriveError | None = None) -> None:
        with self._state:
            self._up = up
            self._failure = failure or self._failure
            self._state.notify_all()
