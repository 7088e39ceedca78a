"""The broker's side of one connection: parses incoming bytes, applies them to the model, and writes
replies. It does no I/O.

Source: AMQP 0-9-1 specification, and https://www.rabbitmq.com/docs/amqp-0-9-1-reference for
RabbitMQ's extensions.
"""

import struct
from collections.abc import Callable, Mapping
from typing import NamedTuple, Protocol

from redrive.amqp.field_table import FieldValue, Table
from redrive.amqp.frames import BadFrame, method_frame
from redrive.testing.memory import method_arguments as encoded
from redrive.testing.memory.exchange_model import BindingModel, ExchangeModel
from redrive.testing.memory.method_arguments import MethodArguments
from redrive.testing.memory.refused import (
    ACCESS_REFUSED,
    COMMAND_INVALID,
    FRAME_ERROR,
    NOT_ALLOWED,
    NOT_IMPLEMENTED,
    RefusedByModel,
)
from redrive.testing.memory.session_channel import SessionChannel
from redrive.testing.memory.virtual_host import VirtualHost

_EXCHANGE, _QUEUE, _BASIC_CLASS, _CONFIRM, _TX = 40, 50, 60, 85, 90


class _Asked(NamedTuple):
    """A method call with its sender."""

    host: VirtualHost
    session: object
    channel: SessionChannel
    write: Callable[[bytes], None]
    arguments: MethodArguments

    def answer(self, class_id: int, method: int, arguments: bytes = b"") -> None:
        """Send the reply to the method."""
        self.write(method_frame(self.channel.number, class_id, method, arguments))


def carry_out(
    host: VirtualHost,
    session: object,
    channel: SessionChannel,
    write: Callable[[bytes], None],
    method: tuple[int, int],
    payload: bytes,
) -> None:
    """Execute a method."""
    does = _METHODS.get(method)
    if does is None:
        raise RefusedByModel(NOT_IMPLEMENTED, f"method {method[0]}.{method[1]}")
    does(_Asked(host, session, channel, write, MethodArguments(payload)))


# --- exchanges ------------------------------------------------------------------------------------


def _declare_exchange(asked: _Asked) -> None:
    arguments = asked.arguments
    arguments.short()
    name, kind = arguments.text(), arguments.text()
    passive, durable, auto_delete, internal, no_wait = arguments.bits(5)
    wanted = ExchangeModel(
        name,
        kind,
        durable=durable,
        auto_delete=auto_delete,
        internal=internal,
        arguments=arguments.table(),
    )
    asked.host.declare_exchange(wanted, passive=passive)
    if not no_wait:
        asked.answer(_EXCHANGE, 11)


def _delete_exchange(asked: _Asked) -> None:
    asked.arguments.short()
    name = asked.arguments.text()
    if_unused, no_wait = asked.arguments.bits(2)
    asked.host.delete_exchange(name, if_unused=if_unused)
    if not no_wait:
        asked.answer(_EXCHANGE, 21)


def _bind_exchange(asked: _Asked) -> None:
    source, binding, no_wait = _binding(asked.arguments, to_queue=False, has_no_wait=True)
    asked.host.bind(source, binding)
    if not no_wait:
        asked.answer(_EXCHANGE, 31)


def _unbind_exchange(asked: _Asked) -> None:
    source, binding, no_wait = _binding(asked.arguments, to_queue=False, has_no_wait=True)
    asked.host.unbind(source, binding)
    if not no_wait:
        asked.answer(_EXCHANGE, 51)


def _binding(
    arguments: MethodArguments, *, to_queue: bool, has_no_wait: bool
) -> tuple[str, BindingModel, bool]:
    arguments.short()
    destination, source, key = arguments.text(), arguments.text(), arguments.text()
    no_wait = arguments.bits(1)[0] if has_no_wait else False
    return source, BindingModel(destination, to_queue, key, arguments.table()), no_wait


# --- queues ---------------------------------------------------------------------------------------


def _declare_queue(asked: _Asked) -> None:
    arguments = asked.arguments
    arguments.short()
    name = arguments.text()
    passive, durable, exclusive, auto_delete, no_wait = arguments.bits(5)
    if passive:
        queue = asked.host.queue(name, asked.session)
    else:
        queue = asked.host.declare_queue(
            name,
            arguments.table(),
            durable=durable,
            exclusive=exclusive,
            auto_delete=auto_delete,
            owner=asked.session,
        )
    asked.host.run()
    if not no_wait:
        counts = encoded.long(len(queue)) + encoded.long(len(queue.consumers))
        asked.answer(_QUEUE, 11, encoded.text(queue.name) + counts)


def _bind_queue(asked: _Asked) -> None:
    source, binding, no_wait = _binding(asked.arguments, to_queue=True, has_no_wait=True)
    asked.host.bind(source, binding)
    if not no_wait:
        asked.answer(_QUEUE, 21)


def _unbind_queue(asked: _Asked) -> None:
    source, binding, _ = _binding(asked.arguments, to_queue=True, has_no_wait=False)
    asked.host.unbind(source, binding)
    asked.answer(_QUEUE, 51)


def _purge_queue(asked: _Asked) -> None:
    asked.arguments.short()
    queue = asked.host.queue(asked.arguments.text(), asked.session)
    (no_wait,) = asked.arguments.bits(1)
    count = queue.purge()
    if not no_wait:
        asked.answer(_QUEUE, 31, encoded.long(count))


def _delete_queue(asked: _Asked) -> None:
    asked.arguments.short()
    name = asked.arguments.text()
    if_unused, if_empty, no_wait = asked.arguments.bits(3)
    count = asked.host.delete_queue(name, asked.session, if_unused=if_unused, if_empty=if_empty)
    if not no_wait:
        asked.answer(_QUEUE, 41, encoded.long(count))


# --- messages -------------------------------------------------------------------------------------


def _limit(asked: _Asked) -> None:
    asked.arguments.long()
    asked.channel.prefetch = asked.arguments.short()
    asked.answer(_BASIC_CLASS, 11)


def _consume(asked: _Asked) -> None:
    arguments = asked.arguments
    arguments.short()
    name, tag = arguments.text(), arguments.text()
    _, no_ack, exclusive, no_wait = arguments.bits(4)
    table = arguments.table()
    priority = table.get("x-priority")
    queue = asked.host.queue(name, asked.session)
    tag = tag or asked.channel.new_tag()
    asked.channel.consume(
        queue,
        tag,
        priority=priority if isinstance(priority, int) else 0,
        no_ack=no_ack,
        exclusive=exclusive,
        offset=table.get("x-stream-offset"),
    )
    if not no_wait:
        asked.answer(_BASIC_CLASS, 21, encoded.text(tag))


def _cancel(asked: _Asked) -> None:
    tag = asked.arguments.text()
    (no_wait,) = asked.arguments.bits(1)
    asked.channel.cancel(tag)
    if not no_wait:
        asked.answer(_BASIC_CLASS, 31, encoded.text(tag))


def _get(asked: _Asked) -> None:
    asked.arguments.short()
    queue = asked.host.queue(asked.arguments.text(), asked.session)
    (no_ack,) = asked.arguments.bits(1)
    asked.host.run()
    asked.channel.get(queue, no_ack=no_ack)


def _ack(asked: _Asked) -> None:
    tag = asked.arguments.longlong()
    (multiple,) = asked.arguments.bits(1)
    asked.channel.ack(tag, multiple=multiple)


def _reject(asked: _Asked) -> None:
    tag = asked.arguments.longlong()
    (requeue,) = asked.arguments.bits(1)
    asked.channel.reject(tag, multiple=False, requeue=requeue, failed=True)


def _nack(asked: _Asked) -> None:
    tag = asked.arguments.longlong()
    multiple, requeue = asked.arguments.bits(2)
    asked.channel.reject(tag, multiple=multiple, requeue=requeue, failed=False)


def _recover(asked: _Asked) -> None:
    asked.channel.recover()
    asked.answer(_BASIC_CLASS, 111)


# --- confirms and transactions --------------------------------------------------------------------


def _confirm(asked: _Asked) -> None:
    asked.channel.confirms = True
    asked.answer(_CONFIRM, 11)


def _select(asked: _Asked) -> None:
    asked.channel.transaction = []
    asked.answer(_TX, 11)


def _commit(asked: _Asked) -> None:
    asked.channel.commit()
    asked.answer(_TX, 21)


def _roll_back(asked: _Asked) -> None:
    asked.channel.transaction = []
    asked.answer(_TX, 31)


_METHODS: Mapping[tuple[int, int], Callable[[_Asked], None]] = {
    (_EXCHANGE, 10): _declare_exchange,
    (_EXCHANGE, 20): _delete_exchange,
    (_EXCHANGE, 30): _bind_exchange,
    (_EXCHANGE, 40): _unbind_exchange,
    (_QUEUE, 10): _declare_queue,
    (_QUEUE, 20): _bind_queue,
    (_QUEUE, 30): _purge_queue,
    (_QUEUE, 40): _delete_queue,
    (_QUEUE, 50): _unbind_queue,
    (_BASIC_CLASS, 10): _limit,
    (_BASIC_CLASS, 20): _consume,
    (_BASIC_CLASS, 30): _cancel,
    (_BASIC_CLASS, 70): _get,
    (_BASIC_CLASS, 80): _ack,
    (_BASIC_CLASS, 90): _reject,
    (_BASIC_CLASS, 110): _recover,
    (_BASIC_CLASS, 120): _nack,
    (_CONFIRM, 10): _confirm,
    (_TX, 10): _select,
    (_TX, 20): _commit,
    (_TX, 30): _roll_back,
}


_GREETING = b"AMQP\0\0\x09\1"
_FRAME = struct.Struct(">BHI")
_CONTENT_HEADER = struct.Struct(">HHQ")
_METHOD, _HEADER, _BODY, _HEARTBEAT = 1, 2, 3, 8
_FRAME_MAX, _CHANNEL_MAX = 131_072, 2047
_CONNECTION, _CHANNEL, _BASIC, _PUBLISH = 10, 20, 60, 40
_END_MARK = 0xCE
HEARTBEAT = b"\x08\0\0\0\0\0\0\xce"

_CAPABILITIES = (
    "authentication_failure_close",
    "basic.nack",
    "connection.blocked",
    "consumer_cancel_notify",
    "consumer_priorities",
    "exchange_exchange_bindings",
    "per_consumer_qos",
    "publisher_confirms",
)


class BrokerModel(Protocol):
    """The broker as seen by a connection."""

    @property
    def version(self) -> str:
        """The version that the broker reports."""

    @property
    def virtual_hosts(self) -> Mapping[str, VirtualHost]:
        """The virtual hosts by name."""

    def lets_in(self, username: str, password: str) -> bool:
        """Return whether this user may log in."""


class _Incoming:
    """A message whose frames are still arriving."""

    __slots__ = ("body", "exchange", "mandatory", "missing", "properties", "routing_key")

    def __init__(self, exchange: str, routing_key: str, mandatory: bool) -> None:
        self.exchange = exchange
        self.routing_key = routing_key
        self.mandatory = mandatory
        self.properties = b""
        self.body: list[bytes] = []
        self.missing = -1


class ClientSession:
    """One connection of a client."""

    def __init__(self, model: BrokerModel, write: Callable[[bytes], None]) -> None:
        self._model = model
        self._write = write
        self._buffer = b""
        self._has_started = False
        self._user = ""
        self._host: VirtualHost | None = None
        self._frame_max = _FRAME_MAX
        self._channels: dict[int, SessionChannel] = {}
        self._closing_channels: set[int] = set()
        self._incoming: dict[int, _Incoming] = {}
        self._is_closing = False
        self.heartbeat = 0
        """Seconds between heartbeats that the client wants; 0 for none."""
        self.is_over = False
        """Whether the socket has to be closed once everything is sent."""

    @property
    def host(self) -> VirtualHost | None:
        """The virtual host, once one is open."""
        return self._host

    def feed(self, data: bytes) -> None:
        """Process received bytes."""
        self._buffer += data
        if not self._has_started:
            if len(self._buffer) < len(_GREETING):
                return
            self._send_start()
        position = 0
        buffer = self._buffer
        while not self.is_over and len(buffer) - position >= 8:
            kind, number, length = _FRAME.unpack_from(buffer, position)
            end = position + length + 8
            if length + 8 > self._frame_max:
                self._close(RefusedByModel(FRAME_ERROR, f"type {kind}, frame too large"))
                position = len(buffer)
                break
            if end > len(buffer):
                break
            if buffer[end - 1] != _END_MARK:
                self._close(RefusedByModel(FRAME_ERROR, "a frame has no end mark"))
                position = len(buffer)
                break
            self._take(kind, number, buffer[position + 7 : end - 1])
            position = end
        self._buffer = buffer[position:]

    def lost(self) -> None:
        """Clean up after the client has disconnected."""
        self.is_over = True
        for channel in list(self._channels.values()):
            channel.end()
        self._channels.clear()
        if self._host is not None:
            self._host.leave(self)

    def _send_start(self) -> None:
        if self._buffer[: len(_GREETING)] != _GREETING:
            self._write(_GREETING)
            self.is_over = True
            return
        self._has_started = True
        self._buffer = self._buffer[len(_GREETING) :]
        able: dict[str, FieldValue] = dict.fromkeys(_CAPABILITIES, True)
        about: dict[str, FieldValue] = {
            "capabilities": able,
            "product": "RabbitMQ",
            "platform": "redrive.testing.MemoryBroker",
            "version": self._model.version,
        }
        arguments = (
            b"\0\x09"
            + encoded.table(Table.of(about))
            + encoded.long_bytes(b"PLAIN")
            + encoded.long_bytes(b"en_US")
        )
        self._write(method_frame(0, _CONNECTION, 10, arguments))

    def _take(self, kind: int, number: int, payload: bytes) -> None:
        if kind == _HEARTBEAT:
            return
        try:
            if number == 0:
                self._take_of_connection(payload)
            elif number in self._closing_channels:
                self._take_of_closing(kind, number, payload)
            else:
                self._take_of_channel(kind, number, payload)
        except (BadFrame, struct.error, IndexError):
            self._close(RefusedByModel(FRAME_ERROR, "a frame can't be read"))
        except RefusedByModel as refused:
            if refused.ends_connection or number == 0:
                self._close(refused)
            else:
                self._close_channel(number, refused, payload if kind == _METHOD else b"")

    # --- the connection ---------------------------------------------------------------------------

    def _take_of_connection(self, payload: bytes) -> None:
        class_id, method = struct.unpack_from(">HH", payload)
        if class_id != _CONNECTION:
            raise RefusedByModel(COMMAND_INVALID, f"class {class_id} on channel 0")
        arguments = MethodArguments(payload)
        if self._is_closing and method not in (50, 51):
            return
        match method:
            case 11:
                self._log_in(arguments)
            case 31:
                arguments.short()
                self._frame_max = arguments.long() or _FRAME_MAX
                self.heartbeat = arguments.short()
            case 40:
                self._open(arguments.text())
            case 50:
                self.lost()
                self._write(method_frame(0, _CONNECTION, 51))
            case 51:
                self.is_over = True
            case 70:
                self._write(method_frame(0, _CONNECTION, 71))
            case _:
                raise RefusedByModel(COMMAND_INVALID, f"method 10.{method}")

    def _log_in(self, arguments: MethodArguments) -> None:
        arguments.table()
        mechanism = arguments.text()
        _, _, rest = arguments.bytes().partition(b"\0")
        username, _, password = rest.partition(b"\0")
        name = username.decode("utf-8", "replace")
        if mechanism != "PLAIN" or not self._model.lets_in(
            name, password.decode("utf-8", "replace")
        ):
            raise RefusedByModel(
                ACCESS_REFUSED, f"Login was refused using authentication mechanism {mechanism}."
            )
        self._user = name
        tune = encoded.short(_CHANNEL_MAX) + encoded.long(_FRAME_MAX) + encoded.short(0)
        self._write(method_frame(0, _CONNECTION, 30, tune))

    def _open(self, name: str) -> None:
        self._host = self._model.virtual_hosts.get(name)
        if self._host is None:
            raise RefusedByModel(NOT_ALLOWED, f"vhost {name} not found")
        self._write(method_frame(0, _CONNECTION, 41, b"\0"))

    def _close(self, refused: RefusedByModel) -> None:
        self.lost()
        self.is_over = False  # until the client has closed it, too
        self._is_closing = True
        arguments = encoded.short(refused.code) + encoded.text(refused.text) + b"\0\0\0\0"
        self._write(method_frame(0, _CONNECTION, 50, arguments))

    # --- channels ---------------------------------------------------------------------------------

    def _take_of_channel(self, kind: int, number: int, payload: bytes) -> None:
        if self._is_closing or self._host is None:
            return
        if kind == _METHOD:
            class_id, method = struct.unpack_from(">HH", payload)
            if class_id == _CHANNEL:
                self._take_of_channel_class(number, method)
                return
            channel = self._channels.get(number)
            if channel is None:
                raise RefusedByModel(COMMAND_INVALID, f"channel {number} is not open")
            if class_id == _BASIC and method == _PUBLISH:
                self._begin_message(number, MethodArguments(payload))
            else:
                carry_out(self._host, self, channel, self._write, (class_id, method), payload)
        elif kind in (_HEADER, _BODY):
            self._take_content(kind, number, payload)

    def _take_of_channel_class(self, number: int, method: int) -> None:
        match method:
            case 10:
                assert self._host is not None
                self._channels[number] = SessionChannel(
                    number, self._host, self._write, self._frame_max, self._user
                )
                self._write(method_frame(number, _CHANNEL, 11, b"\0\0\0\0"))
            case 20:
                self._write(method_frame(number, _CHANNEL, 21, b"\1"))
            case 40:
                self._end_channel(number)
                self._write(method_frame(number, _CHANNEL, 41))
            case _:
                raise RefusedByModel(COMMAND_INVALID, f"method 20.{method}")

    def _take_of_closing(self, kind: int, number: int, payload: bytes) -> None:
        """Ignore everything on a channel that the broker has closed, until the client confirms
        that."""
        if kind == _METHOD and payload[:2] == b"\0\x14":
            if payload[2:4] == b"\0\x28":
                self._write(method_frame(number, _CHANNEL, 41))
            if payload[2:4] in (b"\0\x28", b"\0\x29"):
                self._closing_channels.discard(number)

    def _close_channel(self, number: int, refused: RefusedByModel, method: bytes) -> None:
        self._end_channel(number)
        self._closing_channels.add(number)
        arguments = (
            encoded.short(refused.code)
            + encoded.text(refused.text)
            + (method[:4] or b"\0\x3c\0\x28")
        )
        self._write(method_frame(number, _CHANNEL, 40, arguments))

    def _end_channel(self, number: int) -> None:
        self._incoming.pop(number, None)
        channel = self._channels.pop(number, None)
        if channel is not None:
            channel.end()

    # --- messages ---------------------------------------------------------------------------------

    def _begin_message(self, number: int, arguments: MethodArguments) -> None:
        arguments.short()
        exchange, routing_key = arguments.text(), arguments.text()
        mandatory, immediate = arguments.bits(2)
        if immediate:
            raise RefusedByModel(COMMAND_INVALID, "immediate=true")
        self._incoming[number] = _Incoming(exchange, routing_key, mandatory)

    def _take_content(self, kind: int, number: int, payload: bytes) -> None:
        incoming = self._incoming.get(number)
        if incoming is None:
            raise RefusedByModel(FRAME_ERROR, "content without a publish")
        if kind == _HEADER:
            _, _, incoming.missing = _CONTENT_HEADER.unpack_from(payload)
            incoming.properties = payload[12:]
        else:
            incoming.missing -= len(payload)
            incoming.body.append(payload)
        if incoming.missing == 0:
            del self._incoming[number]
            self._channels[number].publish(
                incoming.exchange,
                incoming.routing_key,
                incoming.mandatory,
                incoming.properties,
                b"".join(incoming.body),
            )
