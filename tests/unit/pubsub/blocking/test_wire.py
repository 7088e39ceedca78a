"""What the socket takes is sent at once, and the rest left to pika, in its order."""

import socket
import ssl
from collections.abc import Iterator
from typing import Any

import pytest

from redrive.pubsub.blocking.wire import WireConnection


class Transport:
    """pika's, as far as a connection writes to it."""

    _STATE_ACTIVE = 1

    def __init__(self, sock: Any) -> None:
        self._sock = sock
        self._state = self._STATE_ACTIVE
        self.kept = b""

    def get_write_buffer_size(self) -> int:
        return len(self.kept)


class Connection(WireConnection):
    """One that is open, on a transport of the test's."""

    is_open = True

    def __init__(self, transport: Transport) -> None:
        self._transport: Any = transport
        self.bytes_sent = self.frames_sent = 0

    def _output_marshaled_frames(self, marshaled_frames: Any) -> None:
        self._transport.kept += b"".join(marshaled_frames)


@pytest.fixture
def ends() -> Iterator[tuple[socket.socket, socket.socket]]:
    """Both ends of a connection; the first does not wait."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.setblocking(False)
        theirs.settimeout(60)
        yield ours, theirs


def test_what_the_socket_takes_is_sent_at_once(ends: tuple[socket.socket, socket.socket]) -> None:
    ours, theirs = ends
    transport = Transport(ours)
    connection = Connection(transport)
    connection.write(b"a frame")
    assert theirs.recv(100) == b"a frame"
    assert (transport.kept, connection.bytes_sent) == (b"", 7)


def test_what_it_does_not_take_is_left_to_pika(ends: tuple[socket.socket, socket.socket]) -> None:
    ours, theirs = ends
    transport = Transport(ours)
    data = bytes(range(256)) * 40_000
    Connection(transport).write(data)
    assert 0 < len(transport.kept) < len(data)
    sent = b""
    while len(sent) < len(data) - len(transport.kept):
        sent += theirs.recv(1 << 20)
    assert sent + transport.kept == data


def test_nothing_overtakes_what_pika_has_still_to_send(
    ends: tuple[socket.socket, socket.socket],
) -> None:
    ours, theirs = ends
    transport = Transport(ours)
    transport.kept = b"first, "
    Connection(transport).write(b"then")
    assert transport.kept == b"first, then"
    theirs.setblocking(False)
    with pytest.raises(BlockingIOError):
        theirs.recv(100)


def test_a_socket_that_is_gone_is_left_to_pika_which_says_so(
    ends: tuple[socket.socket, socket.socket],
) -> None:
    ours, _ = ends
    transport = Transport(ours)
    ours.close()
    Connection(transport).write(b"a frame")
    assert transport.kept == b"a frame"


def test_on_a_connection_that_was_dropped_nothing_is_sent(
    ends: tuple[socket.socket, socket.socket],
) -> None:
    ours, theirs = ends
    transport = Transport(ours)
    transport._state = 2
    Connection(transport).write(b"an ack")
    theirs.setblocking(False)
    with pytest.raises(BlockingIOError):
        theirs.recv(100)


def test_over_tls_all_is_left_to_pika(ends: tuple[socket.socket, socket.socket]) -> None:
    ours, _ = ends
    context = ssl.create_default_context()
    wrapped = context.wrap_socket(ours, server_hostname="broker", do_handshake_on_connect=False)
    with wrapped:
        transport = Transport(wrapped)
        Connection(transport).write(b"a frame")
    assert transport.kept == b"a frame"
