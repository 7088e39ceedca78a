"""Identify a failed message by its content, whatever its headers claim.

A failure id is a header that anyone who may write into the failed queue can forge: it names a
message for people, and proves nothing. Code that deletes, changes or counts a message uses its
digest.
"""

import hashlib
import struct
from operator import itemgetter

from redrive.amqp.field_table import LONG_STRING, end_of_value
from redrive.topology.headers import ACQUIRED_COUNT, DELIVERY_COUNT, stays_behind

_UINT16 = struct.Struct(">H")
_UINT32 = struct.Struct(">I")
_CONTENT_TYPE, _CONTENT_ENCODING, _HEADERS = 1 << 15, 1 << 14, 1 << 13
_LENGTHS = struct.Struct(">H4Q")
_COUNTS = tuple(bytes((len(name),)) + name.encode() for name in (DELIVERY_COUNT, ACQUIRED_COUNT))
_MOST_NAMES = 4096
_NAME = itemgetter(0)


def digest_of(routing_key: str, properties: bytes, body: bytes) -> str:
    """Return a SHA-256, in hex, of a whole message: its routing key, its encoded properties and its
    body.

    It is the same each time a queue delivers the message, and in a snapshot or an archive. It
    leaves out the headers in which the broker counts deliveries, and the order of the headers,
    since these may change from one delivery to the next.
    """
    before, fields, behind = _parts_of(properties)
    fields.sort(key=_NAME)
    parts = (
        routing_key.encode("utf-8", "surrogateescape"),
        before,
        behind,
        body,
        *(field for _, field in fields),
    )
    lengths = struct.pack(f">{len(parts)}Q", *map(len, parts))
    return hashlib.sha256(b"".join((lengths, *parts))).hexdigest()


def quick_digest(
    routing_key: str, properties: bytes, body: bytes, *, in_order: bool = False
) -> bytes:
    """Return 16 bytes that identify a whole message among those of its queue, at a tenth of the
    cost of `digest_of`.

    They leave out the headers in which the broker counts deliveries. With `in_order`, they are
    those of the message with its headers ordered by name, which costs as much as `digest_of`: a
    quorum queue delivers a message with its headers as they came once, and then in this order.
    Source: measured on RabbitMQ 3.10.8, 4.0.5 and 4.3.6.
    """
    (flags,) = _UINT16.unpack_from(properties)
    start = 2
    if flags & _CONTENT_TYPE:
        start += 1 + properties[start]
    if flags & _CONTENT_ENCODING:
        start += 1 + properties[start]
    table, behind = b"", properties[start:]
    if flags & _HEADERS:
        end = start + 4 + _UINT32.unpack_from(properties, start)[0]
        table, behind = properties[start + 4 : end], properties[end:]
        for name in _COUNTS:
            at = table.find(name)
            after = None if at < 0 else end_of_value(table, at + len(name), len(table))
            if after is not None:
                table = table[:at] + table[after:]
        if in_order:
            table = b"".join(field for _, field in sorted(_fields(table, 0, len(table)), key=_NAME))
    key = routing_key.encode("utf-8", "surrogateescape")
    lengths = _LENGTHS.pack(flags & ~_HEADERS, start, len(key), len(table), len(behind))
    whole = b"".join((lengths, key, properties[2:start], table, behind, body))
    return hashlib.blake2b(whole, digest_size=16).digest()


def _parts_of(properties: bytes) -> tuple[bytes, list[tuple[bytes, bytes]], bytes]:
    """Return the encoded properties before the headers, the headers that travel, and the properties
    after them; unreadable bytes count as one header."""
    (flags,) = _UINT16.unpack_from(properties)
    start = 2
    for bit in (_CONTENT_TYPE, _CONTENT_ENCODING):
        if flags & bit:
            start += 1 + properties[start]
    # The broker adds headers of its own to a message that has none.
    before = _UINT16.pack(flags & ~_HEADERS) + properties[2:start]
    if not flags & _HEADERS:
        return before, [], properties[start:]
    end = start + 4 + _UINT32.unpack_from(properties, start)[0]
    travel = []
    for field in _fields(properties, start + 4, end):
        rule = _RULES.get(field[0])
        if not (_learn(field[0]) if rule is None else rule):
            travel.append(field)
    return before, travel, properties[end:]


def _fields(properties: bytes, position: int, end: int) -> list[tuple[bytes, bytes]]:
    """Return the fields of a table with their names; unreadable bytes count as one field."""
    fields: list[tuple[bytes, bytes]] = []
    while position < end:
        value_at = position + 1 + properties[position]
        # Most values are long strings, and a function call would cost more than reading one here.
        if value_at + 5 <= end and properties[value_at] == LONG_STRING:
            after: int | None = value_at + 5 + _UINT32.unpack_from(properties, value_at + 1)[0]
        else:
            after = end_of_value(properties, value_at, end)
        name = properties[position + 1 : value_at]
        if after is None or after > end:
            fields.append((name, properties[position:end]))
            break
        fields.append((name, properties[position:after]))
        position = after
    return fields


def _learn(name: bytes) -> bool:
    stays = stays_behind(name.decode("utf-8", "surrogateescape"))
    if len(_RULES) < _MOST_NAMES:
        _RULES[name] = stays
    return stays


_RULES: dict[bytes, bool] = {}
"""Whether a header stays behind, by its name: a queue has few names, and each message asks for
them."""
