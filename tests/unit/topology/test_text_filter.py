"""Filters of subscriptions as text: what they take, what they refuse, what a broker selects by."""

import re

import pytest

from redrive.errors import ConfigurationError
from redrive.topology.model import Subscription
from redrive.topology.tags import TagFilter
from redrive.topology.text_filter import Condition, TextFilter, filter_for, text_of_json


@pytest.mark.parametrize(
    ("expression", "sql"),
    [
        ("headers.country = 'DE'", "headers->>'country' = 'DE'"),
        ("headers->>'x-y z' <> 'it''s'", "headers->>'x-y z' != 'it''s'"),
        ("Routing_Key='a' AND body.a.b IN ('1' ,'2')", None),
        (" body->>'plan' is not null ", "body->>'$.plan' is not null"),
        ("body->>'$.a.b' is NULL and app_id != ''", "body->>'$.a.b' is null and app_id != ''"),
    ],
)
def test_an_expression_means_one_of_an_operators_filter(expression: str, sql: str | None) -> None:
    expected = sql or "routing_key = 'a' and body->>'$.a.b' in ('1', '2')"
    assert TextFilter(expression).sql == expected
    assert TextFilter(expected).conditions == TextFilter(expression).conditions


@pytest.mark.parametrize(
    ("expression", "place"),
    [
        ("", 1),
        ("headers.country = DE", 1),
        ("headers.n = 5", 1),
        ("headers = 'x'", 1),
        ("headers.a.b = 'x'", 1),
        ("headers->>'$.a' = 'x'", 1),
        ("headers->>'' = 'x'", 1),
        ("body = 'x'", 1),
        ("body->>'a.b' = 'x'", 1),
        ("body->>'$.a[0]' = 'x'", 1),
        ("retries = '3'", 1),
        ("routing_key.x = 'a'", 1),
        ("routing_key like 'a%'", 1),
        ("not routing_key = 'a'", 1),
        ("(routing_key = 'a')", 1),
        ("routing_key in ()", 1),
        ("routing_key = 'a", 1),
        ("routing_key = 'a' or app_id = 'b'", 19),
        ("routing_key = 'a'; drop table failed", 18),
        ("routing_key = 'a' and ", 23),
        ("routing_key = 'a' -- 'b'", 19),
    ],
)
def test_anything_else_is_refused_with_its_place(expression: str, place: int) -> None:
    with pytest.raises(ConfigurationError, match=f"at character {place}: "):
        TextFilter(expression)


@pytest.mark.parametrize("expression", [None, 3, "x" * 2001])
def test_what_is_no_text_or_too_long_is_refused(expression: str) -> None:
    with pytest.raises(ConfigurationError, match="the filter is"):
        TextFilter(expression)


def test_a_header_that_is_to_have_two_values_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="matches no message"):
        TextFilter("headers.a = 'x' and headers.a = 'y'")
    assert TextFilter("headers.a = 'x' and headers.a = 'x'").for_the_broker == (("a", "x"),)


@pytest.mark.parametrize(
    ("expression", "selected"),
    [
        ("headers.b = 'x' and headers.a = 'y'", (("a", "y"), ("b", "x"))),
        ("headers.a != 'x' and headers.b in ('x', 'y') and headers.c is null", ()),
        ("routing_key = 'x' and body.a = 'x'", ()),
        ("headers->>'x-tenant' = 'a' and headers->>'X-tenant' = 'a'", ()),
        ("headers.n = '5' and headers.t = 'true' and headers.z = '\ufffd'", ()),
        ("headers.q = '\"x\"' and headers.e = ''", (("e", ""), ("q", '"x"'))),
    ],
)
def test_a_broker_selects_by_headers_that_can_only_be_a_text(
    expression: str, selected: tuple[tuple[str, str], ...]
) -> None:
    assert TextFilter(expression).for_the_broker == selected
    again = filter_for(selected)
    assert (again.for_the_broker if again else ()) == selected


@pytest.mark.parametrize(
    ("value", "text"),
    [(None, None), ("x", "x"), (True, "true"), (5, "5"), (1.5, "1.5"), ({"a": [1]}, '{"a":[1]}')],
)
def test_values_are_compared_as_their_json_text(value: object, text: str | None) -> None:
    assert text_of_json(value) == text


def test_a_comparison_with_a_missing_value_is_never_true() -> None:
    for test in ("=", "!=", "in"):
        assert not Condition("header", ("a",), test, ("x",)).holds(None)
    assert Condition("header", ("a",), "is null").holds(None)


def filtered(where: str, tags: str | None = None) -> Subscription:
    return Subscription(
        "q", ["a"], tags=None if tags is None else TagFilter(tags), where=TextFilter(where)
    )


def test_the_filter_exchange_has_a_binding_for_each_way_to_satisfy_tags_and_headers() -> None:
    subscription = filtered("headers.country = 'DE' and body.x = 'y'", "vip || eu")
    found = [
        dict(binding.arguments)
        for binding in subscription.topology().bindings
        if binding.source == subscription.filter_exchange
    ]
    assert found == [
        {"x-match": "all", "redrive-tag-eu": True, "country": "DE"},
        {"x-match": "all", "redrive-tag-vip": True, "country": "DE"},
    ]
    assert re.fullmatch(r"q@tags\.[0-9a-f]{8}", subscription.filter_exchange)
    assert subscription.selection == "vip || eu where headers.country = 'DE' and body.x = 'y'"


def test_a_filter_that_only_the_subscriber_can_ask_needs_nothing_on_the_broker() -> None:
    usual = Subscription("q", ["a"])
    assert filtered("body.x = 'y'").topology() == usual.topology()
    tagged = Subscription("q", ["a"], tags=TagFilter("vip"))
    assert filtered("body.x = 'y'", "vip").topology() == tagged.topology()


def test_a_tag_filter_keeps_its_name_beside_a_filter_that_the_broker_is_not_asked() -> None:
    tagged = Subscription("q", ["a"], tags=TagFilter("vip"))
    assert filtered("body.x = 'y'", "vip").filter_exchange == tagged.filter_exchange
    assert filtered("body.x = 'y'").filter_exchange == ""
