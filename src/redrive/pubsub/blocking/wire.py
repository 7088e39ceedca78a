"""Extend pika's connection with messages that bypass its codec.

pika does the handshake, heartbeats, channels and declarations. The frames of messages, acks and
confirms are read and written here, because pika's codec changes header values (a float becomes an
int) and takes half of a message's cost.

The hooks are a method that pika calls with received bytes, `Connection._on_data_available`, and one
that takes bytes to send, `_output_marshaled_frames`; besides these, how much pika reads at a time,
and its socket while pika itself has nothing to send. A test checks them against new pika releases.
The process's other pika connections are not affected.

Source: pika 1.3.2 to 1.4.4.
"""

import socket
from collections.abc import Callable
from typing import Any

import pika
from pika import exceptions, frame

from redrive.amqp.frames import BadFrame, ChannelEvents, FrameReader
from redrive.pubsub.client_hook import check_hooks
from redrive.pubsub.wire_protocol import DOWN, HUNG, Channel, Done, logged_block
from redrive.topology.broker_version import BrokerVersion

_READ_SIZE = 64 * 1024

check_hooks(
    "pika",
    ">=1.3.2,<=1.4.4",
    {
        getattr(pika.connection.Connection, name, None): arguments
        for name, arguments in {
            "_on_data_available": ["data_in"],
            "_output_marshaled_frames": ["marshaled_frames"],
            "_process_frame": ["frame_value"],
            "_terminate_stream": ["error"],
            "_on_stream_connected": [],
        }.items()
    },
)


class _PikaChannel:
    """A channel of a pika connection."""

    def __init__(self, channel: pika.channel.Channel, reader: FrameReader) -> None:
        self._channel = channel
        self._reader = reader
        self.number: int = channel.channel_number

    @property
    def is_open(self) -> bool:
        """Whether the channel is open."""
        return bool(self._channel.is_open)

    def confirm(self, done: Done) -> None:
        """Enable publisher confirms."""
        self._channel.confirm_delivery(_pika_never_calls_this, callback=lambda _: done())

    def limit(self, prefetch: int, done: Done | None = None) -> None:
        """Set how many unsettled deliveries each consumer started from now on may have."""
        self._channel.basic_qos(
            prefetch_count=prefetch, callback=None if done is None else lambda _: done()
        )

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
        given = {
            "x-priority": priority,
            "x-stream-offset": offset,
            "x-consumer-timeout": timeout,
            HUNG: hung,
            DOWN: down,
        }
        arguments = {name: value for name, value in given.items() if value is not None} or None
        answered = None if done is None else lambda _: done()
        tag = self._channel.basic_consume(
            queue, _pika_never_calls_this, arguments=arguments, callback=answered
        )
        return str(tag)

    def count_consumers(self, queue: str, counted: Callable[[int], None]) -> None:
        """Call `counted` with the number of a queue's consumers."""
        self._channel.queue_declare(
            queue, passive=True, callback=lambda frame: counted(frame.method.consumer_count)
        )

    def cancel(self, tag: str, done: Done) -> None:
        """End a consumer."""
        self._channel.basic_cancel(tag, callback=lambda _: done())

    def close(self, done: Done) -> None:
        """Close the channel; unsettled messages return to their queue."""
        self._reader.unwatch(self.number)
        self._channel.add_on_close_callback(lambda _, __: done())
        self._channel.close()


class WireConnection(pika.SelectConnection):
    """A pika connection that sends and receives messages as bytes."""

    def __init__(self, *args: object, **options: object) -> None:
        self._reader = FrameReader(self._on_other_frame)
        super().__init__(*args, **options)  # type: ignore[arg-type]

    def open_channel(self, events: ChannelEvents, opened: Callable[[Channel], None]) -> None:
        """Open a channel; its messages and confirms go to `events`, bypassing pika."""

        def is_open(channel: pika.channel.Channel) -> None:
            number = channel.channel_number

            def closed(_: object, reason: BaseException) -> None:
                self._reader.unwatch(number)
                if isinstance(reason, exceptions.ChannelClosedByBroker) and self.is_open:
                    events.closed(reason.reply_code, reason.reply_text)

            channel.add_on_close_callback(closed)
            channel.add_on_cancel_callback(lambda _: events.cancelled())
            self._reader.limit(self.frame_max)
            self._reader.watch(number, events)
            opened(_PikaChannel(channel, self._reader))

        self.channel(on_open_callback=is_open)

    def on_blocked(self, blocked: Callable[[str], None], unblocked: Done) -> None:
        """Call `blocked` with the broker's reason when it stops accepting messages, and `unblocked`
        when it accepts them again."""
        block, unblock = logged_block(blocked, unblocked)
        self.add_on_connection_blocked_callback(lambda _, told: block(str(told.method.reason)))
        self.add_on_connection_unblocked_callback(lambda _, __: unblock())

    def update_login(self, password: str) -> None:
        """Give the broker a new password to check the user's permissions with from now on."""
        if self.is_open:
            self.update_secret(password, "it expires")

    def write(self, data: bytes) -> None:
        """Send whole frames. They are dropped if the connection is closing."""
        if data and self.is_open:
            rest = self._send_at_once(data)
            if rest:
                self._output_marshaled_frames([rest])

    def _send_at_once(self, data: bytes) -> bytes:
        """Send what the socket accepts now, and return the rest.

        pika would only store the data and ask its loop to report when the socket is writable, which
        costs a turn of the loop and two more system calls.
        """
        transport = self._transport
        if (
            transport is None
            or transport._state != transport._STATE_ACTIVE  # dropped: the socket is closed later
            or transport.get_write_buffer_size()
            or type(transport._sock) is not socket.socket  # TLS, which has its own state
        ):
            return data
        try:
            sent = transport._sock.send(data)
        except OSError:  # it is full or gone: pika will notice, and handle it
            return data
        self.bytes_sent += sent
        self.frames_sent += 1
        return data[sent:]

    def drop(self) -> bool:
        """Drop the socket without closing the connection, as a crash would."""
        if self.is_closed:
            return False
        if self._transport is None:
            self.close()  # there is no socket yet: this stops the attempt to open one
        elif self._opened:
            self._terminate_stream(exceptions.ConnectionClosedByClient(200, "dropped"))
        else:
            self.hang_up()
            return False
        return True

    def hang_up(self) -> None:
        """Close the socket, and do nothing else."""
        if self._transport is not None:
            self._transport._sock.close()

    @property
    def version(self) -> BrokerVersion:
        """The broker's version."""
        return BrokerVersion.parse((self.server_properties or {}).get("version"))

    @property
    def frame_max(self) -> int:
        """The negotiated maximum frame size in bytes; 0 for no limit."""
        return int(self.params.frame_max or 0)

    def _on_stream_connected(self) -> None:
        # pika reads 4 KiB at a time, which means a system call, and a chance to lose the GIL, for
        # every message or two.
        self._transport._MAX_RECV_BYTES = _READ_SIZE  # type: ignore[union-attr]
        super()._on_stream_connected()

    def _on_data_available(self, data_in: bytes) -> None:
        self.bytes_received += len(data_in)
        try:
            self.frames_received += self._reader.feed(data_in)
        except BadFrame as error:
            raise exceptions.InvalidFrameError(str(error)) from error

    def _on_other_frame(self, _: int, __: int, data: bytes) -> None:
        other: Any
        try:
            _, other = frame.decode_frame(data)
        except Exception as error:  # pika's parser raises all kinds of exceptions
            raise exceptions.InvalidFrameError("it can't be read") from error
        if other is not None:
            self._process_frame(other)


def _pika_never_calls_this(*_: object) -> None:
    """Fill a callback parameter of pika's: deliveries and confirms bypass pika."""
