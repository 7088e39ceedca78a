"""Words, numbers and texts as they stand on pages."""

from datetime import UTC, datetime, timedelta

import pytest

from redrive.web.auth.middleware import Refusal
from redrive.web.html import (
    age_in_words,
    moment_in_words,
    page,
    rate_in_words,
    size_in_words,
)

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
    assert age_in_words(None) == "at an unknown time"
    assert moment_in_words(None) == "–"


def test_a_moment_is_told_in_utc() -> None:
    assert moment_in_words(datetime.fromisoformat("2026-03-01T13:00:00+01:00")) == (
        "2026-03-01 12:00:00 UTC"
    )


def test_sizes_have_units() -> None:
    assert [size_in_words(size) for size in (5, 2048, 3 * 1024**2)] == ["5 B", "2 KiB", "3.0 MiB"]


def test_a_rate_has_a_decimal_while_that_says_something() -> None:
    rates = (0.26, 2.0, 9.96, 12.4, 1000.0)
    assert [rate_in_words(rate) for rate in rates] == ["0.3", "2", "10.0", "12", "1,000"]


def test_what_stands_on_a_page_is_text_without_what_steers_or_hides() -> None:
    shown = bytes(page("refused", {"refusal": Refusal(403, "<b>\u202e\x1b\udcff", "")}).body)
    assert b"&lt;b&gt;\\u202e\\x1b\\xff" in shown
