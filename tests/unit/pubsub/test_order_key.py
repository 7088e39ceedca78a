"""The key that messages are ordered by is read from what others write."""

import json
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deliveries import table
from redrive.amqp.properties import Properties
from redrive.errors import ConfigurationError
from redrive.pubsub.message import Message
from redrive.pubsub.order_key import reader_of
from redrive.topology.headers import Delivery


def message(body: object = None, routing_key: str = "order.paid", **headers: object) -> Message:
    """A message as a handler gets it; a body that is no bytes as JSON."""
    encoded = body if isinstance(body, bytes) else json.dumps(body).encode()
    properties = Properties(headers=table(**headers))  # type: ignore[arg-type]
    return Message(Delivery("q", "master", routing_key, properties, encoded))


@pytest.mark.parametrize(
    ("order_by", "key"),
    [
        ("$.customer.id", "7"),
        ("$.lines[0].sku", "sock"),
        ("$['a.b']", "dotted"),
        ("header:tenant", "de"),
        ("routing_key", "order.paid"),
        (lambda found: found.body[:1].decode(), "{"),
        (lambda found: 42, "42"),
    ],
)
def test_a_key_is_a_path_a_header_the_routing_key_or_a_function(order_by: object, key: str) -> None:
    body = {"customer": {"id": 7}, "lines": [{"sku": "sock"}], "a.b": "dotted"}
    assert reader_of(order_by)(message(body, tenant="de")) == key  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"\xff",
        b"[" * 100_000,
        {},
        [],
        7,
        {"customer": None},
        {"customer": {"id": None}},
        {"customer": {"id": ""}},
        {"customer": {"id": True}},
        {"customer": {"id": 1.5}},
        {"customer": {"id": ["7"]}},
        b'{"customer": {"id": ' + b"9" * 5000 + b"}}",
    ],
    ids=lambda body: repr(body)[:30],
)
def test_a_body_without_a_text_or_a_whole_number_there_has_no_key(body: object) -> None:
    assert reader_of("$.customer.id")(message(body)) is None


@given(st.binary(max_size=50))
def test_no_body_makes_reading_raise(body: bytes) -> None:
    reader_of("$.a[0]")(message(body))


def test_a_function_that_raises_or_returns_work_gives_no_key() -> None:
    def yields(_: Message) -> Iterator[str]:
        yield "a"

    assert reader_of(lambda _: 1 // 0)(message()) is None
    with pytest.raises(ConfigurationError, match="generator"):
        reader_of(yields)  # type: ignore[arg-type]


def test_a_number_and_its_digits_are_one_key() -> None:
    read = reader_of("$.id")
    assert read(message({"id": 7})) == read(message({"id": "7"}))


def test_long_keys_take_little_memory_and_stay_different() -> None:
    read = reader_of("$.id")
    keys = {read(message({"id": "x" * 100_000 + end})) for end in "ab"}
    assert len(keys) == 2
    assert all(key is not None and len(key) < 100 for key in keys)


async def _waits(_: Message) -> str:
    return "a"


@pytest.mark.parametrize(
    "order_by", ["customer", "$", "$.", "$.a..b", "header:", "", 7, None, b"$.a", _waits]
)
def test_what_is_no_key_is_refused_at_once(order_by: object) -> None:
    with pytest.raises(ConfigurationError, match="order_by") as refused:
        reader_of(order_by)  # type: ignore[arg-type]
    assert len(str(refused.value).splitlines()) == 2
