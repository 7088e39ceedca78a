"""A facet of failed messages: a column, a header or a path into JSON bodies, to count and filter
by."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from redrive.errors import ConfigurationError
from redrive.failures.message.columns import BY_NAME, SqlType
from redrive.failures.message.failed_message import FailedMessage
from redrive.failures.message.readable_values import body_of
from redrive.failures.store.kept_messages import KeptMessages

_HEADER, _PATH = "header:", "$"
_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_STEP = re.compile(
    r"\.(?:(?P<plain>[A-Za-z_][A-Za-z0-9_-]*)|\"(?P<quoted>[^\"]+)\")|\[(?P<at>\d+)\]"
)
_LONGEST = 200
_MOST_VALUES = 8
_MOST_OFFERED = 12
_DEEPEST = 3
_TELLING = ("version", "release", "build", "tenant", "region")
"""Parts of the names of headers that often correlate with failures."""


class FacetValue(NamedTuple):
    """A value, and how many messages have it.

    Args:
        text: the value; None for messages without one.
        messages: how many messages have it.
    """

    text: str | None
    messages: int


@dataclass(frozen=True, slots=True)
class Facet:
    """A facet.

    Args:
        name: a column, `header:NAME`, or a path such as `$.country`.
        expression: the facet in the filter language, as a text.
    """

    name: str
    expression: str

    @classmethod
    def named(cls, name: str) -> "Facet":
        """Return the facet with this name."""
        name = name.strip()
        if len(name) > _LONGEST or not name.isprintable():
            raise ConfigurationError("the name to count by is too long, or not printable", _HOW)
        if name.startswith(_HEADER) and len(name) > len(_HEADER):
            return cls(name, f"headers->>{_quoted(_pointer([name[len(_HEADER) :]]))}")
        if name.startswith(_PATH):
            return cls(name, f"body->>{_quoted(_pointer(_steps_of(name)))}")
        column = BY_NAME.get(name)
        if column is None or column.type in (SqlType.BYTES, SqlType.JSON):
            raise ConfigurationError(f"messages can't be counted by {name!r}", _HOW)
        return cls(name, name if column.type is SqlType.TEXT else f"{name}::VARCHAR")

    def term(self, value: str | None) -> str:
        """Return an expression that matches the messages with a value."""
        return (
            f"{self.expression} IS NULL"
            if value is None
            else (f"{self.expression} = {_quoted(value)}")
        )

    def counted(self, messages: KeptMessages) -> tuple[list[FacetValue], int]:
        """Return the most frequent values, and how many more distinct values there are."""
        values, different = messages.counted_by(self.expression, _MOST_VALUES)
        return [FacetValue(*value) for value in values], max(0, different - len(values))


def offered(message: FailedMessage) -> list[str]:
    """Return the names of facets that an example message suggests: headers such as versions, and
    simple fields of its body."""
    found = [
        f"{_HEADER}{name}"
        for name in message.headers
        if any(word in name.lower() for word in _TELLING) and name.isprintable()
    ]
    if message.has_body:
        value, encoding = body_of(message)
        if encoding == "json":
            found += _paths(_PATH, value, 0)
    return found[:_MOST_OFFERED]


def _paths(path: str, value: object, depth: int) -> Iterator[str]:
    if not isinstance(value, Mapping) or depth >= _DEEPEST:
        return
    for name, member in value.items():
        if isinstance(member, str | int | float | bool) and _PLAIN.fullmatch(str(name)):
            yield f"{path}.{name}"
    for name, member in value.items():
        if isinstance(member, Mapping) and _PLAIN.fullmatch(str(name)):
            yield from _paths(f"{path}.{name}", member, depth + 1)


def _steps_of(path: str) -> list[str]:
    steps, place = [], 1
    while place < len(path):
        step = _STEP.match(path, place)
        if step is None:
            raise ConfigurationError(f"{path!r} is not a path", _HOW)
        steps.append(step["plain"] or step["quoted"] or step["at"])
        place = step.end()
    if not steps:
        raise ConfigurationError(f"{path!r} is the whole body", _HOW)
    return steps


def _pointer(steps: list[str]) -> str:
    """Return a JSON pointer, in which names need no quotes."""
    return "".join("/" + step.replace("~", "~0").replace("/", "~1") for step in steps)


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


_HOW = "Give a column, header:NAME, or a path such as $.country."
