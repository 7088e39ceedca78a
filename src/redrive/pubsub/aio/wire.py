"""aiormq's connection, with channels and messages past its own codec. aiormq is the client that
aio-pika is made of.

aiormq does the handshake, heartbeats, and the goodbye. Channels, messages, their acks and confirms
are read and written by us: its codec changes header values (a double becomes a float) and raises at
texts that are not UTF-8, and it takes a task, a future and a look at the socket's buffer for each
message.

The hook is a parameter of aiormq's, `transport_factory`: it is given a stream that we have read
before. What goes on behind it, so that aiormq knows neither of a channel nor of a lost socket, a
test holds a new aiormq to. No class of aiormq's is changed.

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
from redrive.pubsub.wire_protocol import HUNG, Channel, Done, logged_block
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
"""200, no text, and no method that is to blame."""
_QOS = struct.Struct(">IHB")
_CONNECTION, _CHANNEL, _BASIC, _CONFIRM = 10, 20, 60, 85
_CONNECTION_CLOSE, _CONNECTION_CLOSE_OK, _BLOCKED, _UNBLOCKED = (
    (_CONNECTION, method) for method in (50, 51, 60, 61)
)
_CHANNEL_CLOSE, _CHANNEL_CLOSE_OK = ((_CHANNEL, method) for method in (40, 41))
_CANCEL = (_BASIC, 30)
_KINDS = (b"\1", b"\2", b"\3", b"\x08")
_HEARTBEAT = b"\x08\0\0\0\0\0\0\xce"
_HEARTBEAT_EVERY = 1.0
_AFTERMATH = 0.01
"""Seconds after which the tasks that aiormq begins at its end have ended, too."""


class ClosedByBroker(Exception):
    """The broker closed the connection."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(code, text)
        self.code = code
        self.text = text


class _Stream(asyncio.StreamReaderProtocol):
    """What arrives goes to `received`, and only what that passes on to aiormq."""

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
        return False  # no half of a connection: it is lost

    def pass_on(self, data: bytes) -> None:
        """Lets aiormq read this."""
        super().data_received(data)

    def connection_lost(self, exc: Exception | None) -> None:
        # aiormq warns of an error that its reader meets, and we do that: where we have told it of a
        # goodbye, it gets no error.
        super().connection_lost(None if self._lost(exc) else exc)


class _Socket(TransportFactory):
    """Gives aiormq a stream that is open already."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader_and_writer = reader, writer

    async def create(
        self, url: object, **_: object
    ) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        return self._reader_and_writer


class _VirtualHost(str):
    """A name that pamqp takes, which refuses one of more than 127 characters. The broker takes 255
    bytes.

    Source: AMQP 0-9-1 has a limit of 127 for a `path`, and RabbitMQ none of its own; pamqp 3.3.0
    and 4.0.1.
    """

    __slots__ = ()

    def __len__(self) -> int:
        return min(super().__len__(), 127)


class WireConnection:
    """An aiormq connection that gives and takes messages as bytes."""

    def __init__(self, lost: Callable[[BaseException | None], None]) -> None:
        self.login: Login | None = None
        """What it was opened with."""
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
        """Connects; where that fails, or is cancelled, nothing of it stays."""
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
            # aiormq reads user, password, mechanism and heartbeat from the URL, and nothing else:
            # the socket is there.
            login = f"{quote(username, safe='')}:{quote(password, safe='')}"
            url = f"amqp://{login}@{Endpoint(host, port)}/?auth={auth_mechanism}"
            if heartbeat is not None:
                url += f"&heartbeat={heartbeat}"
            writer = asyncio.StreamWriter(transport, stream, reader, loop)
            self._connection = aiormq.Connection(
                url,
                transport_factory=_Socket(reader, writer),
                client_properties=cast("dict[str, Any]", client_properties),
            )
            self._connection.vhost = _VirtualHost(virtual_host)
            await self._connection.connect()
        except InvalidFrameError as error:
            # aiormq does not take a refusal for an answer to the last question.
            # Source: aiormq 7.2.4, Connection._rpc.
            transport.abort()
            if self._reason is not None:
                raise self._reason from error
            raise
        except Exception as error:
            transport.abort()
            if isinstance(self._reason, BadFrame):  # aiormq sees but the end that it led to
                raise self._reason from error
            raise
        except BaseException:
            transport.abort()
            raise
        self._opened = True

    async def close(self) -> None:
        """Takes leave of the broker, which may take its time for two seconds, and closes the
        socket."""
        if self._connection is not None and self.is_open:
            self._closing = True
            for number in list(self._channels):
                self.forget(number)
            await self._connection.close(None)
            await asyncio.sleep(_AFTERMATH)
        self.drop()

    def drop(self) -> None:
        """Drops the socket without a word, as a crash would."""
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
        """The negotiated largest frame, in bytes; 0 for no limit."""
        assert self._connection is not None
        return int(self._connection.connection_tune.frame_max or 0)

    @property
    def is_open(self) -> bool:
        """Whether it is."""
        return (
            self._opened
            and not self._closing
            and not self._lost
            and self._transport is not None
            and not self._transport.is_closing()
        )

    @property
    def said_nothing(self) -> bool:
        """Whether there was a connection, and not a byte has come over it."""
        return self._transport is not None and self._speaks_amqp is None

    def write(self, data: bytes) -> None:
        """Sends whole frames. On a connection that is closing they are dropped."""
        if data and self.is_open and self._transport is not None:
            self._transport.write(data)

    def open_channel(self, events: ChannelEvents, opened: Callable[[Channel], None]) -> None:
        """Opens a channel; its messages and confirms go to `events`."""
        self._last_channel += 1
        channel = _Channel(self, self._last_channel, events)
        self._channels[channel.number] = channel
        self._reader.limit(self.frame_max)
        self._reader.watch(channel.number, events)
        channel.ask((_CHANNEL, 10), b"\0", lambda: opened(channel))

    def on_blocked(self, blocked: Callable[[str], None], unblocked: Done) -> None:
        """Has `blocked` called with the broker's reason when it takes no messages for now, and
        `unblocked` when it does again."""
        self._blocked.append(logged_block(blocked, unblocked))

    def update_login(self, password: str) -> None:
        """Has the broker check the user's rights by another password from now on."""
        if self._connection is not None and self.is_open:
            update = asyncio.ensure_future(
                self._connection.update_secret(password, reason="it expires")
            )
            self._updates.add(update)
            update.add_done_callback(self._updated)

    def _updated(self, update: asyncio.Future[Any]) -> None:
        self._updates.discard(update)
        if not update.cancelled() and update.exception() is not None:
            # where the broker refuses it, it closes the connection, which then comes back
            logger.debug("the broker did not answer to a new secret", exc_info=update.exception())

    def forget(self, channel: int) -> None:
        """A channel is closed."""
        self._channels.pop(channel, None)
        self.hear_no_more(channel)

    def hear_no_more(self, channel: int) -> None:
        """Messages and confirms of a channel that still come are dropped."""
        self._reader.unwatch(channel)

    def _on_data(self, data: bytes) -> None:
        if self._speaks_amqp is None:
            self._speaks_amqp = data[:1] in _KINDS
        if not self._speaks_amqp:
            self._pass_on(data)  # aiormq knows what to say of it
            return
        try:
            taken = self._reader.feed(data)
        except BadFrame as error:
            self._end(error)
        except Exception as error:
            # a defect of ours: the connection starts over, and with it all that was under way
            logger.exception("what arrived could not be taken in")
            self._end(error)
        else:
            if taken:
                self._show_life()

    def _show_life(self) -> None:
        """aiormq ends a connection on which it sees nothing, and a broker that sends messages sends
        no heartbeats."""
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
        """Whether it was open: what happens before is aiormq's to tell."""
        self._lost = True
        self._channels.clear()
        if self._opened:
            # As if the broker had taken leave: aiormq ends without a warning, since we give one.
            self._pass_on(method_frame(0, *_CONNECTION_CLOSE_OK))
            self._on_lost(self._reason or error)
        return self._opened


class _Channel:
    """A channel on a wire."""

    def __init__(self, connection: WireConnection, number: int, events: ChannelEvents) -> None:
        self.number = number
        self._connection = connection
        self._events = events
        self._asked: deque[tuple[bytes, Done | None]] = deque()
        self._consumers = 0
        self._is_closed = False

    @property
    def is_open(self) -> bool:
        """Whether it is."""
        return not self._is_closed and self._connection.is_open

    def confirm(self, done: Done) -> None:
        """Has publishes confirmed."""
        self.ask((_CONFIRM, 10), b"\0", done)

    def limit(self, prefetch: int, done: Done | None = None) -> None:
        """How many unsettled deliveries consumers that are begun from now on may have; 0 for any
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
    ) -> str:
        """Begins to consume; returns the consumer's tag."""
        self._consumers += 1
        tag = f"redrive-{self.number}-{self._consumers}"
        given = {
            "x-priority": priority,
            "x-stream-offset": offset,
            "x-consumer-timeout": timeout,
            HUNG: hung,
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

    def cancel(self, tag: str, done: Done) -> None:
        """Ends a consumer."""
        self.ask(_CANCEL, short_bytes(tag) + b"\0", done)

    def close(self, done: Done) -> None:
        """Ends the channel; what is unsettled on it goes back to its queue."""

        def closed() -> None:
            self._is_closed = True
            self._connection.forget(self.number)
            done()

        self._connection.hear_no_more(self.number)
        self.ask(_CHANNEL_CLOSE, _GOODBYE, closed)

    def ask(self, method: tuple[int, int], arguments: bytes, done: Done | None) -> None:
        """Sends a method once all before it are answered; `done` is called once it is, too.

        RabbitMQ 4.3 does not answer a `basic.consume` that is cancelled at once. Source: measured
        on 4.3.6.
        """
        if self.is_open:
            self._asked.append((method_frame(self.number, *method, arguments), done))
            if len(self._asked) == 1:
                self._connection.write(self._asked[0][0])

    def received(self, method: tuple[int, int], data: bytes) -> None:
        """A method of the broker's, none of a message."""
        if method == _CHANNEL_CLOSE:
            self._is_closed = True
            self._connection.write(method_frame(self.number, *_CHANNEL_CLOSE_OK))
            self._connection.forget(self.number)
            self._events.closed(*_code_and_text(data))
        elif method == _CANCEL:
            self._events.cancelled()
        elif self._asked:
            _, done = self._asked.popleft()
            if self._asked:
                self._connection.write(self._asked[0][0])
            if done is not None:
                done()


def _method_of(data: bytes) -> tuple[int, int]:
    if len(data) < 7 + _METHOD_ID.size:
        raise BadFrame("a frame is cut off")
    return cast("tuple[int, int]", _METHOD_ID.unpack_from(data, 7))


def _code_and_text(data: bytes) -> tuple[int, str]:
    text, _ = short_string(data, 13)
    return int(_UINT16.unpack_from(data, 11)[0]), text
