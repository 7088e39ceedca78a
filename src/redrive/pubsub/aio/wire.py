"""Extend aiormq's connection with channels and messages that bypass its codec. aiormq is the client
underneath aio-pika.

aiormq does the handshake, heartbeats, and the closing of the connection. Channels, messages, acks
and confirms are read and written here, because aiormq's codec changes header values (a double
becomes a float) and raises on text that is not UTF-8, and it spends a task, a future and a check of
the socket's buffer on each message.

The hook is aiormq's parameter `transport_factory`: it is given a stream whose data passes through
this module first. Behind it, aiormq knows nothing of channels or of a lost socket; a test checks
this against new aiormq releases. No class of aiormq is changed.

Source: aiormq 6.9.0 to 7.2.4.
"""

import asyncio
import logging
import ssl
import struct
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any, cast
from urllib.parse import quote

import aiormq
from aiormq.connection import TransportFactory
from aiormq.exceptions import InvalidFrameError
from pamqp.exceptions import AMQPInternalError

from redrive.amqp.field_table import FieldValue, encode_value
from redrive.amqp.frames import (
    METHOD,
    BadFrame,
    ChannelEvents,
    FrameReader,
    method_frame,
    short_bytes,
    short_string,
)
from redrive.pubsub.client_hook import check_hooks
from redrive.pubsub.url import AuthMechanism, Endpoint, Login
from redrive.pubsub.wire_protocol import DOWN, HUNG, Channel, Done, logged_block
from redrive.topology.broker_version import BrokerVersion

logger = logging.getLogger("redrive")

check_hooks(
    "aiormq",
    ">=6.9,<=7.2.4",
    {aiormq.Connection: ["transport_factory"], TransportFactory.create: ["url"]},
)

_METHOD_ID = struct.Struct(">HH")
_UINT16 = struct.Struct(">H")
_GOODBYE = b"\0\xc8\0\0\0\0\0"
"""Reply code 200, no text, and no failing method."""
_QOS = struct.Struct(">IHB")
_CONNECTION, _CHANNEL, _BASIC, _CONFIRM = 10, 20, 60, 85
_CONNECTION_CLOSE, _CONNECTION_CLOSE_OK, _BLOCKED, _UNBLOCKED = (
    (_CONNECTION, method) for method in (50, 51, 60, 61)
)
_CHANNEL_CLOSE, _CHANNEL_CLOSE_OK = ((_CHANNEL, method) for method in (40, 41))
_CANCEL = (_BASIC, 30)
_DECLARE_QUEUE, _PASSIVE = (50, 10), b"\1"
_ARGUMENTS = 11
"""Where a method's arguments begin in its frame."""
_KINDS = (b"\1", b"\2", b"\3", b"\x08")
_HEARTBEAT = b"\x08\0\0\0\0\0\0\xce"
_HEARTBEAT_EVERY = 1.0
_AFTERMATH = 0.01
"""Seconds after which the tasks that aiormq starts on closing have ended."""


class ClosedByBroker(Exception):
    """Raised when the broker closed the connection."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(code, text)
        self.code = code
        self.text = text


class _Stream(asyncio.StreamReaderProtocol):
    """A stream that passes received data to `received`; aiormq only gets what that passes on."""

    def __init__(
        self,
        reader: asyncio.StreamReader,
        received: Callable[[bytes], None],
        lost: Callable[[Exception | None], bool],
    ) -> None:
        super().__init__(reader)
        self._received = received
        self._lost = lost

    def data_received(self, data: bytes) -> None:
        self._received(data)

    def eof_received(self) -> bool:
        return False  # half-open connections are not supported: it is lost

    def pass_on(self, data: bytes) -> None:
        """Let aiormq read this data."""
        super().data_received(data)

    def connection_lost(self, exc: Exception | None) -> None:
        # aiormq logs a warning about an error that its reader meets, and so do we. If we have made
        # aiormq believe that the connection was closed regularly, it gets no error.
        super().connection_lost(None if self._lost(exc) else exc)


class _Socket(TransportFactory):
    """A transport factory that gives aiormq a stream that is already open."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader_and_writer = reader, writer

    async def create(
        self, url: object, **_: object
    ) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        return self._reader_and_writer


class _VirtualHost(str):
    """A virtual host name that pamqp accepts: pamqp rejects more than 127 characters, while the
    broker accepts 255 bytes.

    Source: AMQP 0-9-1 limits a `path` to 127, and RabbitMQ has no limit of its own; pamqp 3.3.0 and
    4.0.1.
    """

    __slots__ = ()

    def __len__(self) -> int:
        return min(super().__len__(), 127)


class WireConnection:
    """An aiormq connection that sends and receives messages as bytes."""

    def __init__(self, lost: Callable[[BaseException | None], None]) -> None:
        self.login: Login | None = None
        """The login that the connection was opened with."""
        self._on_lost = lost
        self._reader = FrameReader(self._on_other_frame)
        self._channels: dict[int, _Channel] = {}
        self._last_channel = 0
        self._blocked: list[tuple[Callable[[str], None], Done]] = []
        self._connection: aiormq.Connection | None = None
        self._transport: asyncio.WriteTransport | None = None
        self._stream: _Stream | None = None
        self._updates: set[asyncio.Future[Any]] = set()
        self._opened = False
        self._closing = False
        self._lost = False
        self._speaks_amqp: bool | None = None
        self._reason: BaseException | None = None
        self._told_at = 0.0

    async def open(
        self,
        host: str,
        port: int,
        *,
        username: str,
        password: str,
        auth_mechanism: AuthMechanism,
        virtual_host: str,
        ssl_context: ssl.SSLContext | None,
        server_hostname: str,
        heartbeat: int | None,
        client_properties: Mapping[str, FieldValue],
    ) -> None:
        """Connect. If that fails or is cancelled, clean up completely."""
        loop = asyncio.get_running_loop()
        reader = asyncio.StreamReader()
        stream = self._stream = _Stream(reader, self._on_data, self._on_connection_lost)
        secured = (
            {"ssl": ssl_context, "server_hostname": server_hostname}
            if ssl_context is not None
            else {}
        )
        transport, _ = await loop.create_connection(lambda: stream, host, port, **secured)  # type: ignore[call-overload]
        self._transport = transport
        try:
            # aiormq takes only user, password, mechanism and heartbeat from the URL: the socket is
            # already open.
            login = f"{quote(username, safe='')}:{quote(password, safe='')}"
            url = f"amqp://{login}@{Endpoint(host, port)}/?auth={auth_mechanism}"
            if heartbeat is not None:
                url += f"&heartbeat={heartbeat}"
            writer = asyncio.StreamWriter(transport, stream, reader, loop)
            self._connection = aiormq.Connection(
                url,
                transport_factory=_Socket(reader, writer),
            )
            self._connection.vhost = _VirtualHost(virtual_host)
            await self._connection.connect(cast("dict[str, Any]", client_properties))
        except (InvalidFrameError, AMQPInternalError) as error:
            # aiormq does not accept a refusal as the reply to its last request.
            # Source: aiormq 6.9.0 and 7.2.4, Connection._rpc.
            transport.abort()
            if self._reason is not None:
                raise self._reason from error
            raise
        except Exception as error:
            transport.abort()
            if isinstance(self._reason, BadFrame):  # aiormq only sees the end that this led to
                raise self._reason from error
            raise
        except BaseException:
            transport.abort()
            raise
        self._opened = True

    async def close(self) -> None:
        """Close the connection, giving the broker two seconds to reply, then close the socket."""
        if self._connection is not None and self.is_open:
            self._closing = True
            for number in list(self._channels):
                self.forget(number)
            await self._connection.close(None)
            await asyncio.sleep(_AFTERMATH)
        self.drop()

    def drop(self) -> None:
        """Drop the socket without closing the connection, as a crash would."""
        if self._transport is not None:
            self._transport.abort()

    @property
    def version(self) -> BrokerVersion:
        """The broker's version."""
        assert self._connection is not None
        properties: object = self._connection.server_properties
        return BrokerVersion.parse(
            properties.get("version") if isinstance(properties, dict) else None
        )

    @property
    def frame_max(self) -> int:
        """The negotiated maximum frame size in bytes; 0 for no limit."""
        assert self._connection is not None
        return int(self._connection.connection_tune.frame_max or 0)

    @property
    def is_open(self) -> bool:
        """Whether the connection is open."""
        return (
            self._opened
            and not self._closing
            and not self._lost
            and self._transport is not None
            and not self._transport.is_closing()
        )

    @property
    def said_nothing(self) -> bool:
        """Whether a connection was made but not a single byte was received on it."""
        return self._transport is not None and self._speaks_amqp is None

    def write(self, data: bytes) -> None:
        """Send whole frames. They are dropped if the connection is closing."""
        if data and self.is_open and self._transport is not None:
            self._transport.write(data)

    def open_channel(self, events: ChannelEvents, opened: Callable[[Channel], None]) -> None:
        """Open a channel; its messages and confirms go to `events`."""
        self._last_channel += 1
        channel = _Channel(self, self._last_channel, events)
        self._channels[channel.number] = channel
        self._reader.limit(self.frame_max)
        self._reader.watch(channel.number, events)
        channel.ask((_CHANNEL, 10), b"\0", lambda: opened(channel))

    def on_blocked(self, blocked: Callable[[str], None], unblocked: Done) -> None:
        """Call `blocked` with the broker's reason when it stops accepting messages, and `unblocked`
        when it accepts them again."""
        self._blocked.append(logged_block(blocked, unblocked))

    def update_login(self, password: str) -> None:
        """Give the broker a new password to check the user's permissions with from now on."""
        if self._connection is not None and self.is_open:
            update = asyncio.ensure_future(
                self._connection.update_secret(password, reason="it expires")
            )
            self._updates.add(update)
            update.add_done_callback(self._updated)

    def _updated(self, update: asyncio.Future[Any]) -> None:
        self._updates.discard(update)
        if not update.cancelled() and update.exception() is not None:
            # if the broker refuses it, it closes the connection, which is then reopened
            logger.debug("the broker did not accept a new secret", exc_info=update.exception())

    def forget(self, channel: int) -> None:
        """Remove a closed channel."""
        self._channels.pop(channel, None)
        self.stop_listening(channel)

    def stop_listening(self, channel: int) -> None:
        """Drop messages and confirms that still arrive on a channel."""
        self._reader.unwatch(channel)

    def _on_data(self, data: bytes) -> None:
        if self._speaks_amqp is None:
            self._speaks_amqp = data[:1] in _KINDS
        if not self._speaks_amqp:
            self._pass_on(data)  # aiormq knows how to report it
            return
        try:
            taken = self._reader.feed(data)
        except BadFrame as error:
            self._end(error)
        except Exception as error:
            # a bug in redrive: start over with a new connection, dropping all that was under way
            logger.exception("received data could not be processed")
            self._end(error)
        else:
            if taken:
                self._show_life()

    def _show_life(self) -> None:
        """Pass a heartbeat to aiormq: it closes a connection on which it sees no data, and a broker
        that sends messages sends no heartbeats."""
        now = asyncio.get_running_loop().time()
        if now - self._told_at > _HEARTBEAT_EVERY:
            self._told_at = now
            self._pass_on(_HEARTBEAT)

    def _pass_on(self, data: bytes) -> None:
        if self._stream is not None:
            self._stream.pass_on(data)

    def _on_other_frame(self, kind: int, number: int, data: bytes) -> None:
        if number:
            channel = self._channels.get(number)
            if channel is not None and kind == METHOD:
                channel.received(_method_of(data), data)
        elif kind == METHOD and self._opened:
            self._on_connection_frame(_method_of(data), data)
        else:
            if kind == METHOD and _method_of(data) == _CONNECTION_CLOSE:
                self._reason = ClosedByBroker(*_code_and_text(data))
            self._pass_on(data)

    def _on_connection_frame(self, method: tuple[int, int], data: bytes) -> None:
        if method == _CONNECTION_CLOSE:
            code, text = _code_and_text(data)
            if self._transport is not None:
                self._transport.write(method_frame(0, *_CONNECTION_CLOSE_OK))
            self._end(ClosedByBroker(code, text))
        elif method == _BLOCKED:
            reason, _ = short_string(data, 11)
            for blocked, _ in self._blocked:
                blocked(reason)
        elif method == _UNBLOCKED:
            for _, unblocked in self._blocked:
                unblocked()
        else:
            self._pass_on(data)

    def _end(self, reason: BaseException) -> None:
        self._reason = reason
        if self._transport is not None:
            self._transport.close()

    def _on_connection_lost(self, error: Exception | None) -> bool:
        """Handle the loss; return whether the connection was open, since earlier failures are
        reported by aiormq."""
        self._lost = True
        self._channels.clear()
        if self._opened:
            # As if the broker had closed the connection regularly: aiormq ends without a warning,
            # as redrive logs one.
            self._pass_on(method_frame(0, *_CONNECTION_CLOSE_OK))
            self._on_lost(self._reason or error)
        return self._opened


class _Channel:
    """A channel of a WireConnection."""

    def __init__(self, connection: WireConnection, number: int, events: ChannelEvents) -> None:
        self.number = number
        self._connection = connection
        self._events = events
        self._asked: deque[tuple[bytes, Callable[[bytes], None] | None]] = deque()
        self._consumers = 0
        self._is_closed = False

    @property
    def is_open(self) -> bool:
        """Whether the channel is open."""
        return not self._is_closed and self._connection.is_open

    def confirm(self, done: Done) -> None:
        """Enable publisher confirms."""
        self.ask((_CONFIRM, 10), b"\0", done)

    def limit(self, prefetch: int, done: Done | None = None) -> None:
        """Set how many unsettled deliveries each consumer started from now on may have; 0 for any
        number."""
        self.ask((_BASIC, 10), _QOS.pack(0, prefetch, 0), done)

    def consume(
        self,
        queue: str,
        done: Done | None = None,
        *,
        priority: int | None = None,
        offset: int | str | None = None,
        timeout: int | None = None,
        hung: int | None = None,
        down: str | None = None,
    ) -> str:
        """Start consuming and return the consumer tag."""
        self._consumers += 1
        tag = f"redrive-{self.number}-{self._consumers}"
        given = {
            "x-priority": priority,
            "x-stream-offset": offset,
            "x-consumer-timeout": timeout,
            HUNG: hung,
            DOWN: down,
        }
        fields = b"".join(
            short_bytes(name) + encode_value(value)
            for name, value in given.items()
            if value is not None
        )
        table = len(fields).to_bytes(4, "big") + fields
        self.ask(
            (_BASIC, 20),
            b"".join((b"\0\0", short_bytes(queue), short_bytes(tag), b"\0", table)),
            done,
        )
        return tag

    def count_consumers(self, queue: str, counted: Callable[[int], None]) -> None:
        """Call `counted` with the number of a queue's consumers."""

        def answered(data: bytes) -> None:
            _, end = short_string(data, _ARGUMENTS)
            counted(int.from_bytes(data[end + 4 : end + 8], "big"))

        arguments = b"\0\0" + short_bytes(queue) + _PASSIVE + bytes(4)
        self._ask(_DECLARE_QUEUE, arguments, answered)

    def cancel(self, tag: str, done: Done) -> None:
        """End a consumer."""
        self.ask(_CANCEL, short_bytes(tag) + b"\0", done)

    def close(self, done: Done) -> None:
        """Close the channel; unsettled messages return to their queue."""

        def closed() -> None:
            self._is_closed = True
            self._connection.forget(self.number)
            done()

        self._connection.stop_listening(self.number)
        self.ask(_CHANNEL_CLOSE, _GOODBYE, closed)

    def ask(self, method: tuple[int, int], arguments: bytes, done: Done | None) -> None:
        """Send a method once all previous ones are answered, and call `done` when this one is.

        RabbitMQ 4.3 does not answer a `basic.consume` that is cancelled at once. Source: measured
        on 4.3.6.
        """
        self._ask(method, arguments, None if done is None else lambda _: done())

    def _ask(
        self,
        method: tuple[int, int],
        arguments: bytes,
        answered: Callable[[bytes], None] | None,
    ) -> None:
        if self.is_open:
            self._asked.append((method_frame(self.number, *method, arguments), answered))
            if len(self._asked) == 1:
                self._connection.write(self._asked[0][0])

    def received(self, method: tuple[int, int], data: bytes) -> None:
        """Handle a method from the broker that does not belong to a message."""
        if method == _CHANNEL_CLOSE:
            self._is_closed = True
            self._connection.write(method_frame(self.number, *_CHANNEL_CLOSE_OK))
            self._connection.forget(self.number)
            self._events.closed(*_code_and_text(data))
        elif method == _CANCEL:
            self._events.cancelled()
        elif self._asked:
            _, answered = self._asked.popleft()
            if self._asked:
                self._connection.write(self._asked[0][0])
            if answered is not None:
                answered(data)


def _method_of(data: bytes) -> tuple[int, int]:
    if len(data) < 7 + _METHOD_ID.size:
        raise BadFrame("a frame is cut off")
    return cast("tuple[int, int]", _METHOD_ID.unpack_from(data, 7))


def _code_and_text(data: bytes) -> tuple[int, str]:
    text, _ = short_string(data, 13)
    return int(_UINT16.unpack_from(data, 11)[0]), text
