"""The properties of a first publish."""

from contextlib import suppress

import pytest
from hypothesis import given

from field_tables import hostile_tables, properties
from redrive.amqp.field_table import FieldValue, Table
from redrive.amqp.properties import Properties
from redrive.errors import ConfigurationError
from redrive.topology import headers
from redrive.topology.rewrite import fresh


def test_a_first_publish_says_its_routing_key() -> None:
    assert fresh(Properties(), {}, "user.create").headers.to_dict() == {
        "x-orig-routing-key": "user.create"
    }


def test_a_first_publish_has_the_headers_of_its_user() -> None:
    values: dict[str, FieldValue] = {"tenant": "a", "redrive-tag-vip": True, "n": [1, None]}
    assert (
        fresh(Properties(), values, "user.create").headers.to_dict()
        == {"x-orig-routing-key": "user.create"} | values
    )


@pytest.mark.parametrize(
    "name",
    sorted(
        headers.OURS
        | {"x-death", "x-delivery-count", "x-first-death-queue", "x-opt-a", "CC", "BCC"}
    ),
)
def test_a_first_publish_has_no_header_that_a_user_copied_from_a_failed_message(name: str) -> None:
    assert fresh(Properties(), {name: 7}, "user.create").headers.to_dict() == {
        "x-orig-routing-key": "user.create"
    }


@given(hostile_tables())
def test_a_first_publish_claims_no_history_whatever_headers_it_is_given(received: Table) -> None:
    with suppress(
        ConfigurationError
    ):  # a time after the year 9999 is read as a number of more than 64 bits
        made = fresh(Properties(), received, "user.create").headers
        assert made[headers.ORIG_ROUTING_KEY] == "user.create"
        assert not ((headers.OURS | {headers.X_DEATH}) - {headers.ORIG_ROUTING_KEY}) & set(made)


@given(properties)
def test_a_first_publish_keeps_every_property(given_properties: Properties) -> None:
    asked_for = given_properties._replace(expiration=None)
    made = fresh(asked_for, {}, "user.create")
    assert made._replace(headers=asked_for.headers) == asked_for


def test_a_first_publish_with_an_expiration_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="expiration"):
        fresh(Properties(expiration="60000"), {}, "user.create")


def test_a_header_that_amqp_cannot_carry_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="more than 64 bits"):
        fresh(Properties(), {"n": 2**64}, "user.create")


def test_headers_that_are_no_dict_are_refused() -> None:
    with pytest.raises(ConfigurationError, match="the headers are"):
        fresh(Properties(), "tenant", "user.create")  # type: ignore[arg-type]
