from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from redrive import strict_json
from redrive.amqp.field_table import Table
from redrive.amqp.properties import Properties
from redrive.errors import ConfigurationError
from redrive.topology.model import Binding, Exchange, Subscription
from redrive.topology.tags import TagFilter
from redrive.topology.text_filter import TextFilter, equal_headers


@dataclass
class Received:
    """A message, as far as a filter sees it."""

    body: str = '{"total": 120, "customer": {"id": "x"}, "vip": true, "gone": null}'
    routing_key: str = "order.paid"
    properties: Properties = field(
        default_factory=lambda: Properties(
            headers=Table.of({"country": "DE", "n": 3, "vip": True, "blob": b"DE", "x-a": "b"}),
            app_id="shop",
        )
    )

    def json(self) -> object:
        return strict_json.read(self.body.encode())


MATCHING = (
    "headers.country = 'DE'",
    "headers.\"country\" = 'DE'",
    "headers.country <> 'AT'",
    "headers.n = 3 and headers.n <= 3 AND headers.n >= 3 AND headers.n < 3.5 AND headers.n > -1",
    "headers.vip = TRUE",
    "headers.country IN ('AT', 'DE')",
    "headers.country NOT IN ('AT', 'CH')",
    "headers.nope IS NULL AND body.nope.deep IS NULL AND body.gone IS NULL",
    "headers.n IS NOT NULL",
    "body.total > 100 AND body.customer.id = 'x' AND body.vip = true",
    "routing_key = 'order.paid' AND app_id = 'shop'",
    "headers.nope = 'x' OR headers.country = 'DE'",
    "NOT (headers.country = 'AT' OR headers.n = 4)",
    "headers.country = 'AT' AND headers.n = 4 OR headers.vip = TRUE",
)
DECLINED = (
    "headers.country = 'de'",
    "headers.nope <> 'AT'",
    "NOT headers.nope = 'x'",
    "headers.nope NOT IN ('x')",
    "headers.n = '3'",
    "headers.vip = 1",
    "headers.blob = 'DE'",
    "body.total = TRUE",
    "body.customer = 'x'",
    "body.total.deeper = 1",
    "type = 'order'",
    "headers.country = 'DE' AND headers.nope = 'x'",
)


@pytest.mark.parametrize("text", MATCHING)
def test_it_means_what_it_means_in_sql(text: str) -> None:
    assert TextFilter(text)(Received())


@pytest.mark.parametrize("text", DECLINED)
def test_what_is_missing_or_of_another_type_is_neither_equal_nor_unequal(text: str) -> None:
    assert not TextFilter(text)(Received())


def test_a_body_that_is_no_json_has_no_values() -> None:
    assert TextFilter("body.total IS NULL")(Received(body="{"))


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "the filter is ''"),
        ("headers.a = '" + "x" * 2000, "at most 2000 characters"),
        ("headers = 'x'", "character 9: it needs one of headers.NAME"),
        ("body = 3", "it needs one of headers.NAME"),
        ("routing_key.x = 3", "and not routing_key.x"),
        ("headers.a.b = 3", "and not headers.a.b"),
        ("price = 3", "character 1: it needs one of"),
        ("headers.a = ", "character 13: it needs a value"),
        ("headers.a = b", "it needs a value"),
        ("headers.a = NULL", "it needs a value"),
        ("headers.a == 'x'", "it needs a value"),
        ("headers.a LIKE 'x'", "it needs a comparison"),
        ("headers.a NOT = 'x'", "it needs IN"),
        ("headers.a IS 3", "it needs NULL"),
        ("headers.a IN 'x'", r"it needs '\('"),
        ("headers.a IN ('x'", r"it needs '\)'"),
        ("headers.3 = 3", "it needs a name"),
        ("headers. = 3", "it needs a name"),
        ("(headers.a = 'x'", r"character 17: it needs '\)'"),
        ("headers.a = 'x", "character 13: it has a character"),
        ("headers.a = 'x'; drop", "has a character"),
        ("headers.a = 'x' headers.b = 'y'", "text after its end"),
        ("NOT " * 60 + "headers.a = 1", "nested too deeply"),
        ("(" * 60, "nested too deeply"),
    ],
)
def test_what_cannot_be_read_is_refused_with_its_place(text: str, problem: str) -> None:
    with pytest.raises(ConfigurationError, match=problem):
        TextFilter(text)


@pytest.mark.parametrize(
    ("text", "equal"),
    [
        ("headers.b = 'x' AND headers.a = TRUE AND body.c = 3", (("a", True), ("b", "x"))),
        ("(headers.a = 'x' AND headers.a = 'x') AND headers.n = 3", (("a", "x"),)),
        ("headers.a = 'x' OR headers.b = 'x'", ()),
        ("NOT headers.a = 'x'", ()),
        ("headers.a <> 'x'", ()),
        ("headers.\"x-a\" = 'x'", ()),
        ("headers.a = 'x' AND headers.a = 'y'", ()),
        ("routing_key = 'x'", ()),
    ],
)
def test_the_broker_compares_headers_that_each_message_must_have(
    text: str, equal: tuple[tuple[str, str | bool], ...]
) -> None:
    assert TextFilter(text).equal == equal


@given(st.dictionaries(st.text(min_size=1, max_size=9), st.text(max_size=9) | st.booleans()))
def test_headers_of_any_name_and_value_can_be_asked_for(headers: dict[str, str | bool]) -> None:
    wanted = {name: value for name, value in headers.items() if not name.startswith("x-")}
    if wanted:
        assert dict(TextFilter(equal_headers(wanted.items())).equal) == wanted


def test_a_subscription_gets_its_messages_through_a_filter_of_its_headers_and_tags() -> None:
    where = TextFilter("headers.country = 'DE' AND body.total > 3")
    subscription = Subscription("q", ["user.*"], tags=TagFilter("vip || eu"), where=where)
    name, topology = subscription.filter_exchange, subscription.topology()
    assert Exchange(name, "headers") in topology.exchanges
    assert [binding for binding in topology.bindings if binding.source == name] == [
        Binding(
            name, "q", "", arguments=(("x-match", "all"), (f"redrive-tag-{tag}", True), country)
        )
        for tag in ("eu", "vip")
        for country in [("country", "DE")]
    ]
    others = [
        Subscription("q", ["user.*"], where=where),
        Subscription("q", ["user.*"], tags=TagFilter("vip || eu")),
        Subscription("q", ["user.*"], where=TextFilter("headers.country = 'AT'")),
    ]
    assert len({name, *(one.filter_exchange for one in others)}) == 4
    assert not Subscription("q", where=TextFilter("body.total > 3")).filter_exchange
