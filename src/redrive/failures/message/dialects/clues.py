"""Tolerant access to the parts of a message that dialects read.

Nothing here raises, whatever bytes a peer has sent: damaged values count as missing.
"""

import binascii
import json
from base64 import b64decode
from collections.abc import Mapping
from datetime import UTC, datetime
from functools import cached_property

from redrive.amqp.field_table import FieldValue, decode_value
from redrive.topology import headers
from redrive.topology.headers import Delivery

_MOST_OF_A_BODY = 1024 * 1024
"""Larger bodies are not searched for a framework's envelope (bytes)."""
_MOST_OF_A_TABLE = 64 * 1024


class Clues:
    """The parts of a message that a dialect reads."""

    def __init__(self, delivery: Delivery) -> None:
        self._delivery = delivery
        self._headers = delivery.properties.headers

    @property
    def routing_key(self) -> str:
        """The routing key of the delivery."""
        return clean(self._delivery.routing_key)

    @property
    def type(self) -> str | None:
        """The property `type`."""
        return text_of(self._delivery.properties.type)

    @property
    def names(self) -> Mapping[str, bytes]:
        """The raw value of each header, by its name."""
        return self._headers.raw_by_name()

    def has(self, *names: str) -> bool:
        """Check whether the message has all of these headers."""
        return all(name in self.names for name in names)

    def text(self, name: str) -> str | None:
        """Return a header that is text, or bytes that hold text."""
        return text_of(self._headers.scalar(name))

    def count(self, name: str) -> int | None:
        """Return a header that is a count: a number or a string of digits."""
        return count_of(self._headers.scalar(name))

    def table(self, name: str) -> Mapping[str, object]:
        """Return a header that is a table; empty if it isn't one or is larger than 64 KiB."""
        raw = self.names.get(name, b"")
        if raw[:1] != b"F" or len(raw) > _MOST_OF_A_TABLE:
            return {}
        return mapping_of(decode_value(raw))

    def json(self, name: str) -> object:
        """Return the decoded value of a header that holds JSON."""
        text = self.text(name)
        return None if text is None else _parsed(text)

    def body_has(self, *marks: bytes) -> bool:
        """Check whether the body contains all of these marks; bodies over 1 MiB never do."""
        body = self._delivery.body
        return len(body) <= _MOST_OF_A_BODY and all(mark in body for mark in marks)

    @property
    def body(self) -> bytes:
        return self._delivery.body

    @cached_property
    def envelope(self) -> Mapping[str, object]:
        """The body if it is a JSON object, else an empty mapping."""
        return mapping_of(_parsed(self._delivery.body))

    @cached_property
    def death(self) -> Mapping[str, FieldValue]:
        """The latest entry of `x-death`, or an empty mapping."""
        entries = self._delivery.deaths.entries
        return entries[0] if entries else {}

    @property
    def died_at(self) -> datetime | None:
        """When a queue last dead-lettered it, by the broker's clock."""
        time = self.death.get("time")
        return time if isinstance(time, datetime) else None

    @property
    def died_in(self) -> str | None:
        """The queue that last dead-lettered it."""
        return text_of(self.death.get("queue"))


def clean(text: str) -> str:
    """Replace characters that UTF-8 can't encode."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode()


def text_of(value: object) -> str | None:
    """Return a string, decoding bytes; None for any other type."""
    match value:
        case str():
            return clean(value)
        case bytes() | bytearray():
            return bytes(value).decode("utf-8", "replace")
        case _:
            return None


def count_of(value: object) -> int | None:
    """Return a count given as a number or a string of digits; None for anything else."""
    if isinstance(value, str) and value.isascii() and value.isdecimal() and len(value) < 10:
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int):
        return None
    return value if 0 <= value <= headers.MAX_COUNT else None


def mapping_of(value: object) -> Mapping[str, object]:
    """Return the value if it is a mapping, else an empty mapping."""
    return value if isinstance(value, Mapping) else {}


def moment_of(value: object) -> datetime | None:
    """Return an ISO 8601 time or a datetime in UTC; a time without a zone is taken as UTC."""
    text = value if isinstance(value, datetime) else text_of(value)
    try:
        moment = datetime.fromisoformat(text) if isinstance(text, str) else text
        if moment is None:
            return None
        return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)
    except (ValueError, OverflowError):
        return None


def moment_of_milliseconds(value: object) -> datetime | None:
    """Return the time given as a string of milliseconds since 1970."""
    text = text_of(value)
    try:
        return datetime.fromtimestamp(int(text or "") / 1000, UTC)
    except (ValueError, OverflowError, OSError):
        return None


def bytes_of_base64(value: object) -> bytes | None:
    """Decode base64, ignoring line breaks."""
    text = text_of(value)
    try:
        return None if text is None else b64decode("".join(text.split()), validate=True)
    except (binascii.Error, ValueError):
        return None


def _parsed(text: str | bytes) -> object:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None
