"""The terms of a filter's expression: what stands between its outermost ANDs, so that people can
take one of them away."""

import re
from collections.abc import Iterable

_TOKEN = re.compile(
    r"""'(?:[^']|'')*'|"(?:[^"]|"")*"|--[^\n]*|/\*.*?\*/|[()\[\]{}]|\w+|\s+|.""", re.DOTALL
)
_OPENS, _CLOSES = "([{", ")]}"


def terms_of(where: str) -> list[str]:
    """The terms of an expression; itself alone where it is none that can be taken apart."""
    terms, depth, term, is_between, has_or = [], 0, "", False, False
    for token in _TOKEN.findall(where):
        word = token.upper() if depth == 0 else ""
        if token in ("$", "'", '"', ";") or token.startswith(("--", "/*")):
            return [where.strip()]  # a text in dollars, one without an end, a comment
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
    """The expression that is true where all of these terms are."""
    some = [term for term in terms if term.strip()]
    if len(some) == 1:
        return some[0]
    return " AND ".join(_whole(term) for term in some)


def _whole(term: str) -> str:
    """A term that stays one, whatever stands next to it."""
    is_one = terms_of(term) == [term] and not re.search(r"\bOR\b|--|/\*", term, re.IGNORECASE)
    return term if is_one else f"({term}\n)" if "--" in term else f"({term})"


def _bare(term: str) -> str:
    """A term without brackets around all of it, where it has an AND or an OR in them no longer."""
    if not (term.startswith("(") and term.endswith(")")):
        return term
    inner = term[1:-1].strip()
    depth = 0
    for token in _TOKEN.findall(inner):
        depth += (token == "(") - (token == ")")
        if depth < 0:
            return term
    return term if re.search(r"\b(?:OR|AND)\b", inner, re.IGNORECASE) else inner
