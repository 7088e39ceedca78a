"""A message of a dead-letter queue that redrive did not make: what its broker has noted, and where
its moves lead."""

from datetime import UTC, datetime

import pytest

from redrive.amqp.field_table import FieldValue, Table
from redrive.amqp.properties import Properties
from redrive.topology import headers, rewrite
from redrive.topology.headers import Delivery
from redrive.topology.names import ExchangeFamily

PLACE, QUEUE = "orders.dlq", "orders"
FAMILY = ExchangeFamily()


def death(
    queue: str, reason: str, key: str, second: int | None = 1, exchange: str = "shop"
) -> dict[str, FieldValue]:
    found: dict[str, FieldValue] = {
        "queue": queue,
        "reason": reason,
        "exchange": exchange,
        "routing-keys": [key],
        "count": 1,
    }
    if second is not None:
        found["time"] = datetime(2026, 1, 1, 0, 0, second, tzinfo=UTC)
    return found


def delivery(*deaths: dict[str, FieldValue], **own: FieldValue) -> Delivery:
    values: dict[str, FieldValue] = {"x-death": list(deaths)} if deaths else {}
    values |= {name.replace("_", "-"): value for name, value in own.items()}
    properties = Properties(headers=Table.of(values))
    return Delivery(QUEUE, "", PLACE, properties, b"{}", dead_letter_queue=PLACE)


def test_its_first_key_is_that_of_its_earliest_death() -> None:
    found = delivery(
        death(QUEUE, "expired", "late", 5),
        death("elsewhere", "rejected", "other", 1),
        death(QUEUE, "rejected", "first", 2),
    )
    assert found.noted_routing_key == found.original_routing_key == "first"


def test_a_death_without_a_time_comes_last() -> None:
    found = delivery(death(QUEUE, "rejected", "untimed", None), death(QUEUE, "expired", "timed"))
    assert found.noted_routing_key == "timed"


def test_its_own_header_counts_before_the_broker_s_notes() -> None:
    found = delivery(death(QUEUE, "rejected", "noted"), x_orig_routing_key="own")
    assert found.noted_routing_key == "own"


@pytest.mark.parametrize("deaths", [(), (death("elsewhere", "rejected", "other"),)])
def test_the_key_of_its_dead_lettering_is_not_its_first_one(
    deaths: tuple[dict[str, FieldValue], ...],
) -> None:
    found = delivery(*deaths)
    assert found.noted_routing_key is None
    assert found.original_routing_key == PLACE
    publish = rewrite.requeue(found, job="j", frame_max=0)
    assert headers.ORIG_ROUTING_KEY not in publish.properties.headers


def test_a_requeue_leads_to_the_queue_that_it_failed_in_and_keeps_its_first_key() -> None:
    publish = rewrite.requeue(delivery(death(QUEUE, "rejected", "first")), job="j", frame_max=0)
    assert (publish.exchange, publish.routing_key) == ("", QUEUE)
    assert publish.properties.headers.scalar(headers.ORIG_ROUTING_KEY) == "first"
    assert headers.X_DEATH not in publish.properties.headers


def test_a_copy_is_restored_to_the_dead_letter_queue_itself() -> None:
    publish = rewrite.restore(delivery(), FAMILY, frame_max=0)
    assert (publish.exchange, publish.routing_key) == ("", PLACE)
