"""Identify a failed message by its content, whatever its headers claim.

A failure id is a header that anyone who may write into the failed queue can forge: it names a
message for people, and proves nothing. Code that deletes, changes or counts a message uses its
digest.
"""

import hashlib
import struct
from operator import itemgetter

from redrive.amqp.field_table import LONG_STRING, end_of_value
from redrive.topology.headers import stays_behind

_UINT16 = struct.Struct(">H")
_UINT32 = struct.Struct(">I")
_CONTENT_TYPE, _CONTENT_ENCODING, _HEADERS = 1 << 15, 1 << 14, 1 << 13
_MOST_NAMES = 4096
_PIECE, _MOST_AT_ONCE = 2047, 64 * 1024
"""Bytes."""
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
        *[field for _, field in fields],
    )
    lengths = struct.pack(f">{len(parts)}Q", *map(len, parts))
    return _sha256(b"".join((lengths, *parts)))


def _sha256(data: bytes) -> str:
    """Return a SHA-256 in hex, without handing over to another thread for what takes microseconds:
    hashlib does so for 2,048 bytes or more, and may get its turn back milliseconds later.

    Source: HASHLIB_GIL_MINSIZE of CPython; measured on 3.11 beside a busy I/O thread.
    """
    if len(data) > _MOST_AT_ONCE:
        return hashlib.sha256(data).hexdigest()
    digest = hashlib.sha256()
    for start in range(0, len(data), _PIECE):
        digest.update(data[start : start + _PIECE])
    return digest.hexdigest()


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
    position = start + 4
    end = position + _UINT32.unpack_from(properties, start)[0]
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
        rule = _RULES.get(name)
        if not (_learn(name) if rule is None else rule):
            fields.append((name, properties[position:after]))
        position = after
    return before, fields, properties[end:]


def _learn(name: bytes) -> bool:
    stays = stays_behind(name.decode("utf-8", "surrogateescape"))
    if len(_RULES) < _MOST_NAMES:
        _RULES[name] = stays
    return stays


_RULES: dict[bytes, bool] = {}
"""Whether a header stays behind, by its name: a queue has few names, and each message asks for
them."""
