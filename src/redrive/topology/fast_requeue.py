"""Requeue thousands of failed messages: the same result as `rewrite.requeue`, in one pass over the
bytes of an ordinary message.

Most failed messages differ from their requeued form by whole headers only. Cutting these out of the
received bytes costs a fifth of decoding and encoding all headers. Other messages are left to
`rewrite.requeue`; a test checks that both give the same result.
"""

import struct
from typing import NamedTuple

from redrive.amqp.field_table import LONG_STRING, Table, decode_scalar, end_of_value
from redrive.amqp.properties import content_header_room
from redrive.topology import headers
from redrive.topology.rewrite import SPENT

_UINT16 = struct.Struct(">H")
_UINT32 = struct.Struct(">I")
_CONTENT_TYPE, _CONTENT_ENCODING, _HEADERS = 1 << 15, 1 << 14, 1 << 13
_EXPIRATION, _USER_ID, _MORE_FLAGS = 1 << 8, 1 << 4, 1
_CAN_NOT_TRAVEL = _EXPIRATION | _USER_ID | _MORE_FLAGS
_COUNT, _FAILURE_ID, _JOB, _ORIG_ROUTING_KEY = (
    name.encode()
    for name in (headers.COUNT, headers.FAILURE_ID, headers.JOB, headers.ORIG_ROUTING_KEY)
)
_MOST_NAMES = 4096


class Ordinary(NamedTuple):
    """An ordinary failed message, which can be requeued after changing only some headers.

    Args:
        properties: the encoded properties to send.
        failure_id: the failure id that redrive wrote, if any.
        job: the job that last requeued it, if any.
        redrives: how often it was requeued before.
    """

    properties: bytes
    failure_id: str | None
    job: str | None
    redrives: int


class BulkRequeue:
    """A builder of the properties of requeued messages, for one job on one connection."""

    def __init__(self, job: str, frame_max: int) -> None:
        self._room = content_header_room(frame_max)
        self._added: dict[int, bytes] = {}
        self._job = job
        self._rules: dict[bytes, int] = {}

    def requeue(self, properties: bytes) -> Ordinary | None:
        """Return what to send in place of a message with these encoded properties; None if it isn't
        ordinary.

        An ordinary message has its original routing key in a header, no property that can't travel,
        nothing unreadable, and room for the added headers.
        """
        (flags,) = _UINT16.unpack_from(properties)
        if not flags & _HEADERS or flags & _CAN_NOT_TRAVEL:
            return None
        start = 2
        if flags & _CONTENT_TYPE:
            start += 1 + properties[start]
        if flags & _CONTENT_ENCODING:
            start += 1 + properties[start]
        end = start + 4 + _UINT32.unpack_from(properties, start)[0]
        kept: list[bytes] = []
        noted: dict[bytes, bytes] = {}
        rules = self._rules
        position = start + 4
        while position < end:
            value_at = position + 1 + properties[position]
            name = properties[position + 1 : value_at]
            # Most values are long strings, and a function call would cost more than reading one
            # here.
            if value_at + 5 <= end and properties[value_at] == LONG_STRING:
                after: int | None = value_at + 5 + _UINT32.unpack_from(properties, value_at + 1)[0]
            else:
                after = end_of_value(properties, value_at, end)
            if after is None or after > end:
                return None
            rule = rules.get(name)
            if rule is None:
                rule = self._learn(name)
            if rule is not _DROP:
                if rule is not _KEEP:
                    if name in noted:
                        return None
                    noted[name] = properties[value_at:after]
                if rule is not _NOTE_AND_DROP:
                    kept.append(properties[position:after])
            position = after
        key = noted.get(_ORIG_ROUTING_KEY)
        if key is None or not _is_plain_text(key):
            return None
        count = _count_in(noted.get(_COUNT))
        kept.append(self._added_for(count))
        table = b"".join(kept)
        encoded = b"".join((properties[:start], _UINT32.pack(len(table)), table, properties[end:]))
        if len(encoded) > self._room:
            return None
        return Ordinary(encoded, _text_in(noted.get(_FAILURE_ID)), _text_in(noted.get(_JOB)), count)

    def _learn(self, name: bytes) -> int:
        """Decide what becomes of a header, and cache it: a queue has few header names, and each
        message asks for them."""
        text = name.decode("utf-8", "surrogateescape")
        drops = text in SPENT or text in (headers.COUNT, headers.JOB) or headers.stays_behind(text)
        rule = _RULES[name in _NOTED, drops]
        if len(self._rules) < _MOST_NAMES:
            self._rules[name] = rule
        return rule

    def _added_for(self, count: int) -> bytes:
        """Return the encoded headers that a requeue adds, given how often the message was requeued
        before."""
        added = self._added.get(count)
        if added is None:
            added = self._added[count] = Table.of(
                {headers.COUNT: count + 1, headers.JOB: self._job}
            ).encode()
        return added


_NOTED = frozenset({_COUNT, _FAILURE_ID, _JOB, _ORIG_ROUTING_KEY})
_DROP, _KEEP, _NOTE, _NOTE_AND_DROP = range(4)
_RULES = {
    (False, False): _KEEP,
    (False, True): _DROP,
    (True, False): _NOTE,
    (True, True): _NOTE_AND_DROP,
}


def _is_plain_text(raw: bytes) -> bool:
    return raw[:1] == b"S" and raw[5:].isascii()


def _count_in(raw: bytes | None) -> int:
    return headers.counted(decode_scalar(raw)) if raw is not None else 0


def _text_in(raw: bytes | None) -> str | None:
    return headers.text(decode_scalar(raw)) if raw is not None else None
