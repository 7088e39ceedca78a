"""What every move of ours does to a message, and what it leaves alone."""

from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deliveries import (
    CIRCUMSTANCES,
    ERROR,
    FAILURE_ID,
    FAMILY,
    FRAME_MAX,
    NOW,
    failed,
    first_delivery,
    returned,
    table,
)
from field_tables import QUEUE, hostile_tables, properties, tables
from redrive.amqp.field_table import Table
from redrive.amqp.properties import Properties
from redrive.topology import headers, rewrite
from redrive.topology.headers import Delivery
from redrive.topology.rewrite import Publish

Move = Callable[[Delivery], Publish]


def give_up(delivery: Delivery) -> Publish:
    return rewrite.give_up(
        delivery, FAMILY, reason="gave-up", error=ERROR, retries=2, context=CIRCUMSTANCES
    )


def republish(delivery: Delivery) -> Publish:
    return rewrite.republish(delivery, FAMILY, retries=2, counts_on=False, frame_max=FRAME_MAX)


def requeue(delivery: Delivery) -> Publish:
    return rewrite.requeue(delivery, job="job-1", frame_max=FRAME_MAX)


ALL_MOVES = [give_up, republish, requeue]
NAMED: dict[Move, set[str]] = {
    give_up: {
        "redrive-retries",
        "redrive-failure-id",
        "redrive-error-type",
        "redrive-error-message",
        "redrive-error-traceback",
        "redrive-reason",
        "redrive-failed-at",
        "redrive-first-failed-at",
        "redrive-host",
        "redrive-orig-exchange",
        "x-orig-routing-key",
    },
    republish: {"x-death", "redrive-retries", "x-orig-routing-key"},
    requeue: {
        "x-death",
        "redrive-retries",
        "redrive-failure-id",
        "redrive-error-type",
        "redrive-error-message",
        "redrive-error-traceback",
        "redrive-reason",
        "redrive-failed-at",
        "redrive-host",
        "redrive-count",
        "redrive-job",
        "x-orig-routing-key",
    },
}
"""The headers that each move names, as section 2.3 of the design lists them."""
for _move in (give_up, republish):
    NAMED[_move] |= headers.OURS  # redrive has written none of them into a first delivery

STAYS_BEHIND = (
    "x-delivery-count",
    "x-acquired-count",
    "x-first-death-queue",
    "x-last-death-reason",
    "x-opt-rabbitmq-delivery-time",
    "CC",
    "BCC",
)


def untouched(headers_received: Table, named: set[str]) -> tuple[tuple[str, bytes], ...]:
    """The fields that a move has no business with."""
    return tuple(
        field
        for field in headers_received.raw_fields()
        if field[0] not in named and not headers.stays_behind(field[0])
    )


@pytest.mark.parametrize("move", ALL_MOVES)
@given(received=hostile_tables())
def test_a_move_leaves_every_header_that_it_does_not_name_byte_for_byte(
    move: Move, received: Table
) -> None:
    moved = move(first_delivery(received)).properties.headers
    assert untouched(moved, NAMED[move]) == untouched(received, NAMED[move])


@pytest.mark.parametrize("move", ALL_MOVES)
@given(received=tables)
def test_a_move_leaves_what_it_cannot_read_at_the_end_of_the_headers(
    move: Move, received: Table
) -> None:
    damaged = Table.parse(received.encode() + b"\1a?")
    assert move(first_delivery(damaged)).properties.headers.encode().endswith(b"\1a?")


@pytest.mark.parametrize("move", ALL_MOVES)
@given(received=properties)
def test_a_move_leaves_every_property_but_expiration_and_user_id(
    move: Move, received: Properties
) -> None:
    delivery = replace(first_delivery(), properties=received)
    moved = move(delivery).properties
    assert moved._replace(headers=received.headers) == received._replace(
        expiration=None, user_id=None
    )


@pytest.mark.parametrize("move", ALL_MOVES)
@given(body=st.binary())
def test_a_move_leaves_the_body(move: Move, body: bytes) -> None:
    assert move(first_delivery(body=body)).body == body


@pytest.mark.parametrize("move", ALL_MOVES)
@pytest.mark.parametrize("name", STAYS_BEHIND)
def test_a_move_takes_off_what_must_stay_behind(move: Move, name: str) -> None:
    assert name not in move(first_delivery(Table.of({name: 1, "tenant": "a"}))).properties.headers


@pytest.mark.parametrize("move", ALL_MOVES)
def test_a_move_takes_off_every_field_of_a_name_that_must_stay_behind(move: Move) -> None:
    received = Table([("CC", b"V"), ("tenant", b"V"), ("CC", b"t\1")])
    assert "CC" not in move(first_delivery(received)).properties.headers


@pytest.mark.parametrize("move", ALL_MOVES)
def test_a_move_keeps_an_expiration_as_a_header(move: Move) -> None:
    delivery = replace(first_delivery(), properties=Properties(expiration="60000"))
    moved = move(delivery).properties
    assert (moved.expiration, moved.headers["redrive-orig-expiration"]) == (None, "60000")


@pytest.mark.parametrize("move", ALL_MOVES)
def test_a_move_keeps_a_user_id_as_a_header(move: Move) -> None:
    delivery = replace(first_delivery(), properties=Properties(user_id="shop"))
    moved = move(delivery).properties
    assert (moved.user_id, moved.headers["redrive-orig-user-id"]) == (None, "shop")


@pytest.mark.parametrize("move", ALL_MOVES)
def test_a_move_keeps_the_expiration_that_an_earlier_one_noted(move: Move) -> None:
    assert (
        move(returned(table(redrive_orig_expiration="60000"))).properties.headers[
            "redrive-orig-expiration"
        ]
        == "60000"
    )


@pytest.mark.parametrize("move", ALL_MOVES)
def test_a_move_says_the_original_routing_key(move: Move) -> None:
    assert move(first_delivery()).properties.headers["x-orig-routing-key"] == "user.create"


@pytest.mark.parametrize("move", ALL_MOVES)
def test_a_move_keeps_the_original_routing_key_that_is_there(move: Move) -> None:
    assert (
        move(first_delivery(table(x_orig_routing_key="user.delete"))).properties.headers[
            "x-orig-routing-key"
        ]
        == "user.delete"
    )


@pytest.mark.parametrize(
    ("move", "exchange"),
    [(give_up, "master.failed"), (republish, "master.retry"), (requeue, "")],
    ids=["give_up", "republish", "requeue"],
)
def test_a_move_goes_through_its_own_exchange_to_the_queue(move: Move, exchange: str) -> None:
    publish = move(first_delivery())
    assert (publish.exchange, publish.routing_key) == (exchange, QUEUE)


def test_a_time_is_written_in_utc_to_the_millisecond() -> None:
    assert rewrite.iso(NOW.astimezone(timezone(timedelta(hours=9)))) == "2024-05-17T08:30:15.250Z"


def test_a_whole_second_is_written_with_its_milliseconds() -> None:
    assert (
        rewrite.iso(datetime.fromisoformat("2024-01-01T00:00:00+00:00"))
        == "2024-01-01T00:00:00.000Z"
    )


def test_what_is_restored_goes_through_the_failed_exchange_with_all_it_had() -> None:
    delivery = failed(table(redrive_failure_id=FAILURE_ID, redrive_reason="gave-up", tenant="a"))
    publish = rewrite.restore(delivery, FAMILY, frame_max=FRAME_MAX)
    assert (publish.exchange, publish.routing_key, publish.body) == (
        FAMILY.failed,
        QUEUE,
        delivery.body,
    )
    assert publish.properties == delivery.properties
