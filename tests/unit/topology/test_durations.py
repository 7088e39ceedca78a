"""Durations as people give them."""

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from redrive.duration_text import format_duration
from redrive.errors import ConfigurationError
from redrive.topology.durations import Duration, duration_of


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("500ms", timedelta(milliseconds=500)),
        ("30s", timedelta(seconds=30)),
        ("5m", timedelta(minutes=5)),
        ("1h30m", timedelta(minutes=90)),
        ("1d", timedelta(days=1)),
        ("1.5s", timedelta(milliseconds=1500)),
        ("1m500ms", timedelta(seconds=60, milliseconds=500)),
    ],
)
def test_a_duration_is_numbers_with_units(text: str, expected: timedelta) -> None:
    assert duration_of(text) == expected


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "the duration is empty"),
        ("30", "has no unit after 30"),
        ("1h30", "has no unit after 30"),
        ("1h3x", "has the unknown unit 'x' in '3x'"),
        ("fast", "can't be read from 'fast' on"),
        ("-5s", "can't be read from '-5s' on"),
        ("1s2s", "has the unit 's' twice"),
        ("5 s", "has the unknown unit ' s'"),
        ("1.s", "has no unit after 1"),
        ("9999999999d", "is too long at '9999999999d'"),
        ("٣s", "can't be read from '٣s' on"),
    ],
)
def test_a_bad_duration_says_which_part(text: str, problem: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        duration_of(text)
    assert problem in caught.value.problem


@pytest.mark.parametrize("text", ["500ms", "30s", "5m", "1h30m", "1d", "2d3h4m5s6ms"])
def test_a_duration_is_written_as_it_is_read(text: str) -> None:
    assert format_duration(duration_of(text)) == text


@given(st.integers(0, 10**9))
def test_seconds_a_timedelta_and_a_text_are_one_duration(milliseconds: int) -> None:
    duration = timedelta(milliseconds=milliseconds)
    assert duration_of(duration) == duration_of(f"{milliseconds}ms") == duration
    assert duration_of(milliseconds / 1000) == duration


@pytest.mark.parametrize("value", [None, True, [30], b"30s", float("nan"), float("inf"), 1e300])
def test_what_is_no_duration_says_so_in_its_own_words(value: Duration) -> None:
    with pytest.raises(ConfigurationError, match="the grace is"):
        duration_of(value, "the grace")


def test_no_time_is_written_as_seconds() -> None:
    assert format_duration(timedelta()) == "0s"
