"""What a message looks like while its queue is created again: it keeps its retries, its reasons and
its bytes."""

from dataclasses import replace

import pytest

from deliveries import FRAME_MAX, death, deaths, failed, first_delivery, returned, table
from field_tables import QUEUE
from redrive.amqp.field_table import Table, encode_value
from redrive.amqp.properties import Properties
from redrive.topology import headers, names
from redrive.topology.decision import retries_made
from redrive.topology.headers import Delivery
from redrive.topology.migration import MetricsAddress, Step, identity_of, moved, transit_queue
from redrive.topology.model import Queue
from redrive.topology.rewrite import Publish

RETRY = names.retry_queue(QUEUE)


def step_of(place: MetricsAddress) -> Step:
    name = {"main": QUEUE, "retry": RETRY, "failed": names.failed_queue(QUEUE)}[place]
    return Step("drain", place, Queue(name), Queue(transit_queue(name)))


def there(place: MetricsAddress, delivery: Delivery) -> Publish:
    """The publish that takes a message to the transit queue."""
    step = step_of(place)
    return moved(step, delivery, step.queue.name, frame_max=FRAME_MAX)


def and_back(place: MetricsAddress, delivery: Delivery) -> Publish:
    """The publish that takes it back, after it went there."""
    step, first = step_of(place), there(place, delivery)
    waiting = Delivery(QUEUE, first.exchange, first.routing_key, first.properties, first.body)
    return moved(step, waiting, step.transit.name, frame_max=FRAME_MAX)


def arrived(publish: Publish) -> Delivery:
    """How the main queue delivers what was moved to it."""
    return Delivery(QUEUE, publish.exchange, publish.routing_key, publish.properties, publish.body)


def after_the_trip(publish: Publish) -> Delivery:
    """How the main queue delivers what was moved to the retry queue, once its delay is over."""
    counted = deaths(death(RETRY, "expired", 1, exchange="", routing_key=RETRY))
    table = Table.of({**dict(publish.properties.headers), **dict(counted)})
    return Delivery(QUEUE, "", QUEUE, publish.properties._replace(headers=table), publish.body)


def test_a_message_goes_to_the_transit_queue_and_back_through_the_default_exchange() -> None:
    assert (
        there("main", first_delivery()).exchange,
        there("main", first_delivery()).routing_key,
    ) == ("", transit_queue(QUEUE))
    assert (
        and_back("main", first_delivery()).exchange,
        and_back("main", first_delivery()).routing_key,
    ) == ("", QUEUE)


@pytest.mark.parametrize("place", ["main", "retry", "failed"])
def test_how_often_killed_runs_held_a_message_does_not_travel_with_it(
    place: MetricsAddress,
) -> None:
    step, first = step_of(place), there(place, first_delivery())
    table = first.properties.headers.with_fields([(headers.DELIVERY_COUNT, encode_value(6))])
    held = Delivery(
        QUEUE,
        first.exchange,
        first.routing_key,
        first.properties._replace(headers=table),
        first.body,
        redelivered=True,
    )
    assert (
        headers.DELIVERY_COUNT
        not in moved(step, held, step.transit.name, frame_max=FRAME_MAX).properties.headers
    )


def test_a_fresh_message_keeps_its_key_and_exchange_and_has_made_no_retries() -> None:
    delivery = arrived(and_back("main", first_delivery()))
    assert delivery.original_routing_key == "user.create"
    assert delivery.properties.headers[headers.ORIG_EXCHANGE] == "master"
    assert retries_made(delivery) == 0


@pytest.mark.parametrize("rejected", [1, 3])
def test_a_message_that_was_retried_keeps_its_retries(rejected: int) -> None:
    entries = deaths(death(RETRY, "expired", rejected), death(QUEUE, "rejected", rejected))
    delivery = arrived(and_back("main", returned(entries)))
    assert retries_made(delivery) == rejected
    assert delivery.properties.headers[headers.FIRST_FAILED_AT] == "2024-05-17T08:00:00.000Z"
    assert delivery.properties.headers[headers.ORIG_EXCHANGE] == "master"
    assert headers.X_DEATH not in delivery.properties.headers


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (deaths(death(QUEUE, "rejected", 1)), 1),
        (deaths(death(QUEUE, "rejected", 3), death(RETRY, "expired", 2)), 3),
        (table(redrive_retries=2), 3),
        (table(), 1),
        (
            deaths(death(RETRY, "expired", 2)),
            3,
        ),  # of the shared kind, on a broker that counts on in it
    ],
)
def test_a_message_that_waits_for_a_retry_counts_it_once(found: Table, expected: int) -> None:
    waiting = Delivery(QUEUE, "master.retry", QUEUE, Properties(headers=found), b"{}")
    assert retries_made(after_the_trip(and_back("retry", waiting))) == expected


def test_the_way_through_the_retry_exchange_is_not_taken_for_where_it_was_published() -> None:
    waiting = Delivery(
        QUEUE,
        "master.retry",
        QUEUE,
        Properties(headers=table(x_orig_routing_key="user.create")),
        b"{}",
    )
    assert headers.ORIG_EXCHANGE not in there("retry", waiting).properties.headers


def test_a_failed_message_keeps_all_that_is_said_of_its_failure() -> None:
    found = table(
        redrive_failure_id="7",
        redrive_reason="gave-up",
        redrive_retries=3,
        x_orig_routing_key="user.create",
    )
    delivery = failed(Table.of({**dict(found), **dict(deaths(death(QUEUE, "rejected", 3)))}))
    assert dict(and_back("failed", delivery).properties.headers) == dict(
        delivery.properties.headers
    )


def test_a_failed_message_of_a_peer_gets_the_key_that_its_way_would_take_from_it() -> None:
    assert there("failed", failed()).properties.headers[headers.ORIG_ROUTING_KEY] == QUEUE


def test_what_was_moved_already_is_passed_on_byte_for_byte() -> None:
    first = there("main", first_delivery(table(a=1.5)))
    assert (
        and_back("main", first_delivery(table(a=1.5))).properties.encode()
        == first.properties.encode()
    )


def test_copies_of_one_publish_have_the_same_identity() -> None:
    delivery = replace(first_delivery(), properties=Properties(message_id="7"))
    assert identity_of(delivery) == identity_of(replace(delivery, redelivered=True)) is not None
    assert identity_of(delivery) != identity_of(replace(delivery, body=b"[]"))


def test_a_message_without_an_id_or_that_was_moved_has_no_identity() -> None:
    assert identity_of(first_delivery()) is None
    assert (
        identity_of(Delivery(QUEUE, "", transit_queue(QUEUE), Properties(message_id="7"), b"{}"))
        is None
    )


@pytest.mark.parametrize("noted", [0, 2])
def test_what_waited_for_a_retry_comes_back_as_one_more_where_no_retry_queue_is_left(
    noted: int,
) -> None:
    step = Step("release", "retry", Queue(RETRY), Queue(transit_queue(RETRY)), due=QUEUE)
    way_in = {"exchange": "", "routing_key": QUEUE} if noted else {}
    counted = deaths(death(QUEUE, "rejected", 1, **way_in))
    rejected = returned(Table.of({**dict(table(redrive_retries=noted)), **dict(counted)}))
    by_the_broker = replace(rejected, exchange="master.retry")
    first = there("retry", by_the_broker)
    by_the_migration = Delivery(
        QUEUE, first.exchange, first.routing_key, first.properties, first.body
    )

    for waiting in (by_the_broker, by_the_migration):
        released = moved(step, waiting, step.transit.name, frame_max=FRAME_MAX)
        assert (released.exchange, released.routing_key) == ("", QUEUE)
        assert retries_made(replace(arrived(released), held_back=True)) == noted + 1
