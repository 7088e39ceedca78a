"""Counts, sizes and ages as people read them."""

from datetime import UTC, datetime, timedelta

import pytest

from redrive.number_text import age_in_words, count_of, moment_in_words, size_in_words

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (-5, "just now"),
        (0, "just now"),
        (1, "1 second ago"),
        (59, "59 seconds ago"),
        (60, "1 minute ago"),
        (7200, "2 hours ago"),
        (86400 * 1000, "1,000 days ago"),
    ],
)
def test_an_age_is_told_in_its_largest_unit(seconds: int, words: str) -> None:
    assert age_in_words(NOW - timedelta(seconds=seconds), NOW) == words


def test_what_is_not_known_is_said() -> None:
    assert age_in_words(None, NOW) == "at an unknown time"
    assert moment_in_words(None) == "–"


def test_a_moment_is_told_in_utc() -> None:
    assert moment_in_words(datetime.fromisoformat("2026-03-01T13:00:00+01:00")) == (
        "2026-03-01 12:00:00 UTC"
    )


def test_sizes_have_units() -> None:
    sizes = (5, 2048, 3 * 1024**2, 1.5 * 1024**3, 2 * 1024**4)
    words = [size_in_words(size) for size in sizes]
    assert words == ["5 B", "2 KiB", "3.0 MiB", "1.5 GiB", "2.0 TiB"]


def test_one_is_no_plural() -> None:
    assert [count_of(number, "message") for number in (0, 1, 1200)] == [
        *("0 messages", "1 message", "1,200 messages")
    ]
