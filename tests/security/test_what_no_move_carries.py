"""What would send copies elsewhere, delete a message, close the channel or make up a count leaves
with no publish of redrive's."""

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta

import pytest

from deliveries import (
    CIRCUMSTANCES,
    ERROR,
    FAMILY,
    FRAME_MAX,
    failed,
    first_delivery,
    returned,
    table,
)
from field_tables import QUEUE
from redrive.amqp.field_table import FieldValue, Table
from redrive.amqp.properties import Properties
from redrive.topology import names, rewrite
from redrive.topology.fast_requeue import BulkRequeue
from redrive.topology.headers import Delivery
from redrive.topology.rewrite import Publish

Move = Callable[[Delivery], Publish]

MOVES: dict[str, Move] = {
    "give up": lambda one: rewrite.give_up(
        one, FAMILY, reason="gave-up", error=ERROR, retries=0, context=CIRCUMSTANCES
    ),
    "republish": lambda one: rewrite.republish(
        one, FAMILY, retries=0, counts_on=False, frame_max=FRAME_MAX
    ),
    "republish and count on": lambda one: rewrite.republish(
        one, FAMILY, retries=0, counts_on=True, frame_max=FRAME_MAX
    ),
    "postpone": lambda one: rewrite.postpone(
        one, FAMILY, retry=1, delay=timedelta(seconds=5), context=CIRCUMSTANCES
    ),
    "relocate": lambda one: rewrite.relocate(one, "elsewhere", retries=0, frame_max=FRAME_MAX),
    "relocate what has failed": lambda one: rewrite.relocate_failed(
        one, "elsewhere", frame_max=FRAME_MAX
    ),
    "pass on": lambda one: rewrite.pass_on(one, "elsewhere"),
    "requeue": lambda one: rewrite.requeue(one, job="job-1", frame_max=FRAME_MAX),
    "restore": lambda one: rewrite.restore(one, FAMILY, frame_max=FRAME_MAX),
}
HOSTILE: dict[str, FieldValue] = {
    "CC": ["payments", "audit"],
    "BCC": ["attacker"],
    "x-opt-rabbitmq-transmission-time": 1,
    "x-opt-anything": "x",
    "x-delivery-count": 7,
    "x-acquired-count": 7,
    "x-first-death-exchange": "payments",
    "x-first-death-queue": "payments",
    "x-first-death-reason": "rejected",
    "x-last-death-exchange": "payments",
    "x-last-death-queue": "payments",
    "x-last-death-reason": "rejected",
}
RECEIVED = Properties(headers=Table.of({"tenant": "a", **HOSTILE}), expiration="1", user_id="admin")


@pytest.mark.parametrize(
    "arrival", [first_delivery, returned, failed], ids=lambda arrival: arrival.__name__
)
@pytest.mark.parametrize("move", MOVES)
def test_no_move_carries_it(move: str, arrival: Callable[[Table], Delivery]) -> None:
    publish = MOVES[move](replace(arrival(table()), properties=RECEIVED))
    assert set(HOSTILE) & set(publish.properties.headers) == set()
    assert (publish.properties.expiration, publish.properties.user_id) == (None, None)
    assert publish.properties.headers["tenant"] == "a"


@pytest.mark.parametrize("name", HOSTILE)
def test_a_requeue_in_bulk_carries_none_of_it(name: str) -> None:
    received = Properties(
        headers=Table.of({"x-orig-routing-key": "user.create", "tenant": "a", name: HOSTILE[name]})
    ).encode()
    ordinary = BulkRequeue("job-1", FRAME_MAX).requeue(received)
    assert ordinary is not None
    found = Properties.parse(ordinary.properties).headers
    assert name not in found
    assert found["tenant"] == "a"


@pytest.mark.parametrize(
    "hostile",
    [Properties(expiration="1"), Properties(user_id="admin")],
    ids=["expiration", "user id"],
)
def test_a_requeue_in_bulk_leaves_what_can_not_travel_to_the_one_that_takes_it_off(
    hostile: Properties,
) -> None:
    received = hostile._replace(headers=table(x_orig_routing_key="user.create")).encode()
    assert BulkRequeue("job-1", FRAME_MAX).requeue(received) is None


def test_a_forged_place_sends_a_message_nowhere_but_to_its_own_queue() -> None:
    forged = table(x_orig_routing_key="payments.paid", redrive_orig_exchange="payments")
    for move in MOVES:
        publish = MOVES[move](first_delivery(forged))
        assert publish.routing_key in (QUEUE, "elsewhere") or publish.routing_key.endswith(
            f".r.{QUEUE}"
        )
        assert publish.exchange in ("", FAMILY.retry, FAMILY.failed) or names.is_of_a_ladder(
            publish.exchange
        )
