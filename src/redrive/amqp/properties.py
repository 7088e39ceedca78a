"""Read and write the properties of a message byte for byte.

Source: AMQP 0-9-1 specification, 4.2.6.1
"""

import struct
from functools import lru_cache
from typing import NamedTuple

from redrive.amqp.field_table import EMPTY, MAX_SHORT_STRING, Table
from redrive.errors import ConfigurationError

_UINT16 = struct.Struct(">H")
_UINT32 = struct.Struct(">I")
_UINT64 = struct.Struct(">Q")

_SHORT, _OCTET, _TIMESTAMP, _TABLE = range(4)

_HEADER_FRAME_OVERHEAD = 8  # frame type, channel, length, end mark
_CONTENT_HEADER_OVERHEAD = 12  # class, weight, body size


def content_header_room(frame_max: int) -> int:
    """Return how many bytes of property flags and properties fit on a connection. If there are
    more, the broker closes the connection.

    Source: measured on RabbitMQ 3.10.8, 4.0.5 and 4.3.6: the content header must fit one frame.
    """
    return frame_max - _HEADER_FRAME_OVERHEAD - _CONTENT_HEADER_OVERHEAD if frame_max else 2**31


class Malformed(ValueError):
    """Bytes that are not valid AMQP."""


class Properties(NamedTuple):
    """The properties of a message. `None` means that a property is not set; `timestamp` is in
    seconds since 1970, UTC."""

    content_type: str | None = None
    content_encoding: str | None = None
    headers: Table = EMPTY
    delivery_mode: int | None = None
    priority: int | None = None
    correlation_id: str | None = None
    reply_to: str | None = None
    expiration: str | None = None
    message_id: str | None = None
    timestamp: int | None = None
    type: str | None = None
    user_id: str | None = None
    app_id: str | None = None
    cluster_id: str | None = None

    @classmethod
    def parse(cls, data: bytes) -> "Properties":
        """Decode the bytes of a content header, starting at the property flags."""
        values: list[object] = list(_NOTHING_SET)
        position = 2
        try:
            for index, kind in _fields_of(_UINT16.unpack_from(data)[0]):
                if kind == _SHORT:
                    end = position + 1 + data[position]
                    values[index] = data[position + 1 : end].decode("utf-8", "surrogateescape")
                elif kind == _TABLE:
                    end = position + 4 + _UINT32.unpack_from(data, position)[0]
                    values[index] = Table.parse(data[position + 4 : end])
                elif kind == _OCTET:
                    end = position + 1
                    values[index] = data[position]
                else:
                    end = position + 8
                    values[index] = _UINT64.unpack_from(data, position)[0]
                position = end
        except (IndexError, struct.error) as error:
            raise Malformed("the properties of a message are cut off") from error
        if position > len(data):
            raise Malformed("the properties of a message are cut off")
        return tuple.__new__(cls, values)  # same as `cls(*values)`, which takes four times as long

    def encode(self) -> bytes:
        """Return the bytes of the property flags and the properties."""
        flags = 0
        pieces = [b""]
        for (name, bit, kind), value in zip(_LAYOUT, self, strict=True):
            if value is None or value is EMPTY:
                continue
            flags |= bit
            if kind == _SHORT:
                pieces.append(_encode_short(name, value))
            elif isinstance(value, Table):
                encoded = value.encode()
                pieces += (_UINT32.pack(len(encoded)), encoded)
            else:
                pieces.append(_encode_number(name, kind, value))
        pieces[0] = _UINT16.pack(flags)
        return b"".join(pieces)


_KINDS = {"headers": _TABLE, "delivery_mode": _OCTET, "priority": _OCTET, "timestamp": _TIMESTAMP}
_LAYOUT = tuple(
    (name, 1 << (15 - index), _KINDS.get(name, _SHORT))
    for index, name in enumerate(Properties._fields)
)
_NOTHING_SET = tuple(Properties())


@lru_cache(maxsize=256)
def _fields_of(flags: int) -> tuple[tuple[int, int], ...]:
    """Return index and kind of each property whose flag is set."""
    return tuple((index, kind) for index, (_, bit, kind) in enumerate(_LAYOUT) if flags & bit)


def encode_id_and_timestamp(message_id: str, timestamp: int) -> bytes:
    """Encode these two properties, which come last in a message without type, user, application and
    cluster."""
    return _encode_short("message_id", message_id) + _encode_number(
        "timestamp", _TIMESTAMP, timestamp
    )


def _encode_short(name: str, value: object) -> bytes:
    if not isinstance(value, str):
        raise ConfigurationError(f"the property {name} is {value!r}", "Give a string.")
    try:
        encoded = value.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError as error:
        raise ConfigurationError(
            f"the property {name} is {value!r}, which is not valid Unicode", "Use another text."
        ) from error
    if len(encoded) > MAX_SHORT_STRING:
        raise ConfigurationError(
            f"the property {name} is {len(encoded)} bytes; AMQP carries at most {MAX_SHORT_STRING}",
            f"Use a shorter {name}.",
        )
    return bytes((len(encoded),)) + encoded


def _encode_number(name: str, kind: int, value: object) -> bytes:
    most = 2**64 - 1 if kind == _TIMESTAMP else 255
    if (
        kind == _TABLE
        or not isinstance(value, int)
        or isinstance(value, bool)
        or not 0 <= value <= most
    ):
        raise ConfigurationError(
            f"the property {name} is {value!r}",
            "Give a Table." if kind == _TABLE else f"Give 0 to {most}.",
        )
    return _UINT64.pack(value) if kind == _TIMESTAMP else bytes((value,))
