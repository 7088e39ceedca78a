import pytest
from hypothesis import given

from deliveries import (
    CIRCUMSTANCES,
    ERROR,
    FAMILY,
    FRAME_MAX,
    death,
    deaths,
    failed,
    first_delivery,
    returned,
    table,
)
from field_tables import QUEUE, hostile_tables
from redrive.amqp.field_table import FieldValue, Table
from redrive.topology import headers, rewrite
from redrive.topology.headers import Delivery


def requeued(delivery: Delivery) -> Table:
    return rewrite.requeue(delivery, job="job-1", frame_max=FRAME_MAX).properties.headers


def given_up(delivery: Delivery) -> Table:
    publish = rewrite.give_up(
        delivery, FAMILY, reason="gave-up", error=ERROR, retries=3, context=CIRCUMSTANCES
    )
    return publish.properties.headers


FAILED = failed(given_up(first_delivery(table(tenant="a"))))


def test_a_requeue_leaves_what_is_not_about_the_failure() -> None:
    assert requeued(FAILED).to_dict() == {
        "tenant": "a",
        "x-orig-routing-key": "user.create",
        "redrive-first-failed-at": "2024-05-17T08:30:15.250Z",
        "redrive-orig-exchange": "master",
        "redrive-count": 1,
        "redrive-job": "job-1",
    }


@given(hostile_tables())
def test_a_requeue_takes_off_every_count(received: Table) -> None:
    moved = requeued(failed(received))
    assert headers.X_DEATH not in moved
    assert headers.RETRIES not in moved


@given(hostile_tables())
def test_a_requeue_counts_itself_whatever_stood_there(received: Table) -> None:
    assert (
        requeued(failed(received))[headers.COUNT]
        == headers.counted(received.get(headers.COUNT)) + 1
    )


@pytest.mark.parametrize(("before", "after"), [(None, 1), (1, 2), ("7", 1), (-1, 1), (True, 1)])
def test_a_requeue_adds_one_to_a_count_that_is_one(before: FieldValue, after: int) -> None:
    assert requeued(failed(table(redrive_count=before)))["redrive-count"] == after


def test_a_requeue_tells_the_job_in_place_of_an_earlier_one() -> None:
    assert requeued(failed(table(redrive_job="job-0")))["redrive-job"] == "job-1"


def test_a_message_that_fails_again_after_a_requeue_keeps_where_it_was_first_published() -> None:
    moved = requeued(FAILED).with_values(
        deaths(death(QUEUE, "rejected", 3, exchange="", routing_key=QUEUE))
    )
    assert given_up(returned(moved))["redrive-orig-exchange"] == "master"


def test_a_message_that_fails_again_after_a_requeue_keeps_its_routing_key() -> None:
    moved = requeued(FAILED).with_values(
        deaths(death(QUEUE, "rejected", 3, exchange="", routing_key=QUEUE))
    )
    assert given_up(returned(moved))["x-orig-routing-key"] == "user.create"


def test_a_message_that_fails_again_after_a_requeue_keeps_when_it_first_failed() -> None:
    moved = requeued(FAILED).with_values(
        deaths(death(QUEUE, "rejected", 3, exchange="", routing_key=QUEUE))
    )
    assert given_up(returned(moved))["redrive-first-failed-at"] == "2024-05-17T08:30:15.250Z"
