"""Filters of subscriptions as text: conditions on a message's properties, headers and JSON body.

They are a small part of the language in which operators filter failed messages, with the same
meaning. A broker decides what a headers exchange can decide; the subscriber is asked everything,
since messages also get into its queue by other ways.
"""

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal, NamedTuple

from redrive.errors import ConfigurationError

COLUMNS = ("routing_key", "message_id", "content_type", "app_id", "type", "correlation_id")
"""What can be asked about a message besides its headers and its body."""

_LONGEST = 2000
_LONGEST_NAME = 128
_TEXT = r"'(?:[^']|'')*'"
_CONDITION = re.compile(
    rf"""\s*(?P<column>[a-z_]\w*)(?:(?P<steps>(?:\.[a-z_]\w*)+)|\s*->>\s*(?P<key>{_TEXT}))?\s*
    (?:(?P<sign>=|!=|<>)\s*(?P<text>{_TEXT})
      |\bin\s*\(\s*(?P<texts>{_TEXT}(?:\s*,\s*{_TEXT})*)\s*\)
      |\bis\s+(?P<not>not\s+)?null\b)\s*""",
    re.IGNORECASE | re.VERBOSE | re.ASCII,
)
_AND = re.compile(r"and\b", re.IGNORECASE)
_PATH = re.compile(r"\$(?:\.[A-Za-z_]\w*)+|[A-Za-z_]\w*", re.ASCII)
_HOW = (
    "Give conditions joined by `and`, such as headers.country = 'DE' and body.plan in ('a', 'b'); "
    "or a function of a Message."
)

Place = Literal["column", "header", "body"]
Test = Literal["=", "!=", "in", "is null", "is not null"]


class Condition(NamedTuple):
    """One condition: a value of the message, and what it is compared with.

    Args:
        place: where the value is.
        path: the column, the header, or the keys that lead to it in the body.
        test: how it is compared.
        texts: what it is compared with; all values are compared as text.
    """

    place: Place
    path: tuple[str, ...]
    test: Test
    texts: tuple[str, ...] = ()

    def holds(self, value: str | None) -> bool:
        """Return whether it is true of a value; a comparison with a missing one never is."""
        match self.test:
            case "is null":
                return value is None
            case "is not null":
                return value is not None
            case "!=":
                return value is not None and value not in self.texts
            case _:
                return value is not None and value in self.texts

    @property
    def sql(self) -> str:
        """The condition in the language of operators' filters."""
        value = {
            "column": self.path[0],
            "header": f"headers->>{_quoted(self.path[0])}",
            "body": f"body->>{_quoted('.'.join(('$', *self.path)))}",
        }[self.place]
        if self.test == "in":
            return f"{value} in ({', '.join(map(_quoted, self.texts))})"
        return " ".join((value, self.test, *map(_quoted, self.texts)))


@dataclass(frozen=True, slots=True)
class TextFilter:
    """A filter of a subscription: `headers.country = 'DE' and body.plan in ('a', 'b')`.

    Args:
        expression: conditions that must all be true, joined by `and`.

    Raises:
        ConfigurationError: the expression can't be read, or can never be true.
    """

    expression: str

    def __post_init__(self) -> None:
        wanted: dict[str, str] = {}
        for condition in self.conditions:
            if condition.place == "header" and condition.test == "=":
                name, text = condition.path[0], condition.texts[0]
                if wanted.setdefault(name, text) != text:
                    raise ConfigurationError(
                        f"the filter {self.expression!r:.80} matches no message: header {name!r} "
                        f"can't be both {wanted[name]!r:.60} and {text!r:.60}",
                        "Use in (…) for alternatives.",
                    )

    @property
    def conditions(self) -> tuple[Condition, ...]:
        """The conditions."""
        return _conditions_of(self.expression)

    @property
    def sql(self) -> str:
        """The filter in the language of operators' filters."""
        return " and ".join(condition.sql for condition in self.conditions)

    @property
    def for_the_broker(self) -> tuple[tuple[str, str], ...]:
        """The headers and their values that a headers exchange can select by.

        It compares type and value, so a number in a header is not equal to its text, as it is in a
        filter; and it ignores names that begin with `x-`. Source: rabbit_exchange_type_headers;
        measured on RabbitMQ 3.10.8, 4.0.5 and 4.3.6.
        """
        return tuple(
            sorted(
                {
                    (condition.path[0], condition.texts[0])
                    for condition in self.conditions
                    if condition.place == "header"
                    and condition.test == "="
                    and not condition.path[0].lower().startswith("x-")
                    and not _may_be_no_text(condition.texts[0])
                }
            )
        )

    def matches(self, read: Callable[[Condition], str | None]) -> bool:
        """Return whether a message matches; `read` returns the value that a condition is about."""
        return all(condition.holds(read(condition)) for condition in self.conditions)


def text_of_json(value: object) -> str | None:
    """Return a JSON value as the text that it is compared as; None for null."""
    if value is None or isinstance(value, str):
        return value
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def filter_for(headers: Sequence[tuple[str, str]]) -> TextFilter | None:
    """Return the filter for headers that a broker selects by; None for none."""
    conditions = [Condition("header", (name,), "=", (text,)).sql for name, text in headers]
    return TextFilter(" and ".join(conditions)) if conditions else None


def _may_be_no_text(text: str) -> bool:
    """Return whether something else than a text may be equal to it, such as a number."""
    try:
        return not isinstance(json.loads(text), str)
    except ValueError:
        return "\ufffd" in text  # stands for what is not UTF-8


@lru_cache(maxsize=256)
def _conditions_of(expression: str) -> tuple[Condition, ...]:
    if not isinstance(expression, str) or len(expression) > _LONGEST:
        raise ConfigurationError(f"the filter is {expression!r:.80}", _HOW)
    found: list[Condition] = []
    place = 0
    while True:
        one = _CONDITION.match(expression, place)
        if one is None:
            raise _unreadable(expression, place, "has no condition that can be read")
        found.append(_condition_of(one, expression))
        if one.end() == len(expression):
            return tuple(found)
        joint = _AND.match(expression, one.end())
        if joint is None:
            raise _unreadable(expression, one.end(), "has no `and` where one is needed")
        place = joint.end()


def _condition_of(found: re.Match[str], expression: str) -> Condition:
    column = found["column"].lower()
    steps = tuple(found["steps"].split(".")[1:]) if found["steps"] else ()
    key = None if found["key"] is None else _unquoted(found["key"])
    where: tuple[Place, tuple[str, ...]] | None = None
    if column == "headers":
        if key is not None and key and key[0] not in "$/" and len(key.encode()) <= _LONGEST_NAME:
            where = "header", (key,)
        elif len(steps) == 1:
            where = "header", steps
    elif column == "body":
        if key is not None and _PATH.fullmatch(key):
            where = "body", tuple(key.removeprefix("$.").split("."))
        elif steps:
            where = "body", steps
    elif column in COLUMNS and not steps and key is None:
        where = "column", (column,)
    if where is None:
        known = ", ".join((*COLUMNS, "headers.NAME", "headers->>'NAME'", "body.a.b"))
        raise _unreadable(
            expression, found.start("column"), f"asks for something else than {known}"
        )
    if found["sign"]:
        return Condition(*where, "=" if found["sign"] == "=" else "!=", (_unquoted(found["text"]),))
    if found["texts"]:
        texts = tuple(_unquoted(text) for text in re.findall(_TEXT, found["texts"]))
        return Condition(*where, "in", texts)
    return Condition(*where, "is not null" if found["not"] else "is null")


def _unreadable(expression: str, place: int, what: str) -> ConfigurationError:
    place += len(expression[place:]) - len(expression[place:].lstrip())
    return ConfigurationError(
        f"the filter {expression!r:.200} can't be read at character {place + 1}: it {what}", _HOW
    )


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def _unquoted(text: str) -> str:
    return text[1:-1].replace("''", "'")
