"""What addresses and forms say."""

import pytest

from redrive.errors import ConfigurationError
from redrive.web.page_request import PageRequest, QueuePlace


@pytest.mark.parametrize(("text", "number"), [("", 7), ("0", 0), (" 12 ", 12), ("1,200", 1200)])
def test_a_number_may_have_commas_and_a_default(text: str, number: int) -> None:
    assert PageRequest({"n": text}).number("n", 7) == number


@pytest.mark.parametrize("text", ["-1", "x", "1.5", "²", "٣", "9" * 5000, "1e3"])
def test_what_is_no_number_is_refused(text: str) -> None:
    with pytest.raises(ConfigurationError, match="whole number"):
        PageRequest({"n": text}).number("n", 7, most=1000)


def test_a_link_has_what_it_asks_for_and_leaves_out_what_is_empty() -> None:
    asked = PageRequest({}, "/ops/redrive")
    link = asked.link("/cause", {"queue": "a&b=c/ü", "where": "", "page": 2})
    assert link == "/ops/redrive/cause?queue=a%26b%3Dc%2F%C3%BC&page=2"


def test_half_a_character_in_a_name_is_in_the_link_as_its_byte() -> None:
    assert PageRequest().link("/causes", {"queue": "\udcff"}) == "/causes?queue=%FF"


def test_a_dead_letter_queue_is_asked_for_by_its_very_name() -> None:
    place = QueuePlace("orders.dlq", literal=True)
    assert PageRequest(place.asks).place == place


def test_without_a_queue_there_is_no_place() -> None:
    with pytest.raises(ConfigurationError, match="no queue given"):
        _ = PageRequest({"queue": ""}).place


def test_a_group_and_an_expression_are_a_filter() -> None:
    filter_ = PageRequest({"group": "3f2a", "where": "retries > 2"}).filter
    assert (filter_.groups, filter_.where) == (("3f2a",), "retries > 2")
    assert PageRequest({}).filter.is_all
