"""What a topic exchange gives to whom."""

import itertools
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from redrive.topology.binding_pattern import literal_wildcards, matches, overlap

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


@pytest.mark.parametrize(
    ("first", "second", "both"),
    [
        ("a.*", "*.b", True),
        ("a.*", "b.*", False),
        ("a.#", "#.b", True),
        ("#", "", True),
        ("#", "#", True),
        ("*", "", False),
        ("a.*", "a", False),
        ("a.#.c", "a.c", True),
        ("#.a.#", "b.*", True),
        ("a.b", "a.b", True),
    ],
)
def test_two_patterns_overlap_where_one_key_matches_both(
    first: str, second: str, both: bool
) -> None:
    assert overlap(first, second) is both
    assert overlap(second, first) is both


_FEW = [".".join(words) for n in (1, 2, 3) for words in itertools.product("ab*#", repeat=n)]
_ALL_KEYS = [".".join(words) for n in range(6) for words in itertools.product("ab", repeat=n)]


@given(st.sampled_from(_FEW), st.sampled_from(_FEW))
def test_patterns_overlap_if_and_only_if_there_is_such_a_key(first: str, second: str) -> None:
    there_is = any(matches(first, key) and matches(second, key) for key in _ALL_KEYS)
    assert overlap(first, second) is there_is


@pytest.mark.parametrize(
    ("pattern", "words"),
    [
        ("user.*", []),
        ("#", []),
        ("a.*b", ["*b"]),
        ("user*", ["user*"]),
        ("##.*.a#b", ["##", "a#b"]),
    ],
)
def test_a_wildcard_among_other_characters_stands_for_itself(
    pattern: str, words: list[str]
) -> None:
    assert literal_wildcards(pattern) == words
    assert all(matches(word, word) and not matches(word, "user") for word in words)
