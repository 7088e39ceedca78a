"""What a topic exchange gives to whom."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from redrive.topology.binding_pattern import matches

words = st.sampled_from(["a", "b", ""])
keys = st.lists(words, min_size=1, max_size=5).map(".".join).filter(bool)
patterns = (
    st.lists(words | st.sampled_from(["*", "#"]), min_size=1, max_size=5).map(".".join).filter(bool)
)


@pytest.mark.parametrize(
    ("pattern", "key", "expected"),
    [
        ("user.*", "user.create", True),
        ("user.*", "user", False),
        ("user.*", "user.create.eu", False),
        ("user.#", "user", True),
        ("user.#", "user.create.eu", True),
        ("#", "", True),
        ("*", "", False),
        ("", "", True),
        ("#", "ucenter@user", True),
        ("*", "ucenter@user", True),
        ("*.*", "ucenter@user", False),
        ("#.eu", "user.create.eu", True),
        ("#.eu.#", "eu", True),
        ("user.cre*", "user.create", False),
        ("ucenter@user", "ucenter@user", True),
    ],
)
def test_a_pattern_matches_by_words(pattern: str, key: str, expected: bool) -> None:
    assert matches(pattern, key) is expected


@given(patterns, keys)
def test_it_says_what_a_regular_expression_of_the_same_meaning_says(pattern: str, key: str) -> None:
    parts = {"*": r"[^.]*\.", "#": r"(?:[^.]*\.)*"}
    expression = "".join(parts.get(word, re.escape(word) + r"\.") for word in pattern.split("."))
    assert matches(pattern, key) is bool(re.fullmatch(expression, key + "."))
