"""The filter bar of a page: the filter's terms, which can be removed, and suggestions to add."""

import re
from collections.abc import Iterable
from typing import NamedTuple

from redrive.failures.message.cause import Cause
from redrive.failures.message.columns import COLUMNS
from redrive.failures.message.groups import Group
from redrive.failures.store.facet import Facet
from redrive.web.page_request import PageRequest

_TOKEN = re.compile(
    r"""'(?:[^']|'')*'|"(?:[^"]|"")*"|--[^\n]*|/\*.*?\*/|[()\[\]{}]|\w+|\s+|.""", re.DOTALL
)
_OPENS, _CLOSES = "([{", ")]}"


def terms_of(where: str) -> list[str]:
    """Return the terms of an expression, or the whole expression if it can't be split safely."""
    terms, depth, term, is_between, has_or = [], 0, "", False, False
    for token in _TOKEN.findall(where):
        word = token.upper() if depth == 0 else ""
        if token in ("$", "'", '"', ";") or token.startswith(("--", "/*")):
            return [where.strip()]  # a dollar-quoted or unterminated string, or a comment
        if word in ("CASE", "END"):
            return [where.strip()]
        has_or = has_or or word == "OR"
        if word == "AND" and not is_between:
            terms.append(term)
            term = ""
            continue
        is_between = word == "BETWEEN" or (is_between and word != "AND")
        depth += (token in _OPENS) - (token in _CLOSES)
        if depth < 0:
            return [where.strip()]
        term += token
    terms.append(term)
    if has_or or depth:
        return [where.strip()]
    return [found for term in terms if (found := _bare(term.strip()))]


def joined(terms: Iterable[str]) -> str:
    """Return the expression that is true where all these terms are."""
    some = [term for term in terms if term.strip()]
    if len(some) == 1:
        return some[0]
    return " AND ".join(_whole(term) for term in some)


def _whole(term: str) -> str:
    """Return a term in parentheses if its neighbours could otherwise split it."""
    is_one = terms_of(term) == [term] and not re.search(r"\bOR\b|--|/\*", term, re.IGNORECASE)
    return term if is_one else f"({term}\n)" if "--" in term else f"({term})"


def _bare(term: str) -> str:
    """Return a term without the parentheses around it, if it contains no AND or OR."""
    if not (term.startswith("(") and term.endswith(")")):
        return term
    inner = term[1:-1].strip()
    depth = 0
    for token in _TOKEN.findall(inner):
        depth += (token == "(") - (token == ")")
        if depth < 0:
            return term
    return term if re.search(r"\b(?:OR|AND)\b", inner, re.IGNORECASE) else inner


OPERATORS = {
    "is": "{expression} = {value}",
    "is not": "{expression} IS DISTINCT FROM {value}",
    "contains": "contains({expression}, {value})",
    "over": "try_cast({expression} AS DOUBLE) > try_cast({value} AS DOUBLE)",
    "under": "try_cast({expression} AS DOUBLE) < try_cast({value} AS DOUBLE)",
}
"""How a column can be compared with a value."""
_MOST_OFFERED = 60


class Chip(NamedTuple):
    """A term of a filter.

    Args:
        text: the term.
        without: the filter without this term.
    """

    text: str
    without: str


class Suggestions(NamedTuple):
    """Suggestions for completing a filter.

    Args:
        filters: whole filters that extend the current one.
        columns: columns to compare.
        values: values to compare them with.
    """

    filters: list[str]
    columns: list[str]
    values: list[str]


def where_of(request: PageRequest) -> str:
    """Return the filter of a request, with the terms that its form adds."""
    where, column, value = request.text("where"), request.text("column"), request.text("value")
    picked = request.text("pick").splitlines()
    if picked:
        where = with_term(where, f"failure_id IN ({', '.join(map(_quoted, picked))})")
    if not column:
        return where
    pattern = OPERATORS.get(request.text("operator"), OPERATORS["is"])
    expression = Facet.named(column).expression
    return with_term(where, pattern.format(expression=expression, value=_quoted(value)))


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def with_term(where: str, term: str) -> str:
    """Return a filter with a term added; unchanged if it has that term already."""
    terms = terms_of(where)
    return where if term in terms else joined([*terms, term])


def chips_of(where: str) -> list[Chip]:
    """Return the terms of a filter."""
    terms = terms_of(where)
    return [
        Chip(term, joined(terms[:number] + terms[number + 1 :]))
        for number, term in enumerate(terms)
    ]


def offer_of(where: str, groups: Iterable[Group]) -> Suggestions:
    """Return suggestions for a filter, based on the groups that are shown."""
    values: dict[str, dict[str, None]] = {"error_type": {}, "routing_key": {}}
    for group in groups:
        if isinstance(group.key, Cause) and group.key.error_type:
            values["error_type"][group.key.error_type] = None
        values["routing_key"].update(dict.fromkeys(list(group.routing_keys)[:10]))
    terms = [Facet.named(name).term(value) for name, known in values.items() for value in known]
    terms += ["redrive_count > 0", "retries > 2", "failed_at > now() - interval 1 hour"]
    columns = [column.name for column in COLUMNS if column.name not in ("headers", "body_bytes")]
    return Suggestions(
        [with_term(where, term) for term in terms[:_MOST_OFFERED]],
        [name for name in columns if name != "body"],
        [value for known in values.values() for value in known][:_MOST_OFFERED],
    )
