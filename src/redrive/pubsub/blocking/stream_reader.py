"""Read a stream on a caller's thread."""

import threading
from collections.abc import Callable, Iterator
from queue import Empty, SimpleQueue
from typing import Protocol, Self

from redrive.errors import RedriveError
from redrive.pubsub.blocking.connection import Connector, Link
from redrive.pubsub.lifecycle import Listener
from redrive.pubsub.stream_consumer import Row, StreamConsumer
from redrive.pubsub.wire_protocol import Wire

_ACKED_TOGETHER = 16
_MOMENT = 0.05
_MOST_AT_ONCE = 200


class SharedConnection(Protocol):
    """A connection that others may use, too."""

    def add_listener(self, listener: Listener, /) -> None:
        """Tell a listener when the connection is up, and when it is lost."""

    def remove_listener(self, listener: Listener, /) -> None:
        """Tell a listener nothing more."""

    def call(self, function: Callable[[], None], /) -> None:
        """Run a function on the connection's thread."""


class _OwnConnection:
    """A connection for one listener alone."""

    def __init__(self, connector: Connector, listener: Listener) -> None:
        self._link = Link(connector, listener)
        self.call = self._link.call

    def add_listener(self, _: Listener) -> None:
        self._link.start()

    def remove_listener(self, _: Listener) -> None:
        self._link.close()


class StreamReader:
    """Consumes a stream for a caller's thread; a context manager.

    It opens a connection of its own, unless it is given one to share.
    """

    def __init__(
        self,
        connector: Connector,
        stream: str,
        start: int | str,
        shared: SharedConnection | None = None,
    ) -> None:
        self._stream = stream
        self._start = start
        self._connection = shared or _OwnConnection(connector, self)
        self._inbox: SimpleQueue[Row | RedriveError] = SimpleQueue()
        self._consumer: StreamConsumer | None = None
        self._taken = 0
        self._begun = threading.Event()

    def wait_until_begun(self, seconds: float) -> bool:
        """Wait until the broker reads the stream for it, or refuses to; return whether it has
        answered in time."""
        return self._begun.wait(seconds)

    def next(self, patience: float) -> Row | None:
        """Return the next entry, or None if none arrives within `patience` seconds."""
        try:
            found = self._inbox.get(timeout=patience)
        except Empty:
            return None
        if isinstance(found, RedriveError):
            raise found
        self._taken += 1
        if self._taken % _ACKED_TOGETHER == 0:
            tag = self._taken
            self._connection.call(lambda: self._ack(tag))
        return found

    def come(self) -> Iterator[Row]:
        """Iterate over the entries that have arrived by now."""
        for _ in range(_MOST_AT_ONCE):
            row = self.next(_MOMENT)
            if row is None:
                return
            yield row

    def close(self) -> None:
        """Stop reading."""
        self._connection.call(self._stop)
        self._connection.remove_listener(self)

    def __enter__(self) -> Self:
        self._connection.add_listener(self)
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # --- on the I/O thread ------------------------------------------------------------------------

    def connected(self, connection: Wire) -> None:
        """Start consuming when the link is up."""
        self._consumer = StreamConsumer(
            connection,
            self._stream,
            self._start,
            received=self._inbox.put,
            refused=self._fail,
            begun=self._begun.set,
        )

    def disconnected(self, error: RedriveError) -> None:
        """Pass the error on to the reader when the link is down."""
        self._consumer = None
        self._fail(error)

    def gave_up(self, error: RedriveError) -> None:
        """Pass the error on to the reader when no link can be made."""
        self._fail(error)

    def ended(self) -> None:
        """Do nothing when the I/O thread ends."""

    def _stop(self) -> None:
        consumer, self._consumer = self._consumer, None
        if consumer is not None:
            consumer.close(lambda: None)

    def _fail(self, error: RedriveError) -> None:
        self._inbox.put(error)
        self._begun.set()

    def _ack(self, tag: int) -> None:
        if self._consumer is not None:
            self._consumer.ack(tag)
