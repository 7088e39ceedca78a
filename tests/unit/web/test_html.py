"""Words, numbers and texts as they stand on pages."""

from redrive.web.auth.middleware import Refusal
from redrive.web.html import page, rate_in_words


def test_a_rate_has_a_decimal_while_that_says_something() -> None:
    rates = (0.26, 2.0, 9.96, 12.4, 1000.0)
    assert [rate_in_words(rate) for rate in rates] == ["0.3", "2", "10.0", "12", "1,000"]


def test_what_stands_on_a_page_is_text_without_what_steers_or_hides() -> None:
    shown = bytes(page("refused", {"refusal": Refusal(403, "<b>\u202e\x1b\udcff", "")}).body)
    assert b"&lt;b&gt;\\u202e\\x1b\\xff" in shown
