"""Decode headers that EasyNetQ wrote as JSON, with a number for the type of each.

Source: EasyNetQ 8.1.5, Serialization/JsonHeaderType.cs; how each type is written in AMQP:
RabbitMQ.Client 7, Impl/WireFormatting.Write.cs.
"""

import base64
import struct
from collections.abc import Iterator, Mapping
from decimal import Decimal
from enum import IntEnum

from redrive.amqp.field_table import MAX_DEPTH, MAX_SHORT_STRING, Table, encode_value


class _Type(IntEnum):
    NULL = 1
    BOOL = 2
    BYTE = 3
    SBYTE = 4
    INT16 = 5
    INT32 = 6
    UINT32 = 7
    INT64 = 8
    SINGLE = 9
    DOUBLE = 10
    DECIMAL = 11
    TIMESTAMP = 12
    STRING = 13
    BYTES = 14
    LIST = 15
    DICTIONARY = 16
    BINARY_TABLE = 17


_NUMBERS = {
    _Type.BYTE: (b"B", ">B"),
    _Type.SBYTE: (b"b", ">b"),
    _Type.INT16: (b"s", ">h"),
    _Type.INT32: (b"I", ">i"),
    _Type.UINT32: (b"i", ">I"),
    _Type.INT64: (b"l", ">q"),
    _Type.SINGLE: (b"f", ">f"),
    _Type.DOUBLE: (b"d", ">d"),
    _Type.TIMESTAMP: (b"T", ">Q"),
}


class UnreadableValue(ValueError):
    """A header that is not in EasyNetQ's format."""


def fields_of(headers: Mapping[str, object], depth: int = 0) -> Iterator[tuple[str, bytes]]:
    """Iterate over each header's name and encoded value, tag first."""
    for name, value in headers.items():
        yield _checked(name), _field(value, depth)


def _checked(name: str) -> str:
    try:
        length = len(name.encode())
    except UnicodeEncodeError as error:
        raise UnreadableValue(f"the name {name!r:.40} is not valid Unicode") from error
    if length > MAX_SHORT_STRING:
        raise UnreadableValue(
            f"the name {name:.40} is {length} bytes, more than {MAX_SHORT_STRING}"
        )
    return name


def _field(header: object, depth: int) -> bytes:
    if not isinstance(header, Mapping) or depth > MAX_DEPTH:
        raise UnreadableValue("a header has no type, or is nested too deep")
    kind, value = header.get("Type"), header.get("Value")
    try:
        return _encoded(_Type(kind), value, depth)  # type: ignore[arg-type]
    except (struct.error, ValueError, OverflowError) as error:
        raise UnreadableValue(f"a header of type {kind!r:.40} has another kind of value") from error


def _encoded(kind: _Type, value: object, depth: int) -> bytes:
    match kind, value:
        case _, int() | float() if kind in _NUMBERS:
            tag, form = _NUMBERS[kind]
            return tag + struct.pack(form, value)
        case _Type.NULL, None:
            return encode_value(None)
        case _Type.BOOL, bool():
            return encode_value(value)
        case _Type.DECIMAL, int() | float() if not isinstance(value, bool):
            return encode_value(Decimal(str(value)))
        case _Type.STRING, str():
            return encode_value(value)
        case _Type.BYTES, str():
            # Its client receives strings as bytes, and publishes such bytes as a string again.
            return _long(b"S", base64.b64decode(value, validate=True))
        case _Type.BINARY_TABLE, str():
            return _long(b"x", base64.b64decode(value, validate=True))
        case _Type.LIST, list():
            return _long(b"A", b"".join([_field(item, depth + 1) for item in value]))
        case _Type.DICTIONARY, Mapping():
            return _long(b"F", Table(fields_of(value, depth + 1)).encode())
        case _:
            raise UnreadableValue("the value is of another type than the header says")


def _long(tag: bytes, payload: bytes) -> bytes:
    return tag + len(payload).to_bytes(4, "big") + payload
