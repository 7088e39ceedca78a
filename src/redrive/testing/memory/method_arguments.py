"""Decode and encode the arguments of AMQP methods."""

import struct

from redrive.amqp.field_table import Table
from redrive.amqp.frames import short_bytes, short_string

_UINT16 = struct.Struct(">H")
_UINT32 = struct.Struct(">I")
_UINT64 = struct.Struct(">Q")


class MethodArguments:
    """A reader of a method's arguments, one after the other."""

    def __init__(self, payload: bytes) -> None:
        self._data = payload
        self._position = 4

    def octet(self) -> int:
        """Read 8 bits."""
        self._position += 1
        return self._data[self._position - 1]

    def short(self) -> int:
        """Read 16 bits."""
        (value,) = _UINT16.unpack_from(self._data, self._position)
        self._position += 2
        return int(value)

    def long(self) -> int:
        """Read 32 bits."""
        (value,) = _UINT32.unpack_from(self._data, self._position)
        self._position += 4
        return int(value)

    def longlong(self) -> int:
        """Read 64 bits."""
        (value,) = _UINT64.unpack_from(self._data, self._position)
        self._position += 8
        return int(value)

    def text(self) -> str:
        """Read a short string."""
        value, self._position = short_string(self._data, self._position)
        return value

    def bytes(self) -> bytes:
        """Read a long string."""
        size = self.long()
        self._position += size
        return self._data[self._position - size : self._position]

    def table(self) -> Table:
        """Read a field table."""
        return Table.parse(self.bytes())

    def bits(self, count: int) -> list[bool]:
        """Read flags that share an octet."""
        value = self.octet()
        return [bool(value & 1 << place) for place in range(count)]


def short(value: int) -> bytes:
    """Encode 16 bits."""
    return _UINT16.pack(value)


def long(value: int) -> bytes:
    """Encode 32 bits."""
    return _UINT32.pack(value)


def longlong(value: int) -> bytes:
    """Encode 64 bits."""
    return _UINT64.pack(value)


def text(value: str) -> bytes:
    """Encode a short string, truncated to its maximum length."""
    return short_bytes(_cut(value))


def long_bytes(value: bytes) -> bytes:
    """Encode a long string."""
    return _UINT32.pack(len(value)) + value


def table(value: Table) -> bytes:
    """Encode a field table."""
    return long_bytes(value.encode())


def _cut(value: str) -> str:
    while len(value.encode("utf-8", "surrogateescape")) > 255:
        value = value[:-1]
    return value
