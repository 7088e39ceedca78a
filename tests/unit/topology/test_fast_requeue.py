"""Requeueing in one pass over the bytes makes what `rewrite.requeue` makes."""

from dataclasses import replace

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from deliveries import CIRCUMSTANCES, ERROR, FAMILY, FRAME_MAX, death, failed, returned, table
from field_tables import QUEUE, field, hostile_tables, long_value, properties, tables
from redrive.amqp.field_table import EMPTY, Table
from redrive.amqp.properties import Properties
from redrive.topology import rewrite
from redrive.topology.fast_requeue import BulkRequeue, Ordinary
from redrive.topology.headers import Delivery

JOB = "job-1"


def set_aside(delivery: Delivery) -> Properties:
    """The properties of a message as our own giving up leaves them in the failed queue."""
    return rewrite.give_up(
        delivery,
        FAMILY,
        reason="retries-exhausted",
        error=ERROR,
        retries=3,
        context=CIRCUMSTANCES,
    ).properties


def in_bulk(received: Properties, frame_max: int = FRAME_MAX) -> Ordinary | None:
    """What the one pass makes of a message."""
    return BulkRequeue(JOB, frame_max).requeue(received.encode())


def one_by_one(received: Properties, frame_max: int = FRAME_MAX) -> Properties:
    """What `moves.requeue` makes of it."""
    delivery = replace(failed(), properties=received)
    return rewrite.requeue(delivery, job=JOB, frame_max=frame_max).properties


def by_name(encoded: Properties) -> tuple[Properties, list[tuple[str, bytes]]]:
    """Properties with their headers aside, in an order of their own: which header comes first means
    nothing."""
    return encoded._replace(headers=EMPTY), sorted(encoded.headers.raw_fields())


def test_what_redrive_has_set_aside_is_ordinary() -> None:
    received = set_aside(returned(table(x_death=[death(QUEUE, "rejected", 3)], tenant="a")))
    ordinary = in_bulk(received)
    assert ordinary is not None
    assert ordinary.failure_id == CIRCUMSTANCES.failure_id
    assert ordinary.job is None
    assert by_name(Properties.parse(ordinary.properties)) == by_name(one_by_one(received))


def test_a_second_requeue_raises_the_count_and_tells_the_job_before_it() -> None:
    ordinary = in_bulk(set_aside(returned(table(redrive_count=1, redrive_job="job-0"))))
    assert ordinary is not None
    assert ordinary.job == "job-0"
    assert Properties.parse(ordinary.properties).headers["redrive-count"] == 2


@given(properties, st.one_of(tables, hostile_tables()), st.booleans())
def test_whatever_is_ordinary_becomes_what_the_slow_way_makes_of_it(
    received: Properties, headers: Table, ours: bool
) -> None:
    received = received._replace(headers=headers)
    if ours:
        received = set_aside(Delivery(QUEUE, "master", "user.create", received, b"{}"))
    ordinary = in_bulk(received)
    assume(ordinary is not None)
    assert ordinary is not None
    assert by_name(Properties.parse(ordinary.properties)) == by_name(one_by_one(received))


@pytest.mark.parametrize(
    "received",
    [
        Properties(),
        Properties(headers=table(tenant="a")),
        Properties(headers=table(x_orig_routing_key=1)),
        Properties(headers=table(x_orig_routing_key="größe")),
        Properties(headers=table(x_orig_routing_key="a"), expiration="60000"),
        Properties(headers=table(x_orig_routing_key="a"), user_id="guest"),
        Properties(headers=Table.parse(field(b"x-orig-routing-key", long_value("S", b"a")) * 2)),
        Properties(
            headers=Table.parse(field(b"x-orig-routing-key", long_value("S", b"a")) + b"\x01a?")
        ),
        Properties(headers=Table.parse(b"\x7f")),
    ],
    ids=[
        "no headers",
        "no original routing key",
        "an original routing key that is a number",
        "an original routing key that is not ASCII",
        "an expiration",
        "a user id",
        "an original routing key that stands twice",
        "a field of an unknown type",
        "a name that ends behind the table",
    ],
)
def test_what_is_not_ordinary_is_left_to_the_slow_way(received: Properties) -> None:
    assert in_bulk(received) is None


def test_headers_that_leave_no_room_are_left_to_the_slow_way() -> None:
    received = Properties(headers=table(x_orig_routing_key="a", big="x" * 3900))
    assert in_bulk(received) is not None
    assert in_bulk(received, frame_max=4096 - 100) is None


def test_no_more_names_are_remembered_than_memory_allows() -> None:
    bulk = BulkRequeue(JOB, 0)
    for number in range(5000):
        assert (
            bulk.requeue(
                Properties(headers=Table.of({"x-orig-routing-key": "a", f"n{number}": 1})).encode()
            )
            is not None
        )
