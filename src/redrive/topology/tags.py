"""Tags: what a publisher puts on a message, and which of them a subscription wants.

The broker filters: a headers exchange between the main exchange and the queue has one binding for
each way to satisfy the expression, its disjunctive normal form. Each tag is a header of its own,
because a headers exchange compares whole values.
"""

import hashlib
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import product

from redrive.errors import ConfigurationError

HEADER = "redrive-tag-"
MAX_TERMS = 64

_TAG = r"[A-Za-z0-9][A-Za-z0-9_.:@/-]*"
_WHOLE_TAG = re.compile(_TAG)
_MAX_TAG = 200
_TOKEN = re.compile(rf"\s*(?:(?P<tag>{_TAG})|(?P<sign>\|\||&&|\(|\))|(?P<other>\S+))")
_NEGATIONS = ("!", "not", "NOT")

Term = frozenset[str]


def headers_of(tags: Iterable[str]) -> dict[str, bool]:
    """Return the headers of a message with these tags."""
    if isinstance(tags, str):
        raise ConfigurationError(f"tags is the string {tags!r}", f"Give a set: {{{tags!r}}}.")
    return {HEADER + _checked(tag): True for tag in sorted(tags, key=str)}


def _checked(tag: str) -> str:
    if not isinstance(tag, str) or not _WHOLE_TAG.fullmatch(tag) or len(tag) > _MAX_TAG:
        raise ConfigurationError(
            f"the tag {tag!r:.60} is invalid",
            f"Begin with a letter or digit, then use these and _ . : @ / -, at most {_MAX_TAG}.",
        )
    return tag


@dataclass(frozen=True, slots=True)
class TagFilter:
    """The tags that a subscription wants: `vip || eu`, `vip && (eu || us)`.

    Args:
        expression: tags, `||`, `&&` and brackets.
    """

    expression: str

    def __post_init__(self) -> None:
        if len(self.terms) > MAX_TERMS:
            raise ConfigurationError(
                f"the tags {self.expression!r:.60} can be satisfied in {len(self.terms)} ways; "
                f"the limit is {MAX_TERMS}",
                "Simplify the expression, or give these messages a tag of their own.",
            )

    @property
    def terms(self) -> tuple[Term, ...]:
        """The ways to satisfy the expression, each a set of tags that a message must all have. None
        contains another one, which would be redundant."""
        found = set(_Reader(self.expression).read())
        return tuple(
            sorted((term for term in found if not any(other < term for other in found)), key=sorted)
        )

    @property
    def fingerprint(self) -> str:
        """Eight characters that are the same for equivalent expressions."""
        return hashlib.sha256(repr([sorted(term) for term in self.terms]).encode()).hexdigest()[:8]


class _Reader:
    """A recursive-descent parser of an expression into its terms."""

    def __init__(self, expression: str) -> None:
        if not isinstance(expression, str):
            raise ConfigurationError(
                f"the tags are {expression!r}", "Give an expression such as 'vip || eu'."
            )
        self._expression = expression
        self._tokens = [found for found in _TOKEN.finditer(expression) if found[0].strip()]
        self._position = 0

    def read(self) -> Sequence[Term]:
        terms = self._any()
        if self._next() is not None:
            raise self._problem("has text after its end: a bracket or an operator is missing")
        return terms

    def _any(self) -> list[Term]:
        terms = self._all()
        while self._take("||"):
            terms = _some(terms + self._all(), self._expression)
        return terms

    def _all(self) -> list[Term]:
        terms = self._one()
        while self._take("&&"):
            terms = _some(
                [left | right for left, right in product(terms, self._one())], self._expression
            )
        return terms

    def _one(self) -> list[Term]:
        if self._take("("):
            terms = self._any()
            if not self._take(")"):
                raise self._problem("has a bracket that is not closed")
            return terms
        token = self._next()
        if token is not None and (token.startswith("!") or token in _NEGATIONS):
            raise self._problem(
                "needs a negation, which a broker's bindings can't express; filter in the "
                "handler, with where="
            )
        if token is None or not _WHOLE_TAG.fullmatch(token):
            raise self._problem(
                "has no tag where one is needed"
                if token is None
                else f"has {token!r} where a tag is needed"
            )
        self._position += 1
        return [frozenset({_checked(token)})]

    def _next(self) -> str | None:
        return (
            self._tokens[self._position][0].strip() if self._position < len(self._tokens) else None
        )

    def _take(self, sign: str) -> bool:
        if self._next() != sign:
            return False
        self._position += 1
        return True

    def _problem(self, what: str) -> ConfigurationError:
        place = (
            _begin(self._tokens[self._position]) + 1
            if self._position < len(self._tokens)
            else len(self._expression) + 1
        )
        return ConfigurationError(
            f"the tags {self._expression!r:.80} can't be read at character {place}: it {what}",
            "Write it as 'vip || eu' or 'a && (b || c)'.",
        )


def _begin(token: re.Match[str]) -> int:
    return token.start(token.lastgroup or 0)


def _some(terms: list[Term], expression: str) -> list[Term]:
    """Remove duplicate terms, and refuse an expression with too many before it fills the memory."""
    terms = list(dict.fromkeys(terms))
    if len(terms) > MAX_TERMS * MAX_TERMS:
        raise ConfigurationError(
            f"the tags {expression!r:.60} can be satisfied in too many ways", "Simplify it."
        )
    return terms
