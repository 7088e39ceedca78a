"""Taking a filter apart, and putting it together again: it means the same."""

import pytest

from deliveries import failed
from redrive.failures.message.failed_message import FailedMessage
from redrive.failures.store.filter import Filter, OpenFilter
from redrive.web.filter_bar import joined, terms_of


@pytest.mark.parametrize(
    ("where", "terms"),
    [
        ("retries > 2", ["retries > 2"]),
        ("retries > 2 AND host = 'a'", ["retries > 2", "host = 'a'"]),
        ("host = 'a and b' and retries > 2", ["host = 'a and b'", "retries > 2"]),
        ("host = 'it''s' AND size > 1", ["host = 'it''s'", "size > 1"]),
        ("(retries > 2) AND (size > 1)", ["retries > 2", "size > 1"]),
        ("(a or b) and c", ["(a or b)", "c"]),
        ("a or b and c", ["a or b and c"]),
        ("retries BETWEEN 1 AND 3 AND size > 1", ["retries BETWEEN 1 AND 3", "size > 1"]),
        ("CASE WHEN a AND b THEN c END AND d", ["CASE WHEN a AND b THEN c END AND d"]),
        ("a -- and b\nand c", ["a -- and b\nand c"]),
        ("a = $$x and y$$ and b", ["a = $$x and y$$ and b"]),
        ("(a) AND b)", ["(a) AND b)"]),
        ("'open AND b", ["'open AND b"]),
        ("", []),
        ("(a) OR (b)", ["(a) OR (b)"]),
    ],
)
def test_a_filter_is_taken_apart_at_its_outermost_ands(where: str, terms: list[str]) -> None:
    assert terms_of(where) == terms


@pytest.mark.parametrize(
    "where",
    [
        "retries = 0 AND (host IS NULL OR size > 99) AND size BETWEEN 1 AND 3",
        "host IS NULL OR size = 99",
        "size > 1 -- a comment",
        "(size > 1) = (retries > 1) AND true",
    ],
)
def test_what_is_put_together_again_means_the_same(where: str) -> None:
    message = FailedMessage(failed())
    answers = []
    for text in (where, joined(terms_of(where)), joined([*terms_of(where), "true"])):
        with OpenFilter(Filter(text)) as filter_:
            answers.append(filter_([message]))
    assert answers[0] == answers[1] == answers[2]


def test_a_term_with_an_or_stays_one() -> None:
    assert joined(["a OR b", "c"]) == "(a OR b) AND c"
