"""The filter language on Spark: an expression as DuckDB reads it, as Spark SQL that is true of the same messages.

sqlglot parses. What is passed on is what this module knows, node by node and argument by argument; whatever else is refused with the
reason, since the two would understand it differently. The time stands still: `now()` is given.
"""

import itertools
import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import NamedTuple

import sqlglot
from sqlglot import expressions as exp
from sqlglot.errors import SqlglotError
from sqlglot.tokenizer_core import TokenType

from redrive.errors import ConfigurationError
from redrive.failures.columns import BY_NAME, SqlType
from redrive.spark_reprocess.matching import FUNCTION, check_pattern

_HOW = "On Spark it may have columns, texts, numbers, times, comparisons, and/or/not, in, between, like, ->> and some functions."


class _Kind(StrEnum):
    TEXT = "a text"
    NUMBER = "a number"
    TIME = "a time"
    TRUTH = "true or false"
    JSON = "JSON"
    BYTES = "bytes"
    NULL = "null"


class _Sql(NamedTuple):
    text: str
    kind: _Kind


_KINDS = {
    SqlType.TEXT: _Kind.TEXT,
    SqlType.NUMBER: _Kind.NUMBER,
    SqlType.TIME: _Kind.TIME,
    SqlType.JSON: _Kind.JSON,
    SqlType.BYTES: _Kind.BYTES,
}
_COMPARISONS: dict[type[exp.Expr], str] = {
    exp.EQ: "=",
    exp.NEQ: "<>",
    exp.LT: "<",
    exp.LTE: "<=",
    exp.GT: ">",
    exp.GTE: ">=",
    exp.NullSafeEQ: "<=>",
}
_TEXT_TESTS: dict[type[exp.Expr], str] = {exp.Contains: "contains", exp.StartsWith: "startswith", exp.EndsWith: "endswith"}
_TEXT_TESTS_BY_NAME = {"prefix": "startswith", "suffix": "endswith"}
_SECONDS = {"SECOND": 1, "MINUTE": 60, "HOUR": 3600, "DAY": 86_400, "WEEK": 604_800}
_NUMBER = re.compile(r"\d+(\.\d+)?([eE][+-]?\d+)?")
_DIGITS = "[0-9]+(_[0-9]+)*"
_DOUBLE = rf"^\\s*[+-]?(({_DIGITS}(\\.({_DIGITS})?)?|\\.{_DIGITS})([eE][+-]?{_DIGITS})?|(?i:inf|infinity|nan))\\s*$"
"""What DuckDB reads as a double. Source: tried on DuckDB 2.0."""
_JSON_KEY = re.compile(r"[A-Za-z_][\w-]*")
_JSON_PATH = re.compile(r"\$(\.[A-Za-z_]\w*)+")


def spark_sql_of(expression: str, now: datetime) -> str:
    """The expression as Spark SQL, for a session whose time zone is UTC and which `matching.register` has seen.

    Args:
        expression: as `redrive failed list --where` takes it.
        now: what `now()` says.

    Raises:
        ConfigurationError: it can't be parsed, or has something in it that Spark would understand differently; the message says what.
    """
    if not expression.strip():
        raise ConfigurationError("the expression is empty", _HOW)
    try:
        _check_tokens(expression)
        parsed = sqlglot.parse_one(expression, dialect="duckdb")
    except SqlglotError as error:
        raise ConfigurationError(f"{expression!r} {_where_wrong(error)}", _HOW) from error
    except RecursionError as error:
        raise ConfigurationError(f"{expression[:40]!r}… is nested too deep", _HOW) from error
    try:
        found = _Translation(now).of(parsed)
    except RecursionError as error:
        raise ConfigurationError(f"{expression[:40]!r}… is nested too deep", _HOW) from error
    if found.kind is not _Kind.TRUTH:
        raise ConfigurationError(f"{expression!r} is {found.kind}, and is to be true or false", _HOW)
    return found.text


def _where_wrong(error: SqlglotError) -> str:
    details = getattr(error, "errors", None)
    if details:
        first = details[0]
        return f"can't be read at character {first.get('col')}, {first.get('highlight')!r}"
    return f"can't be read: {' '.join(str(error).split())[:200]}"


def _check_tokens(expression: str) -> None:
    """Refuses what sqlglot takes for something else: a key with a dot in it, which is one key, and `~`, which matches all of a text."""
    tokens = sqlglot.tokenize(expression, dialect="duckdb")
    if any(token.token_type is TokenType.TILDE for token in tokens):
        raise ConfigurationError("~ can't be asked on Spark", "Use regexp_matches, with ^ and $ where all of the text is meant.")
    for arrow, key in itertools.pairwise(tokens):
        is_key = arrow.token_type in (TokenType.ARROW, TokenType.DARROW) and key.token_type is TokenType.STRING
        if is_key and not (_JSON_KEY.fullmatch(key.text) or _JSON_PATH.fullmatch(key.text)):
            raise ConfigurationError(
                f"{key.text!r} is no key that can be asked for on Spark", "Give a plain name, or a path such as '$.a.b'."
            )


class _Translation:
    """Translates one expression."""

    def __init__(self, now: datetime) -> None:
        self._now = now.astimezone(UTC)
        self._by_type: dict[type[exp.Expr], Callable[[exp.Expr], _Sql]] = {
            exp.Paren: lambda node: self.of(node.this),
            exp.Column: self._column,
            exp.Literal: self._literal,
            exp.Neg: self._negative,
            exp.Boolean: lambda node: _Sql("true" if node.this else "false", _Kind.TRUTH),
            exp.Null: lambda _: _Sql("NULL", _Kind.NULL),
            exp.And: self._logic,
            exp.Or: self._logic,
            exp.Not: lambda node: _Sql(f"(NOT {self._truth(node.this)})", _Kind.TRUTH),
            exp.Is: self._is,
            exp.In: self._in,
            exp.Between: self._between,
            exp.Like: self._like,
            exp.ILike: self._like,
            exp.RegexpLike: self._matches,
            exp.Lower: lambda node: _Sql(_lower(self._text(node.this)), _Kind.TEXT),
            exp.Length: lambda node: _Sql(f"char_length({self._text(node.this)})", _Kind.NUMBER),
            exp.Coalesce: self._coalesce,
            exp.JSONExtractScalar: self._json_text,
            exp.Cast: self._cast,
            exp.TryCast: self._cast,
            exp.CurrentTimestamp: lambda node: self._moment(node, self._now),
            exp.Anonymous: self._function,
            exp.Sub: self._moved_time,
            exp.Add: self._moved_time,
            **dict.fromkeys(_COMPARISONS, self._comparison),
            **dict.fromkeys(_TEXT_TESTS, self._text_test),
        }

    def of(self, node: exp.Expr) -> _Sql:
        """A node as Spark SQL."""
        translate = self._by_type.get(type(node))
        if translate is None:
            raise _refused(node, "is nothing that can be asked on Spark")
        known = _ARGUMENTS.get(type(node), _BOTH)
        unknown = {name for name, value in node.args.items() if value not in (None, False, [])} - known
        if unknown:
            raise _refused(node, f"has {', '.join(sorted(unknown))}, which can't be asked on Spark")
        return translate(node)

    def _column(self, node: exp.Expr) -> _Sql:
        name = node.name.lower()
        column = BY_NAME.get(name)
        if column is None:
            raise ConfigurationError(f"there is no column {node.name!r}", f"There are {', '.join(BY_NAME)}.")
        return _Sql(f"`{name}`", _KINDS[column.type])

    def _literal(self, node: exp.Expr) -> _Sql:
        if node.args.get("is_string"):
            return _Sql(_quoted(str(node.this)), _Kind.TEXT)
        if not _NUMBER.fullmatch(str(node.this)):
            raise _refused(node, "is no number")
        # With an exponent or a point it is a double for one and a decimal for the other.
        return _Sql(str(node.this) if str(node.this).isdigit() else f"{node.this}D", _Kind.NUMBER)

    def _negative(self, node: exp.Expr) -> _Sql:
        if not isinstance(node.this, exp.Literal) or node.this.args.get("is_string"):
            raise _refused(node, "is no number")
        return _Sql(f"(-{self.of(node.this).text})", _Kind.NUMBER)

    def _logic(self, node: exp.Expr) -> _Sql:
        word = "AND" if isinstance(node, exp.And) else "OR"
        return _Sql(f"({self._truth(node.this)} {word} {self._truth(node.expression)})", _Kind.TRUTH)

    def _comparison(self, node: exp.Expr) -> _Sql:
        left, right = self._alike(node, node.this, node.expression)
        return _Sql(f"({left.text} {_COMPARISONS[type(node)]} {right.text})", _Kind.TRUTH)

    def _is(self, node: exp.Expr) -> _Sql:
        if not isinstance(node.expression, exp.Null | exp.Boolean):
            raise _refused(node, "can't be asked on Spark")
        return _Sql(f"({self._any(node.this)} IS {self.of(node.expression).text})", _Kind.TRUTH)

    def _in(self, node: exp.Expr) -> _Sql:
        values = node.args.get("expressions") or []
        if not values:
            raise _refused(node, "is to be in a list")
        pairs = [self._alike(node, node.this, value) for value in values]
        return _Sql(f"({pairs[0][0].text} IN ({', '.join(right.text for _, right in pairs)}))", _Kind.TRUTH)

    def _between(self, node: exp.Expr) -> _Sql:
        left, low = self._alike(node, node.this, node.args["low"])
        _, high = self._alike(node, node.this, node.args["high"])
        return _Sql(f"({left.text} BETWEEN {low.text} AND {high.text})", _Kind.TRUTH)

    def _like(self, node: exp.Expr) -> _Sql:
        # A backslash is itself for DuckDB, and an escape for Spark.
        pattern = _quoted(_constant_text(node.expression).replace("\\", "\\\\"))
        text = self._text(node.this)
        if isinstance(node, exp.ILike):
            text, pattern = _lower(text), _lower(pattern)
        return _Sql(f"({text} {'NOT ' if node.args.get('negate') else ''}LIKE {pattern})", _Kind.TRUTH)

    def _matches(self, node: exp.Expr) -> _Sql:
        pattern = _constant_text(node.expression)
        check_pattern(pattern)
        return _Sql(f"{FUNCTION}({self._text(node.this)}, {_quoted(pattern)})", _Kind.TRUTH)

    def _text_test(self, node: exp.Expr) -> _Sql:
        return _Sql(f"{_TEXT_TESTS[type(node)]}({self._text(node.this)}, {self._text(node.expression)})", _Kind.TRUTH)

    def _coalesce(self, node: exp.Expr) -> _Sql:
        pairs = [self._alike(node, node.this, other) for other in node.args["expressions"]]
        return _Sql(f"coalesce({', '.join([pairs[0][0].text, *(right.text for _, right in pairs)])})", pairs[0][0].kind)

    def _json_text(self, node: exp.Expr) -> _Sql:
        keys: list[str] = []
        inner = node
        while isinstance(inner, exp.JSONExtract | exp.JSONExtractScalar):
            path = inner.expression
            if isinstance(path, exp.Literal):  # a name with a dash in it, which was looked at before
                path = exp.JSONPath(expressions=[exp.JSONPathKey(this=_constant_text(path))])
            parts = path.args.get("expressions") if isinstance(path, exp.JSONPath) else None
            if not parts or not all(isinstance(part, exp.JSONPathRoot | exp.JSONPathKey) for part in parts):
                raise _refused(node, "asks for something else than a key")
            keys = [str(part.this) for part in parts if isinstance(part, exp.JSONPathKey)] + keys
            inner = inner.this.unnest() if isinstance(inner.this, exp.Paren) else inner.this
        document = self.of(inner)
        if document.kind is not _Kind.JSON:
            raise _refused(node, f"asks {document.kind} for a key")
        if not keys or not all(_JSON_KEY.fullmatch(key) for key in keys):
            raise _refused(node, "asks for no plain key")
        path_text = "$" + "".join(f"['{key}']" for key in keys)
        return _Sql(f"get_json_object({document.text}, {_quoted(path_text)})", _Kind.TEXT)

    def _cast(self, node: exp.Expr) -> _Sql:
        target = node.args["to"].this
        names = exp.DataType.Type
        if isinstance(node.this, exp.Literal) and target in (names.TIMESTAMPTZ, names.TIMESTAMP, names.DATE):
            return self._moment(node, _moment_in(_constant_text(node.this)))
        if target is names.DOUBLE and isinstance(node, exp.TryCast):
            text = self._text(node.this)
            return _Sql(f"(CASE WHEN {text} RLIKE '{_DOUBLE}' THEN CAST(replace({text}, '_', '') AS DOUBLE) END)", _Kind.NUMBER)
        raise _refused(node, "can't be asked on Spark: try_cast(… as double) and times can")

    def _function(self, node: exp.Expr) -> _Sql:
        name = str(node.this).lower()
        arguments = node.args.get("expressions") or []
        if name == "now" and not arguments:
            return self._moment(node, self._now)
        if name in _TEXT_TESTS_BY_NAME and len(arguments) == 2:
            return _Sql(f"{_TEXT_TESTS_BY_NAME[name]}({self._text(arguments[0])}, {self._text(arguments[1])})", _Kind.TRUTH)
        raise _refused(node, f"calls {name}, which can't be asked on Spark")

    def _moved_time(self, node: exp.Expr) -> _Sql:
        moment = self._constant_moment(node)
        if moment is None:
            raise _refused(node, "can't be computed on Spark: only a given time and now() can be moved, by an interval")
        return self._moment(node, moment)

    def _constant_moment(self, node: exp.Expr) -> datetime | None:
        match node:
            case exp.Paren():
                return self._constant_moment(node.this)
            case exp.CurrentTimestamp():
                return self._now
            case exp.Anonymous() if str(node.this).lower() == "now" and not node.args.get("expressions"):
                return self._now
            case exp.Cast() if isinstance(node.this, exp.Literal) and node.args["to"].this in (
                exp.DataType.Type.TIMESTAMPTZ,
                exp.DataType.Type.TIMESTAMP,
                exp.DataType.Type.DATE,
            ):
                return _moment_in(_constant_text(node.this))
            case exp.Sub() | exp.Add() if isinstance(node.expression, exp.Interval):
                base = self._constant_moment(node.this)
                length = _length_of(node.expression)
                try:
                    return None if base is None else (base - length if isinstance(node, exp.Sub) else base + length)
                except OverflowError as error:
                    raise _refused(node, "is no time that there is") from error
            case _:
                return None

    def _moment(self, _: exp.Expr, moment: datetime) -> _Sql:
        return _Sql(f"TIMESTAMP '{moment.astimezone(UTC):%Y-%m-%d %H:%M:%S.%f}+00:00'", _Kind.TIME)

    def _alike(self, node: exp.Expr, first: exp.Expr, second: exp.Expr) -> tuple[_Sql, _Sql]:
        """Both sides of a comparison, which must be of one kind: the two databases convert differently."""
        left, right = self.of(first), self.of(second)
        if left.kind is _Kind.TIME and isinstance(second, exp.Literal) and right.kind is _Kind.TEXT:
            right = self._moment(second, _moment_in(_constant_text(second)))
        elif right.kind is _Kind.TIME and isinstance(first, exp.Literal) and left.kind is _Kind.TEXT:
            left = self._moment(first, _moment_in(_constant_text(first)))
        kinds = {left.kind, right.kind} - {_Kind.NULL}
        if len(kinds) > 1:
            raise _refused(node, f"has {left.kind} on one side and {right.kind} on the other")
        if kinds & {_Kind.JSON, _Kind.BYTES}:
            raise _refused(node, f"compares {next(iter(kinds))}; ask for a key with ->>, or use body_text")
        return left, right

    def _any(self, node: exp.Expr) -> str:
        return self.of(node).text

    def _truth(self, node: exp.Expr) -> str:
        found = self.of(node)
        if found.kind not in (_Kind.TRUTH, _Kind.NULL):
            raise _refused(node, f"is {found.kind}, and is to be true or false")
        return found.text

    def _text(self, node: exp.Expr) -> str:
        found = self.of(node)
        if found.kind is not _Kind.TEXT:
            raise _refused(node, f"is {found.kind}, and is to be a text")
        return found.text


_ONE, _BOTH = frozenset({"this"}), frozenset({"this", "expression"})
_ARGUMENTS: dict[type[exp.Expr], frozenset[str]] = {
    exp.Literal: frozenset({"this", "is_string"}),
    exp.In: frozenset({"this", "expressions"}),
    exp.Between: frozenset({"this", "low", "high"}),
    exp.Like: frozenset({"this", "expression", "negate"}),
    exp.ILike: frozenset({"this", "expression", "negate"}),
    exp.Coalesce: frozenset({"this", "expressions"}),
    exp.Cast: frozenset({"this", "to"}),
    exp.TryCast: frozenset({"this", "to", "safe"}),
    exp.Anonymous: frozenset({"this", "expressions"}),
}


def _refused(node: exp.Expr, why: str) -> ConfigurationError:
    shown = node.sql(dialect="duckdb")
    return ConfigurationError(f"{shown[:80]!r} {why}", _HOW)


def _lower(text: str) -> str:
    """Small letters, each by itself as DuckDB makes them: Spark makes two of a dotted I, and another sigma at a word's end."""
    return f"lower(translate({text}, 'İΣ', 'iσ'))"


def _constant_text(node: exp.Expr) -> str:
    if not isinstance(node, exp.Literal) or not node.args.get("is_string"):
        raise _refused(node, "is to be a text in quotes")
    return str(node.this)


def _moment_in(text: str) -> datetime:
    try:
        moment = datetime.fromisoformat(text.strip())
    except ValueError as error:
        raise ConfigurationError(f"{text!r} is no time", "Write 2024-05-17, 2024-05-17 08:00 or 2024-05-17T08:00:00Z.") from error
    return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment


def _length_of(interval: exp.Interval) -> timedelta:
    unit = str(interval.args["unit"].this).upper().removesuffix("S") if interval.args.get("unit") is not None else ""
    number = str(interval.this.this) if isinstance(interval.this, exp.Literal) else ""
    if unit not in _SECONDS or not number.isdigit():
        raise _refused(interval, "is no length of time; give a whole number of seconds, minutes, hours, days or weeks")
    try:
        return timedelta(seconds=int(number) * _SECONDS[unit])
    except OverflowError as error:
        raise _refused(interval, "is too long") from error


def _quoted(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"
