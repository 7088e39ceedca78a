"""The opening of an AMQP 0-9-1 connection by hand: the only proof that a broker answers.

A port that accepts proves nothing: an engine's proxy accepts for a container that is still starting. A client library
would do the same as this module, but logs an error for every try, and a plugin that waits for a broker tries often.

Source: AMQP 0-9-1 specification, 2.2.4 and 4.2; class 10 is `connection`.
"""

import re
import socket
import ssl
import struct
import time
from typing import Final

from redrive.errors import BrokerUnavailable
from redrive.testing.address import Address

_METHOD_FRAME: Final = 1
_FRAME_END: Final = 0xCE
_START, _START_OK = (10, 10), (10, 11)
_TUNE, _TUNE_OK = (10, 30), (10, 31)
_OPEN, _OPEN_OK = (10, 40), (10, 41)
_CLOSE, _CLOSE_OK = (10, 50), (10, 51)
# A field of the server's properties: its name with a length byte, the type `S`, a length of four bytes, the value.
_VERSION: Final = re.compile(rb"\x07versionS(....)", re.DOTALL)


class _Refused(Exception):
    """The broker answered, and said no."""


def open_once(address: Address, timeout: float) -> str:
    """Open a connection to the virtual host and close it again. Return the broker's version, such as `4.3.6`.

    Args:
        address: whom to ask.
        timeout: seconds for each step.

    Raises:
        OSError: nobody answered, or not in time, or not in AMQP.
        BrokerUnavailable: the broker refused the user or the virtual host.
    """
    with socket.create_connection((address.host, address.port), timeout) as plain:
        if not address.tls:
            return _open(plain, address)
        with ssl.create_default_context().wrap_socket(plain, server_hostname=address.host) as secured:
            return _open(secured, address)


def wait_until_open(address: Address, deadline: float) -> str:
    """Try until a connection can be opened. Return the broker's version.

    Args:
        address: whom to ask.
        deadline: until when, as `time.monotonic()` counts.

    Raises:
        BrokerUnavailable: no connection could be opened in time.
    """
    while True:
        try:
            return open_once(address, timeout=2)
        except (OSError, BrokerUnavailable) as error:
            # A broker that boots listens before its virtual host is there, and refuses for a moment.
            if time.monotonic() >= deadline:
                raise BrokerUnavailable(address.label, f"no connection could be opened ({error})") from error
        time.sleep(0.05)


def _open(wire: socket.socket, address: Address) -> str:
    wire.sendall(b"AMQP\x00\x00\x09\x01")
    try:
        start = _expect(wire, _START)
        login = f"\x00{address.user}\x00{address.password}".encode()
        _send(wire, _START_OK, struct.pack(">I", 0), _short(b"PLAIN"), struct.pack(">I", len(login)), login, _short(b"en_US"))
        channel_max, frame_max, _ = struct.unpack(">HIH", _expect(wire, _TUNE)[:8])
        _send(wire, _TUNE_OK, struct.pack(">HIH", channel_max, frame_max, 0))
        _send(wire, _OPEN, _short(address.virtual_host.encode()), _short(b""), b"\x00")
        _expect(wire, _OPEN_OK)
        _send(wire, _CLOSE, struct.pack(">H", 200), _short(b""), struct.pack(">HH", 0, 0))
        _expect(wire, _CLOSE_OK)
    except _Refused as refusal:
        raise BrokerUnavailable(address.label, str(refusal), "Check the user, the password and the virtual host.") from None
    found = _VERSION.search(start)
    if found is None:
        return "unknown"
    length = struct.unpack(">I", found.group(1))[0]
    return start[found.end() : found.end() + length].decode()


def _short(text: bytes) -> bytes:
    return bytes([len(text)]) + text


def _send(wire: socket.socket, method: tuple[int, int], *arguments: bytes) -> None:
    payload = struct.pack(">HH", *method) + b"".join(arguments)
    wire.sendall(struct.pack(">BHI", _METHOD_FRAME, 0, len(payload)) + payload + bytes([_FRAME_END]))


def _expect(wire: socket.socket, method: tuple[int, int]) -> bytes:
    """Return the arguments of the next method frame, which must be `method`."""
    while True:
        kind, _, size = struct.unpack(">BHI", _read(wire, 7))
        if size > 1 << 20:
            raise ConnectionError("the answer is not AMQP")
        payload = _read(wire, size + 1)[:-1]
        if kind == _METHOD_FRAME:
            break
    found = struct.unpack(">HH", payload[:4])
    if found == method:
        return payload[4:]
    if found == _CLOSE:
        length = payload[6]
        raise _Refused(payload[7 : 7 + length].decode(errors="replace"))
    raise ConnectionError(f"the broker sent method {found}, expected {method}")


def _read(wire: socket.socket, size: int) -> bytes:
    received = bytearray()
    while len(received) < size:
        chunk = wire.recv(size - len(received))
        if not chunk:
            raise ConnectionError("the broker closed the connection")
        received += chunk
    return bytes(received)
