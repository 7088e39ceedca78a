"""What dialects look at in a message. Nothing here raises, whatever bytes a peer has sent, and what
is damaged counts as not there."""

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
"""A larger body is not searched for a framework's envelope."""
_MOST_OF_A_TABLE = 64 * 1024


class Clues:
    """A message, as a dialect looks at it."""

    def __init__(self, delivery: Delivery) -> None:
        self._delivery = delivery
        self._headers = delivery.properties.headers

    @property
    def routing_key(self) -> str:
        """The key that it was delivered with."""
        return clean(self._delivery.routing_key)

    @property
    def type(self) -> str | None:
        """The property `type`."""
        return text_of(self._delivery.properties.type)

    @property
    def names(self) -> Mapping[str, bytes]:
        """The headers' names, each with its bytes."""
        return self._headers.raw_by_name()

    def has(self, *names: str) -> bool:
        """Whether it has all of these headers."""
        return all(name in self.names for name in names)

    def text(self, name: str) -> str | None:
        """A header that is a text, or the bytes of one."""
        return text_of(self._headers.scalar(name))

    def count(self, name: str) -> int | None:
        """A header that is a count, as a number or in digits."""
        return count_of(self._headers.scalar(name))

    def table(self, name: str) -> Mapping[str, object]:
        """A header that is a table; empty where it is none, or a huge one."""
        raw = self.names.get(name, b"")
        if raw[:1] != b"F" or len(raw) > _MOST_OF_A_TABLE:
            return {}
        return mapping_of(decode_value(raw))

    def json(self, name: str) -> object:
        """A header that is a text in JSON, as its value."""
        text = self.text(name)
        return None if text is None else _parsed(text)

    def body_has(self, *marks: bytes) -> bool:
        """Whether the body holds all of these, and is not huge."""
        body = self._delivery.body
        return len(body) <= _MOST_OF_A_BODY and all(mark in body for mark in marks)

    @property
    def body(self) -> bytes:
        """The body."""
        return self._delivery.body

    @cached_property
    def envelope(self) -> Mapping[str, object]:
        """The body where it is a JSON object, else an empty one."""
        return mapping_of(_parsed(self._delivery.body))

    @cached_property
    def death(self) -> Mapping[str, FieldValue]:
        """The latest entry of `x-death`, or an empty one."""
        entries = self._delivery.deaths.entries
        return entries[0] if entries else {}

    @property
    def died_at(self) -> datetime | None:
        """When a queue gave it up last, by the broker's clock."""
        time = self.death.get("time")
        return time if isinstance(time, datetime) else None

    @property
    def died_in(self) -> str | None:
        """The queue that gave it up last."""
        return text_of(self.death.get("queue"))


def clean(text: str) -> str:
    """A text that UTF-8 can encode."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode()


def text_of(value: object) -> str | None:
    """A text, or the bytes of one."""
    match value:
        case str():
            return clean(value)
        case bytes() | bytearray():
            return bytes(value).decode("utf-8", "replace")
        case _:
            return None


def count_of(value: object) -> int | None:
    """A count, as a number or in digits."""
    if isinstance(value, str) and value.isascii() and value.isdecimal() and len(value) < 10:
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int):
        return None
    return value if 0 <= value <= headers.MAX_COUNT else None


def mapping_of(value: object) -> Mapping[str, object]:
    """A mapping; empty where it is none."""
    return value if isinstance(value, Mapping) else {}


def moment_of(value: object) -> datetime | None:
    """A time in ISO 8601, in UTC where it does not say; or one that is a time already."""
    text = value if isinstance(value, datetime) else text_of(value)
    try:
        moment = datetime.fromisoformat(text) if isinstance(text, str) else text
        if moment is None:
            return None
        return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)
    except (ValueError, OverflowError):
        return None


def moment_of_milliseconds(value: object) -> datetime | None:
    """A time in milliseconds since 1970, in digits."""
    text = text_of(value)
    try:
        return datetime.fromtimestamp(int(text or "") / 1000, UTC)
    except (ValueError, OverflowError, OSError):
        return None


def bytes_of_base64(value: object) -> bytes | None:
    """What a text in base64 stands for, in however many lines it was written."""
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
