"""Links to a tracker: a stranger's text is a value in them, and never more."""

from urllib.parse import parse_qs, urlsplit

import pytest
from hypothesis import given
from hypothesis import strategies as st

from redrive.errors import ConfigurationError
from redrive.failures.message.cause import Cause
from redrive.web.tracker_link import TrackerLink

TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=60)


def test_a_cause_is_filled_in() -> None:
    tracker = TrackerLink.of("https://tracker.example/search?q={type}&where={frame}&of={queue}")
    cause = Cause("shop.KeyError", "'…'", "shop/orders.py in price_of")
    assert tracker.host == "tracker.example"
    assert tracker.address(cause, "shop@orders") == (
        "https://tracker.example/search?q=KeyError&where=shop%2Forders.py%20in%20price_of"
        "&of=shop%40orders"
    )


@given(TEXTS, TEXTS)
def test_whatever_a_message_says_it_is_one_value_of_the_same_place(type_: str, text: str) -> None:
    tracker = TrackerLink.of("https://tracker.example/search?q={message}&t={type}")
    parts = urlsplit(tracker.address(Cause(type_, text, ""), "q"))
    assert (parts.scheme, parts.netloc, parts.path) == ("https", "tracker.example", "/search")
    assert parts.fragment == ""
    found = parse_qs(parts.query, keep_blank_values=True, strict_parsing=True)
    assert found == {"q": [text], "t": [type_.rpartition(".")[2]]}


@pytest.mark.parametrize(
    "template",
    [
        "javascript:alert('{type}')",
        "ftp://tracker/{type}",
        "//tracker/{type}",
        "https://{type}/",
        "https://user:password@tracker/{type}",
        "https://tracker/{type",
        "https://tracker/",
        "https://tracker/{other}",
        "https://tracker/ {type}",
        "https://[/{type}",
        "{type}",
    ],
)
def test_what_is_no_address_of_a_tracker_is_told(template: str) -> None:
    with pytest.raises(ConfigurationError):
        TrackerLink.of(template)
