"""Bindings, as each kind of exchange follows them."""

import pytest

from redrive.amqp.field_table import FieldValue, Table
from redrive.testing.memory.exchange_model import BindingModel, ExchangeModel


def is_followed(
    kind: str,
    key: str,
    published_with: str,
    arguments: dict[str, FieldValue] | None = None,
    headers: dict[str, FieldValue] | None = None,
) -> bool:
    exchange = ExchangeModel("shop", kind)
    exchange.bind(BindingModel("orders", True, key, Table.of(arguments or {})))
    return bool(exchange.matches([published_with], Table.of(headers or {})))


@pytest.mark.parametrize(
    ("pattern", "key", "expected"),
    [
        ("order.*", "order.paid", True),
        ("order.*", "order", False),
        ("order.*", "order.paid.late", False),
        ("order.#", "order", True),
        ("order.#", "order.paid.late", True),
        ("#", "", True),
        ("#.late", "order.paid.late", True),
        ("#.late.#", "order.paid", False),
        ("*.#.late", "late", False),
        ("order.paid", "order.paid", True),
        ("", "", True),
    ],
)
def test_a_topic_pattern_is_followed_word_by_word(pattern: str, key: str, expected: bool) -> None:
    assert is_followed("topic", pattern, key) is expected


@pytest.mark.parametrize(
    ("kind", "key", "expected"),
    [("direct", "a", True), ("direct", "b", False), ("fanout", "b", True)],
)
def test_direct_asks_for_the_key_and_fanout_for_nothing(
    kind: str, key: str, expected: bool
) -> None:
    assert is_followed(kind, "a", key) is expected


@pytest.mark.parametrize(
    ("arguments", "headers", "expected"),
    [
        ({"x-match": "all", "a": 1, "b": True}, {"a": 1, "b": True, "c": 0}, True),
        ({"x-match": "all", "a": 1, "b": True}, {"a": 1}, False),
        ({"x-match": "any", "a": 1, "b": True}, {"b": True}, True),
        ({"x-match": "any", "a": 1}, {"a": 2}, False),
        ({"x-match": "all", "x-a": 1}, {}, True),
        ({"x-match": "all-with-x", "x-a": 1}, {}, False),
        ({"x-match": "any-with-x", "x-a": 1}, {"x-a": 1}, True),
    ],
)
def test_headers_ask_for_all_or_any_of_them(
    arguments: dict[str, FieldValue], headers: dict[str, FieldValue], expected: bool
) -> None:
    assert is_followed("headers", "", "", arguments, headers) is expected


def test_an_exchange_that_deletes_itself_goes_with_its_last_binding() -> None:
    exchange = ExchangeModel("shop", "fanout", auto_delete=True)
    one, other = (BindingModel(name, True, "", Table()) for name in ("one", "other"))
    exchange.bind(one)
    exchange.bind(other)
    assert not exchange.unbind(one)
    assert not exchange.unbind(one)
    assert exchange.forget("other", is_queue=True)
