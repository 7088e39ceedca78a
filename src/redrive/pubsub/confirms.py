"""Publishes with confirms, with many messages in flight. Everything here runs on the connection's
thread."""

import logging
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterable

from redrive.amqp.frames import (
    ChannelEvents,
    Received,
    Returned,
    content_frames,
    fits,
    publish_method,
)
from redrive.amqp.properties import Properties
from redrive.errors import (
    ConfigurationError,
    PublishError,
    PublishNacked,
    PublishRefused,
    PublishTimeout,
    RedriveError,
    Unroutable,
)
from redrive.pubsub import broker_errors
from redrive.pubsub.wire_protocol import Channel, Wire
from redrive.redaction import in_one_line

logger = logging.getLogger("redrive")

Settled = Callable[["Outgoing", RedriveError | None], None]

WINDOW = 2000
"""Messages that may be unconfirmed at a time."""
WINDOW_BYTES = 16 * 1024 * 1024
_WRITE_SIZE = 128 * 1024
_MOST_KEYS = 1024


class Outgoing:
    """A message on its way to the broker.

    A message is a **possible duplicate** if it is `in_doubt` and sent again: the connection or
    channel was lost before the broker answered, so the broker may or may not have the first copy.
    """

    __slots__ = (
        "body",
        "exchange",
        "in_doubt",
        "message_id",
        "properties",
        "returned",
        "routing_key",
        "sent",
        "settled",
        "withdrawn",
    )

    def __init__(
        self,
        exchange: str,
        routing_key: str,
        properties: bytes,
        body: bytes,
        message_id: str,
        settled: Settled,
    ) -> None:
        self.exchange = exchange
        self.routing_key = routing_key
        self.properties = properties
        self.body = body
        self.message_id = message_id
        self.settled = settled
        self.returned: str | None = None
        self.sent = False
        self.in_doubt = False
        self.withdrawn = False


class Outbox:
    """A channel in confirm mode that recovers when a single message makes the broker close it.

    Closing the channel also loses the confirms of all other messages in flight. These are then sent
    again one at a time until the message that caused it is found.
    """

    def __init__(self, *, resend: bool, window: int = WINDOW) -> None:
        self._resend = resend
        self._window = window
        self._waiting: deque[Outgoing] = deque()
        self._unconfirmed: deque[Outgoing | None] = deque()
        self._first_tag = 1
        self._in_flight = 0
        self._bytes_in_flight = 0
        # Messages to send one at a time, and whether each was in doubt before.
        self._suspects: dict[Outgoing, bool] = {}
        self._connection: Wire | None = None
        self._channel: Channel | None = None
        self._ready = False
        self._methods: dict[tuple[str, str], bytes] = {}
        self.blocked: str | None = None
        """Why the broker accepts no messages now; None if it does."""

    @property
    def idle(self) -> bool:
        """Whether nothing is waiting or unconfirmed."""
        return not self._waiting and not self._in_flight

    def connected(self, connection: Wire) -> None:
        """Open the channel on a new connection."""
        self._connection = connection
        self.blocked = None
        connection.on_blocked(self._on_blocked, self._on_unblocked)
        self._open()

    def disconnected(self, error: RedriveError) -> None:
        """Queue the unconfirmed messages to be sent again, or fail them, after the connection was
        lost."""
        self._connection = self._channel = None
        self._ready = False
        self.blocked = None
        self._queue_unconfirmed_again()
        if not self._resend:
            self._fail_waiting(error)

    def send(self, outgoing: Outgoing) -> None:
        """Publish a message as soon as there is room."""
        self._waiting.append(outgoing)
        self.pump()

    def enqueue(self, batch: Iterable[Outgoing]) -> None:
        """Add messages for the next `pump` to send."""
        self._waiting.extend(batch)

    def fail_all(self, error: RedriveError) -> None:
        """Settle everything with an error, because there will be no further connection."""
        self._queue_unconfirmed_again()
        self._fail_waiting(error)

    def _queue_unconfirmed_again(self) -> None:
        unanswered = self._take_unconfirmed()
        for outgoing in unanswered:
            outgoing.in_doubt = True
            if outgoing in self._suspects:
                self._suspects[outgoing] = True
        self._waiting.extendleft(reversed(unanswered))

    def _fail_waiting(self, error: RedriveError) -> None:
        waiting = list(self._waiting)
        self._waiting.clear()
        self._suspects.clear()
        for outgoing in waiting:
            outgoing.settled(outgoing, error)

    def pump(self) -> None:
        """Write waiting messages until the window is full."""
        connection, channel = self._connection, self._channel
        if (
            connection is None
            or channel is None
            or not self._ready
            or self.blocked is not None
            or not self._waiting
        ):
            return
        number, frame_max = channel.number, connection.frame_max
        window = 1 if self._suspects else self._window
        pieces: list[bytes] = []
        size = 0
        while self._waiting and self._in_flight < window and self._bytes_in_flight < WINDOW_BYTES:
            outgoing = self._waiting.popleft()
            if outgoing.withdrawn:
                self._suspects.pop(outgoing, None)
                continue
            if not fits(outgoing.properties, frame_max):
                # The callback may send another message at once. It must not overtake messages that
                # are not written yet, or their confirms would be mixed up.
                connection.write(b"".join(pieces))
                pieces.clear()
                size = 0
                self._settle(outgoing, _too_much_header(outgoing, frame_max))
                continue
            pieces.append(self._method(number, outgoing))
            content = content_frames(number, outgoing.properties, outgoing.body, frame_max)
            pieces.append(content)
            outgoing.sent = True
            self._unconfirmed.append(outgoing)
            self._in_flight += 1
            self._bytes_in_flight += len(outgoing.body)
            size += len(content)
            if size > _WRITE_SIZE:
                connection.write(b"".join(pieces))
                pieces.clear()
                size = 0
        connection.write(b"".join(pieces))

    def _method(self, channel: int, outgoing: Outgoing) -> bytes:
        place = (outgoing.exchange, outgoing.routing_key)
        method = self._methods.get(place)
        if method is None:
            if len(self._methods) >= _MOST_KEYS:
                self._methods.clear()
            method = self._methods[place] = publish_method(channel, *place)
        return method

    def _open(self) -> None:
        assert self._connection is not None
        self._ready = False
        self._methods.clear()
        events = ChannelEvents(
            _no_deliveries, self._on_return, self._on_confirm, self._closed, _no_consumer
        )
        self._connection.open_channel(events, self._opened)

    def _opened(self, channel: Channel) -> None:
        self._channel = channel
        self._first_tag = 1
        channel.confirm(self._confirming)

    def _confirming(self) -> None:
        self._ready = True
        self.pump()

    def _closed(self, code: int, text: str) -> None:
        self._channel = None
        self._ready = False
        unanswered = self._take_unconfirmed()
        self._open()
        if len(unanswered) == 1:
            (refused,) = unanswered
            # The broker refused this copy. If an earlier connection was lost with this message in
            # flight, the broker may still have taken that copy.
            refused.in_doubt = self._suspects.get(refused, refused.in_doubt)
            self._settle(refused, _refused(refused, code, text))
            return
        if unanswered:
            logger.warning(
                "the broker closed the publishing channel (%s); sending %d again one by one",
                text,
                len(unanswered),
            )
        for outgoing in unanswered:
            self._suspects[outgoing] = outgoing.in_doubt
            outgoing.in_doubt = True
        self._waiting.extendleft(reversed(unanswered))

    def _on_return(self, returned: Returned) -> None:
        # Returns come in publishing order, each before its confirm. Messages with equal bodies are
        # distinguished by id, since their headers may route them differently. Comparing all
        # properties would not work: RabbitMQ 4 reorders the headers.
        message_id = Properties.parse(returned.properties).message_id
        in_bytes = (message_id or "").encode("utf-8", "surrogateescape")
        first: Outgoing | None = None
        for outgoing in self._unconfirmed:
            if (
                outgoing is not None
                and outgoing.returned is None
                and outgoing.routing_key == returned.routing_key
                and outgoing.exchange == returned.exchange
                and outgoing.body == returned.body
            ):
                first = first or outgoing
                if (
                    in_bytes in outgoing.properties  # a quick check first
                    and Properties.parse(outgoing.properties).message_id == message_id
                ):
                    outgoing.returned = returned.reply_text
                    return
        if first is not None:
            first.returned = returned.reply_text
            return
        logger.error(
            "the broker returned a message with routing key %r that is not in flight",
            returned.routing_key,
        )

    def _on_confirm(self, tag: int, multiple: bool, ack: bool) -> None:
        unconfirmed = self._unconfirmed
        if multiple:
            while unconfirmed and self._first_tag <= tag:
                outgoing = unconfirmed.popleft()
                self._first_tag += 1
                if outgoing is not None:
                    self._confirmed(outgoing, ack)
        else:
            index = tag - self._first_tag
            if 0 <= index < len(unconfirmed):
                outgoing = unconfirmed[index]
                unconfirmed[index] = None
                while unconfirmed and unconfirmed[0] is None:
                    unconfirmed.popleft()
                    self._first_tag += 1
                if outgoing is not None:
                    self._confirmed(outgoing, ack)
        self.pump()

    def _confirmed(self, outgoing: Outgoing, ack: bool) -> None:
        self._in_flight -= 1
        self._bytes_in_flight -= len(outgoing.body)
        if not ack:
            error: RedriveError | None = PublishNacked(
                outgoing.message_id,
                outgoing.routing_key,
                "the broker did not take it now\nA queue is full and rejects publishes, is just "
                "being declared, or its node fails: publish it again, or see the broker's log.",
            )
        elif outgoing.returned is not None:
            error = Unroutable(
                outgoing.message_id,
                outgoing.routing_key,
                f"no queue is bound for it ({outgoing.returned})\nCheck the key, or declare the "
                "queue that should get it.",
            )
        else:
            error = None
        self._settle(outgoing, error)

    def _settle(self, outgoing: Outgoing, error: RedriveError | None) -> None:
        if self._suspects:
            self._suspects.pop(outgoing, None)
        outgoing.settled(outgoing, error)

    def _take_unconfirmed(self) -> list[Outgoing]:
        taken = [outgoing for outgoing in self._unconfirmed if outgoing is not None]
        for outgoing in taken:
            outgoing.returned = None
        self._unconfirmed.clear()
        self._in_flight = 0
        self._bytes_in_flight = 0
        return taken

    def _on_blocked(self, reason: str) -> None:
        self.blocked = in_one_line(reason)

    def _on_unblocked(self) -> None:
        self.blocked = None
        self.pump()


def _no_deliveries(_: Received) -> None:
    """Ignore deliveries: nothing is consumed on a publishing channel."""


def _no_consumer() -> None:
    """Ignore cancellations: nothing is consumed on a publishing channel."""


def _too_much_header(outgoing: Outgoing, frame_max: int) -> PublishError:
    return PublishRefused(
        outgoing.message_id,
        outgoing.routing_key,
        f"its headers and properties are {len(outgoing.properties)} bytes, and must fit one frame "
        f"of the connection ({frame_max} bytes)\n"
        "Put less into its headers, or raise the broker's frame_max.",
    )


def _refused(outgoing: Outgoing, code: int, text: str) -> RedriveError:
    if code in (403, 404):
        return broker_errors.of_publish(code, text, outgoing.exchange)
    remedy = (
        "\nMake it smaller, or raise the broker's max_message_size."
        if "larger than" in text
        else ""
    )
    return PublishRefused(
        outgoing.message_id, outgoing.routing_key, f"the broker refused it: {text}{remedy}"
    )


class PublisherSession(ABC):
    """A publisher's connection: passes a link's events to an outbox."""

    def __init__(self, window: int) -> None:
        self.failure: RedriveError | None = None
        self.frame_max = 0
        """The connection's largest frame, in bytes; 0 for no limit."""
        self._outbox = Outbox(resend=True, window=window)
        self._connected = False

    @abstractmethod
    def _begun(self) -> None:
        """Wake callers once it is known whether there is a connection."""

    def timeout_of(self, outgoing: Outgoing, seconds: float) -> PublishTimeout:
        """Return the error for a message that was not confirmed in time."""
        if self._outbox.blocked is not None:
            why = (
                f"the broker takes no messages now ({self._outbox.blocked}); free its memory or "
                "disk"
            )
        elif not self._connected:
            why = "the connection was lost and did not come back"
        else:
            why = "no confirm came"
        sent = "it was sent, so the broker may have it" if outgoing.sent else "it was not sent"
        return PublishTimeout(
            outgoing.message_id, outgoing.routing_key, f"{why} within {seconds:g} s; {sent}"
        )

    def connected(self, connection: Wire) -> None:
        """Pass the open connection to the outbox."""
        self._connected = True
        self.frame_max = connection.frame_max
        self._outbox.connected(connection)
        self._begun()

    def disconnected(self, error: RedriveError) -> None:
        """Pass the loss of the connection to the outbox; the link reconnects."""
        self._connected = False
        self._outbox.disconnected(error)

    def gave_up(self, error: RedriveError) -> None:
        """Record why there is no connection."""
        self.failure = error
        self._begun()

    def ended(self) -> None:
        """Fail all unconfirmed messages after the link has ended; the next publish starts a new
        session."""
        if self.failure is None:
            self.failure = ConfigurationError(
                "the publisher was closed before the message was confirmed", "Close it later."
            )
        self._outbox.fail_all(self.failure)
