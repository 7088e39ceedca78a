"""Filters of a subscription as text, such as `headers.country = 'DE' AND body.total > 100`.

They are a small part of SQL: comparisons, IN and IS NULL, joined by AND, OR and NOT. As in SQL, a
comparison with something that is missing is neither true nor false, and a message matches only if
the whole is true.
"""

import hashlib
import operator
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from redrive.amqp.field_table import FieldValue
from redrive.amqp.properties import Properties
from redrive.errors import ConfigurationError

_LONGEST = 2_000
_DEEPEST = 50
_PROPERTIES = ("content_type", "message_id", "correlation_id", "app_id", "type")
_WHAT = f"headers.NAME, body.NAME, routing_key, {', '.join(_PROPERTIES)}"
_TOKEN = re.compile(
    r"""\s*(?:
        (?P<text>'(?:[^']|'')*')
        | (?P<number>-?\d+(?:\.\d+)?)(?![\w.])
        | (?P<quoted>"(?:[^"]|"")+")
        | (?P<word>[A-Za-z_]\w*)
        | (?P<sign><>|!=|<=|>=|[=<>(),.])
    )""",
    re.VERBOSE | re.ASCII,
)
_KEYWORDS = frozenset({"AND", "OR", "NOT", "IN", "IS", "NULL", "TRUE", "FALSE"})
_LITERALS: Mapping[str, bool] = {"TRUE": True, "FALSE": False}
_COMPARISONS: Mapping[str, Callable[..., bool]] = {
    "=": operator.eq,
    "<>": operator.ne,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}

Literal = str | bool | int | float
Truth = bool | None
"""Whether a condition is true; None if that can't be said, since something is missing."""


class Filtered(Protocol):
    """A message, as a filter sees it."""

    @property
    def routing_key(self) -> str:
        """The key that it was first published with."""

    @property
    def properties(self) -> Properties:
        """Its properties."""

    def json(self) -> object:
        """Return the body's value."""


class _Condition(NamedTuple):
    """A part of a filter.

    Args:
        holds: whether it holds for a message.
        equal: the headers that a message must have for it to hold, with their values.
    """

    holds: Callable[[Filtered], Truth]
    equal: tuple[tuple[str, str | bool], ...] = ()


@dataclass(frozen=True, slots=True)
class TextFilter:
    """Which messages a subscription wants: `headers.country = 'DE'`.

    Args:
        text: the condition.

    Raises:
        ConfigurationError: the text can't be read, as the message says.
    """

    text: str
    _condition: _Condition = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_condition", _Reader(self.text).read())

    def __call__(self, message: Filtered) -> bool:
        """Return whether a message matches."""
        return self._condition.holds(message) is True

    @property
    def equal(self) -> tuple[tuple[str, str | bool], ...]:
        """The headers that each matching message has, with their values: what a broker can compare.
        A headers exchange ignores names that begin with `x-`. Source:
        https://www.rabbitmq.com/docs/exchanges#headers"""
        found = sorted(set(self._condition.equal), key=str)
        names = [name for name, _ in found]
        return tuple(found) if len(set(names)) == len(names) else ()  # two values: it never holds


def filter_fingerprint(tags: object, equal: object) -> str:
    """Return eight characters that tell what a broker filters."""
    return hashlib.sha256(repr((tags, equal)).encode()).hexdigest()[:8]


def equal_headers(headers: Iterable[tuple[str, object]]) -> str:
    """Return the text of a filter that asks for these headers; empty for none."""
    return " AND ".join(f"headers.{_named(name)} = {_written(value)}" for name, value in headers)


def _named(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _written(value: object) -> str:
    if isinstance(value, bool):
        return str(value).upper()
    return "'" + str(value).replace("'", "''") + "'"


class _Reader:
    """A recursive-descent parser of a text into its condition."""

    def __init__(self, text: str) -> None:
        if not isinstance(text, str) or not text.strip() or len(text) > _LONGEST:
            raise ConfigurationError(
                f"the filter is {text!r:.80}",
                f"Give a condition of at most {_LONGEST} characters: headers.country = 'DE'.",
            )
        self._text = text
        self._tokens: list[tuple[str, str, int]] = []
        self._position = self._depth = 0
        at = 0
        while text[at:].strip():
            found = _TOKEN.match(text, at)
            if found is None or found.lastgroup is None:
                begin = len(text) - len(text[at:].lstrip())
                raise self._problem("has a character that has no meaning there", begin)
            kind, token = found.lastgroup, found[found.lastgroup]
            if kind == "word" and token.upper() in _KEYWORDS:
                kind, token = "keyword", token.upper()
            self._tokens.append((kind, token, found.start(found.lastgroup)))
            at = found.end()

    def read(self) -> _Condition:
        condition = self._any()
        if self._position < len(self._tokens):
            raise self._problem("has text after its end; AND or OR is missing")
        return condition

    def _any(self) -> _Condition:
        found = [self._all()]
        while self._take("keyword", "OR"):
            found.append(self._all())
        return found[0] if len(found) == 1 else _Condition(_any_of([one.holds for one in found]))

    def _all(self) -> _Condition:
        found = [self._one()]
        while self._take("keyword", "AND"):
            found.append(self._one())
        equal = tuple(pair for one in found for pair in one.equal)
        return _Condition(_all_of([one.holds for one in found]), equal) if found[1:] else found[0]

    def _one(self) -> _Condition:
        self._depth += 1
        if self._depth > _DEEPEST:
            raise self._problem("is nested too deeply")
        try:
            if self._take("keyword", "NOT"):
                return _Condition(_negated(self._one().holds))
            if self._take("sign", "("):
                condition = self._any()
                self._need(")")
                return condition
            return self._comparison()
        finally:
            self._depth -= 1

    def _comparison(self) -> _Condition:
        path = self._path()
        value = _value_at(path)
        if self._take("keyword", "IS"):
            wanted = not self._take("keyword", "NOT")
            if not self._take("keyword", "NULL"):
                raise self._problem("needs NULL here")
            return _Condition(lambda message: (value(message) is None) is wanted)
        negated = self._take("keyword", "NOT")
        if self._take("keyword", "IN"):
            self._need("(")
            choices = [self._literal()]
            while self._take("sign", ","):
                choices.append(self._literal())
            self._need(")")
            found = _any_of([_compares(value, operator.eq, choice) for choice in choices])
            return _Condition(_negated(found) if negated else found)
        kind, sign, _ = self._next()
        if negated or kind != "sign" or sign not in _COMPARISONS:
            raise self._problem(f"needs {'IN' if negated else 'a comparison'} here")
        self._position += 1
        literal = self._literal()
        return _Condition(
            _compares(value, _COMPARISONS[sign], literal),
            ((path[1], literal),)
            if sign == "="
            and path[0] == "headers"
            and isinstance(literal, str | bool)
            and not path[1].startswith("x-")
            else (),
        )

    def _path(self) -> list[str]:
        kind, name, _ = self._next()
        if kind != "word" or name not in ("headers", "body", "routing_key", *_PROPERTIES):
            raise self._problem(f"needs one of {_WHAT} here")
        self._position += 1
        path = [name]
        while self._take("sign", "."):
            kind, part, _ = self._next()
            if kind not in ("word", "keyword", "quoted"):
                raise self._problem("needs a name here")
            self._position += 1
            path.append(part[1:-1].replace('""', '"') if kind == "quoted" else part)
        if (len(path) != 2) if name == "headers" else (len(path) < 2) is (name == "body"):
            raise self._problem(f"needs one of {_WHAT} here, and not {'.'.join(path)}")
        return path

    def _literal(self) -> Literal:
        kind, token, _ = self._next()
        self._position += 1
        if kind == "text":
            return token[1:-1].replace("''", "'")
        if kind == "number":
            return float(token) if "." in token else int(token)
        if kind == "keyword" and token in _LITERALS:
            return _LITERALS[token]
        self._position -= 1
        raise self._problem("needs a value here: 'a text', a number, TRUE or FALSE")

    def _next(self) -> tuple[str, str, int]:
        at_the_end = ("", "", len(self._text))
        return self._tokens[self._position] if self._position < len(self._tokens) else at_the_end

    def _take(self, kind: str, token: str) -> bool:
        if self._next()[:2] != (kind, token):
            return False
        self._position += 1
        return True

    def _need(self, sign: str) -> None:
        if not self._take("sign", sign):
            raise self._problem(f"needs {sign!r} here")

    def _problem(self, what: str, at: int | None = None) -> ConfigurationError:
        at = self._next()[2] if at is None else at
        return ConfigurationError(
            f"the filter {self._text!r:.80} can't be read at character {at + 1}: it {what}",
            "Write it as headers.country = 'DE' AND body.total > 100.",
        )


def _value_at(path: list[str]) -> Callable[[Filtered], object]:
    """Return a function that reads a value of a message; what is not there is None."""
    first, *names = path
    if first == "routing_key":
        return lambda message: message.routing_key
    if first == "headers":
        (name,) = names
        return lambda message: _comparable(message.properties.headers.scalar(name))
    if first != "body":
        return lambda message: getattr(message.properties, first)

    def read(message: Filtered) -> object:
        try:
            value = message.json()
        except Exception:  # noqa: BLE001 - others wrote it
            return None
        for name in names:
            value = value.get(name) if isinstance(value, dict) else None
        return value

    return read


def _comparable(value: FieldValue) -> object:
    return value if isinstance(value, str | bool | int | float) else None


def _compares(
    value: Callable[[Filtered], object], compare: Callable[..., bool], literal: Literal
) -> Callable[[Filtered], Truth]:
    kinds = (bool,) if isinstance(literal, bool) else (str,) if isinstance(literal, str) else None

    def holds(message: Filtered) -> Truth:
        found = value(message)
        if kinds is None:
            fits = isinstance(found, int | float) and not isinstance(found, bool)
        else:
            fits = isinstance(found, kinds)
        return compare(found, literal) if fits else None

    return holds


def _negated(condition: Callable[[Filtered], Truth]) -> Callable[[Filtered], Truth]:
    def holds(message: Filtered) -> Truth:
        found = condition(message)
        return None if found is None else not found

    return holds


def _all_of(conditions: list[Callable[[Filtered], Truth]]) -> Callable[[Filtered], Truth]:
    def holds(message: Filtered) -> Truth:
        truth: Truth = True
        for condition in conditions:
            found = condition(message)
            if found is False:
                return False
            truth = truth and found
        return truth

    return holds


def _any_of(conditions: list[Callable[[Filtered], Truth]]) -> Callable[[Filtered], Truth]:
    negated = _all_of([_negated(condition) for condition in conditions])
    return _negated(negated)
