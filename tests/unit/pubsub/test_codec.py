"""Bodies: what is sent of what a caller publishes."""

import math
from dataclasses import dataclass
from datetime import UTC, datetime

import pydantic
import pytest
from hypothesis import given
from hypothesis import strategies as st

from redrive.errors import ConfigurationError
from redrive.pubsub.codec import BINARY, JSON, TEXT, encode_body


class Order(pydantic.BaseModel):
    id: int


class Price(pydantic.BaseModel):
    amount: float


@dataclass
class Line:
    count: int


@pytest.mark.parametrize(
    ("body", "encoded", "content_type"),
    [
        (b"\xff\0", b"\xff\0", BINARY),
        (bytearray(b"ab"), b"ab", BINARY),
        (memoryview(b"abcd")[::2], b"ac", BINARY),
        ("grün", "grün".encode(), TEXT),
        ("", b"", TEXT),
        (None, b"null", JSON),
        (True, b"true", JSON),
        (7, b"7", JSON),
        ({"a": [1, None]}, b'{"a":[1,null]}', JSON),
        (Order(id=3), b'{"id":3}', JSON),
        ([Order(id=3)], b'[{"id":3}]', JSON),
        (Line(2), b'{"count":2}', JSON),
        (datetime(2024, 5, 17, tzinfo=UTC), b'"2024-05-17T00:00:00Z"', JSON),
        ({"brand": "Infinity", "model": "NaN"}, b'{"brand":"Infinity","model":"NaN"}', JSON),
    ],
)
def test_a_body_is_encoded_by_its_type(body: object, encoded: bytes, content_type: str) -> None:
    assert encode_body(body) == (encoded, content_type)


@given(st.text())
def test_any_text_can_be_sent(text: str) -> None:
    assert encode_body(text)[0].decode("utf-8", "surrogatepass") == text


def endless() -> list[object]:
    """A list that is in itself."""
    body: list[object] = []
    body.append(body)
    return body


@pytest.mark.parametrize(
    "body",
    [
        math.nan,
        {"v": [-math.inf]},
        Price(amount=math.inf),
        [{"prices": (Price(amount=1), Price(amount=math.nan))}],
        Line(math.nan),  # type: ignore[arg-type]
    ],
)
def test_a_number_that_json_has_none_for_is_refused(body: object) -> None:
    with pytest.raises(ConfigurationError, match=r"JSON has no .*; send such a number as null"):
        encode_body(body)


class NullablePrice(Price):
    model_config = pydantic.ConfigDict(ser_json_inf_nan="null")


def test_a_model_that_asks_for_null_in_its_place_gets_it() -> None:
    assert encode_body(NullablePrice(amount=math.inf))[0] == b'{"amount":null}'


@pytest.mark.parametrize("body", [object(), {1: object()}, endless(), {"a": "\ud800"}])
def test_what_no_json_can_be_made_of_is_refused_by_the_name_of_its_type(body: object) -> None:
    with pytest.raises(ConfigurationError, match=f"a {type(body).__name__}, can't be converted"):
        encode_body(body)
