"""The terms of a filter, taken away and added."""

import pytest

from redrive.errors import ConfigurationError
from redrive.failures.message.cause import Cause
from redrive.failures.message.groups import Group
from redrive.web.filter_bar import Chip, chips_of, offer_of, where_of, with_term
from redrive.web.page_request import PageRequest


def test_each_term_can_be_taken_away() -> None:
    assert chips_of("a = 1 AND b = 2") == [Chip("a = 1", "b = 2"), Chip("b = 2", "a = 1")]


def test_a_term_that_is_there_is_not_added_again() -> None:
    assert with_term(with_term("", "a = 1"), "a = 1") == "a = 1"


@pytest.mark.parametrize(
    ("operator", "term"),
    [
        ("is", "host = 'it''s'"),
        ("is not", "host IS DISTINCT FROM 'it''s'"),
        ("contains", "contains(host, 'it''s')"),
        ("else", "host = 'it''s'"),
    ],
)
def test_a_form_adds_a_term(operator: str, term: str) -> None:
    asked = PageRequest({"where": "a = 1", "column": "host", "operator": operator, "value": "it's"})
    assert where_of(asked) == f"a = 1 AND {term}"


def test_a_column_that_is_none_is_told() -> None:
    with pytest.raises(ConfigurationError):
        where_of(PageRequest({"column": "nothing", "value": "1"}))


def test_what_is_offered_goes_on_from_the_filter_that_there_is() -> None:
    group = Group(Cause("KeyError", "", ""), "1", 1)
    group.routing_keys["order.paid"] = 1
    offer = offer_of("a = 1", [group])
    assert "a = 1 AND error_type = 'KeyError'" in offer.filters
    assert "order.paid" in offer.values
    assert "host" in offer.columns
