from typing import Any

import pytest
from hypothesis import given

from field_tables import properties, table_bytes
from redrive.amqp.field_table import Table
from redrive.amqp.properties import Malformed, Properties, encode_id_and_timestamp
from redrive.errors import ConfigurationError


@given(properties)
def test_properties_are_read_back_as_they_were(given_properties: Properties) -> None:
    assert Properties.parse(given_properties.encode()) == given_properties


@given(properties)
def test_properties_are_encoded_to_the_bytes_they_came_in(given_properties: Properties) -> None:
    data = given_properties.encode()
    assert Properties.parse(data).encode() == data


@given(table_bytes)
def test_headers_keep_their_bytes_among_the_properties(data: bytes) -> None:
    encoded = b"\x20\x00" + len(data).to_bytes(4, "big") + data
    assert Properties.parse(encoded).encode() == encoded


def test_no_properties_are_two_bytes() -> None:
    assert Properties().encode() == b"\0\0"


def test_an_empty_table_of_headers_is_told_from_none() -> None:
    assert (Properties.parse(b"\0\0").encode(), Properties.parse(b"\x20\0\0\0\0\0").encode()) == (
        b"\0\0",
        b"\x20\0\0\0\0\0",
    )


def test_properties_stand_in_the_order_of_the_specification() -> None:
    encoded = Properties(
        content_type="a", delivery_mode=2, message_id="m", timestamp=1, cluster_id="c"
    ).encode()
    assert encoded == b"\x90\xc4\1a\2\1m\0\0\0\0\0\0\0\1\1c"


def test_a_property_of_255_bytes_fits() -> None:
    assert len(Properties(message_id="m" * 255).encode()) == 2 + 1 + 255


def test_a_property_of_256_bytes_is_refused_by_its_name() -> None:
    with pytest.raises(ConfigurationError, match="correlation_id is 256 bytes"):
        Properties(correlation_id="ü" * 128).encode()


@pytest.mark.parametrize(
    "too_large",
    [
        Properties(priority=256),
        Properties(delivery_mode=-1),
        Properties(timestamp=-1),
        Properties(timestamp=2**64),
    ],
)
def test_a_number_that_its_property_cannot_hold_is_refused(too_large: Properties) -> None:
    with pytest.raises(ConfigurationError):
        too_large.encode()


@pytest.mark.parametrize(
    "values",
    [{"priority": "5"}, {"delivery_mode": 2.0}, {"timestamp": 1.5}, {"headers": {"a": 1}}],
    ids=str,
)
def test_a_property_of_another_type_is_refused(values: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError):
        Properties(**values).encode()


def test_a_property_that_utf8_cannot_carry_is_refused() -> None:
    with pytest.raises(ConfigurationError):
        Properties(message_id="\ud800").encode()


def test_headers_of_a_table_made_here_are_read_back() -> None:
    made = Properties(headers=Table.of({"tenant": "a", "n": [1, None]}))
    assert Properties.parse(made.encode()).headers.to_dict() == {"tenant": "a", "n": [1, None]}


def test_a_text_property_that_is_no_text_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="message_id is 5"):
        Properties(message_id=5).encode()  # type: ignore[arg-type]


def test_a_text_property_that_utf8_cannot_carry_is_refused_by_its_name() -> None:
    with pytest.raises(ConfigurationError, match="app_id"):
        Properties(app_id="\ud800").encode()


def test_the_id_and_the_timestamp_end_the_properties_of_a_plain_message() -> None:
    assert (
        Properties(message_id="m", timestamp=1).encode().endswith(encode_id_and_timestamp("m", 1))
    )


FULL = Properties(
    content_type="text/plain",
    headers=Table.of({"a": 1}),
    delivery_mode=2,
    priority=1,
    message_id="m",
    timestamp=1,
    cluster_id="c",
).encode()


def test_properties_that_are_cut_off_are_malformed() -> None:
    for length in range(len(FULL)):
        with pytest.raises(Malformed, match="cut off"):
            Properties.parse(FULL[:length])
