"""Read a stream on a connection, without taking anything from it. Everything here runs on the
connection's thread."""

from collections.abc import Callable
from typing import NamedTuple

from redrive.amqp.frames import ChannelEvents, Received, Returned, ack_frame
from redrive.amqp.properties import Malformed, Properties
from redrive.errors import ConfigurationError, RedriveError
from redrive.pubsub import broker_errors
from redrive.pubsub.wire_protocol import Channel, Wire

OFFSET = "x-stream-offset"
_PREFETCH = 32


class Row(NamedTuple):
    """An entry in a stream.

    Args:
        offset: its offset in the stream.
        body: the encoded entry.
        message_id: its id, as claimed by its author.
        user: the broker user who appended it, validated by the broker; empty if not given. Source:
            https://www.rabbitmq.com/docs/validated-user-id
    """

    offset: int
    body: bytes
    message_id: str
    user: str


class StreamConsumer:
    """A channel that reads a stream, for as long as its connection lives."""

    def __init__(
        self,
        connection: Wire,
        stream: str,
        start: int | str,
        *,
        received: Callable[[Row], None],
        refused: Callable[[RedriveError], None],
        begun: Callable[[], None] | None = None,
        prefetch: int = _PREFETCH,
    ) -> None:
        self._connection = connection
        self._stream = stream
        self._start = start
        self._row = received
        self._refused = refused
        self._begun = begun
        self._prefetch = prefetch
        self._channel: Channel | None = None
        events = ChannelEvents(
            self._received, _no_returns, _no_confirms, self._closed, self._cancelled
        )
        connection.open_channel(events, self._opened)

    def ack(self, tag: int) -> None:
        """Let the broker send more, after the first `tag` entries: acks don't remove entries."""
        if self._channel is not None:
            self._connection.write(ack_frame(self._channel.number, tag, multiple=True))

    def close(self, done: Callable[[], None]) -> None:
        """Stop reading, and call `done` once no more can come."""
        channel, self._channel = self._channel, None
        if channel is not None:
            channel.close(done)

    def _opened(self, channel: Channel) -> None:
        self._channel = channel
        channel.limit(self._prefetch)
        channel.consume(self._stream, self._begun, offset=self._start)

    def _received(self, received: Received) -> None:
        if self._channel is None:
            return
        try:
            properties = Properties.parse(received.properties)
        except Malformed:
            properties = Properties()
        offset = properties.headers.scalar(OFFSET)
        if type(offset) is not int:
            self._refused(
                ConfigurationError(
                    f"the queue {self._stream!r} is not a stream",
                    "It is not redrive's: delete it, or use another virtual host.",
                )
            )
            return
        self._row(Row(offset, received.body, properties.message_id or "", properties.user_id or ""))

    def _closed(self, code: int, text: str) -> None:
        self._refused(broker_errors.of_channel(code, text, f"read the stream {self._stream!r}"))

    def _cancelled(self) -> None:
        self._refused(broker_errors.of_cancelled_consumer(self._stream))


def _no_returns(_: Returned) -> None:
    """Ignore returns: nothing is published on a reading channel."""


def _no_confirms(_: int, __: bool, ___: bool) -> None:
    """Ignore confirms: nothing is published on a reading channel."""
