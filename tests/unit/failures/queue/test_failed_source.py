"""Which queue failed messages are read from, and what a message in it says of its way."""

import pytest

from redrive.amqp.field_table import Table
from redrive.amqp.frames import Received
from redrive.amqp.properties import Properties
from redrive.failures.message.route import WITHOUT_TOPOLOGY, Verdict, WayBack
from redrive.failures.queue.failed_source import FailedSource
from redrive.topology import headers

OF_A_KIND = FailedSource("shop@orders@failed.invalid")


def test_a_routing_key_of_the_failed_exchange_names_the_queue() -> None:
    assert FailedSource.with_key("shop@orders") == FailedSource.of_subscription("shop@orders")
    assert FailedSource.with_key(OF_A_KIND.queue) == OF_A_KIND


def test_a_queue_says_what_it_is() -> None:
    assert OF_A_KIND.description == "the failed queue of shop@orders for a kind of error"
    assert FailedSource("q.dlq").description == "a dead-letter queue that redrive did not make"


@pytest.mark.parametrize(
    ("values", "verdict", "way"),
    [
        ({headers.FAILURE_ID: "f-1"}, Verdict.CONFIRMED, WayBack("", "shop@orders")),
        ({}, Verdict.UNKNOWN, None),
    ],
)
def test_only_what_redrive_has_set_aside_there_goes_back_by_the_queues_name(
    values: dict[str, str], verdict: Verdict, way: WayBack | None
) -> None:
    properties = Properties(headers=Table.of(values)).encode()
    received = Received(1, False, "master.failed", OF_A_KIND.queue, properties, b"{}")
    message = OF_A_KIND.message_of(received)
    route = WITHOUT_TOPOLOGY.route(message.claims)
    assert (route.verdict, route.way) == (verdict, way)
    assert message.failed_queue == OF_A_KIND.queue
