"""Reads the log of parked keys when a worker begins to handle an ordered queue."""

from collections.abc import Callable

from redrive.amqp.frames import ChannelEvents, Received, Returned, ack_frame
from redrive.errors import RedriveError
from redrive.pubsub import broker_errors
from redrive.pubsub.wire_protocol import Channel, Wire

_PREFETCH = 500
_ACKED_TOGETHER = 250


class ParkedLog:
    """A consumer of the stream, from its beginning until `read` returns True. Everything here runs
    on the connection's thread.

    Args:
        connection: the connection of the subscriber.
        stream: the stream's name.
        read: takes an entry, and returns whether it is the last one.
        done: called once the last one was read.
        refused: called with the error if the stream can't be read.
    """

    def __init__(
        self,
        connection: Wire,
        stream: str,
        read: Callable[[bytes], bool],
        done: Callable[[], None],
        refused: Callable[[RedriveError], None],
    ) -> None:
        self._connection = connection
        self._stream = stream
        self._read = read
        self._done = done
        self._refused = refused
        self._channel: Channel | None = None
        events = ChannelEvents(
            self._received, _no_returns, _no_confirms, self._closed, self._cancelled
        )
        connection.open_channel(events, self._opened)

    def _opened(self, channel: Channel) -> None:
        self._channel = channel
        channel.limit(_PREFETCH)
        channel.consume(self._stream, offset="first")

    def _received(self, received: Received) -> None:
        channel = self._channel
        if channel is None:
            return
        if self._read(received.body):
            self._channel = None
            channel.close(self._done)
        elif received.delivery_tag % _ACKED_TOGETHER == 0:
            self._connection.write(ack_frame(channel.number, received.delivery_tag, multiple=True))

    def _closed(self, code: int, text: str) -> None:
        self._channel = None
        self._refused(broker_errors.of_channel(code, text, f"read the stream {self._stream!r}"))

    def _cancelled(self) -> None:
        self._refused(broker_errors.of_cancelled_consumer(self._stream))


def _no_returns(_: Returned) -> None:
    """Ignore returns: nothing is published on this channel."""


def _no_confirms(_: int, __: bool, ___: bool) -> None:
    """Ignore confirms: nothing is published on this channel."""
