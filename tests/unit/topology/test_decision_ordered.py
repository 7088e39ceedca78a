"""An ordered subscription tries a failed message again where it is, and counts by what the broker
has taken back."""

from dataclasses import replace
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deliveries import CIRCUMSTANCES, ERROR, FAMILY, decided, first_delivery, table
from redrive import Subscriber
from redrive.amqp.field_table import FieldValue
from redrive.errors import ConfigurationError
from redrive.topology import broker_import, file_schema, rewrite
from redrive.topology.broker_version import BrokerVersion
from redrive.topology.decision import (
    Arrived,
    Handle,
    HoldThenReturn,
    MoveToFailed,
    Overtaken,
    PublishThenAck,
    Raised,
    RetryInPlace,
    crashes_seen,
    retries_made,
    route,
    times_taken_back,
    whereabouts,
)
from redrive.topology.diff import Observed
from redrive.topology.headers import Delivery, place_in
from redrive.topology.model import LONGEST_IN_PLACE, Subscription
from redrive.topology.parked_keys import ParkedPlace
from redrive.topology.policy import ErrorRule, RetryPolicy, longest_wait_of

ORDERED = Subscription("ledger@bookings", ["booking.#"], ordered=True, max_failed=1000)
BROKERS = st.sampled_from([BrokerVersion(3, 10, 8), BrokerVersion(4, 0, 5), BrokerVersion(4, 3, 6)])


def returned(times: FieldValue, *, redelivered: bool = True) -> Delivery:
    """A message that the broker has taken back so often."""
    delivery = first_delivery(table(x_delivery_count=times), redelivered=redelivered)
    return replace(delivery, queue=ORDERED.queue, in_place=True)


@given(BROKERS, st.integers(0, 10), st.integers(1, 5))
def test_a_message_that_always_fails_is_handled_once_more_than_its_retries(
    broker: BrokerVersion, retries: int, crashes: int
) -> None:
    subscription = replace(ORDERED, retry=RetryPolicy(max_retries=retries, max_crashes=crashes))
    for attempt in range(retries + 1):
        delivery = returned(attempt)
        assert decided(delivery, subscription, Arrived(), broker) == Handle(attempt)
        settlement = decided(delivery, subscription, Raised(ERROR), broker)
        if attempt < retries:
            assert settlement == RetryInPlace(
                attempt + 1, subscription.retry.delay, subscription.retry.max_retries
            )
        else:
            assert settlement == MoveToFailed("retries-exhausted", ERROR, retries)


@given(BROKERS, st.integers(0, 10), st.integers(1, 5))
def test_a_message_that_kills_its_worker_each_time_ends(
    broker: BrokerVersion, retries: int, crashes: int
) -> None:
    subscription = replace(ORDERED, retry=RetryPolicy(max_retries=retries, max_crashes=crashes))
    runs = [
        isinstance(decided(returned(times), subscription, Arrived(), broker), Handle)
        for times in range(30)
    ]

    assert sum(runs) == retries + crashes
    last = decided(returned(retries + crashes), subscription, Arrived(), broker)
    assert isinstance(last, MoveToFailed)
    assert last.reason == "crashed"


def test_a_retry_is_held_for_its_delay_and_then_returned() -> None:
    delivery = returned(0)
    settlement = RetryInPlace(1, timedelta(seconds=30), 3)

    assert route(settlement, delivery, ORDERED, CIRCUMSTANCES) == HoldThenReturn(
        timedelta(seconds=30)
    )
    assert (
        whereabouts(settlement, ORDERED)
        == "in its place in ledger@bookings, held for 30 s (retry 1 of 3)"
    )


@given(
    st.one_of(
        st.none(), st.text(), st.booleans(), st.integers(-(2**31), -1), st.floats(allow_nan=False)
    )
)
def test_a_count_that_is_none_is_no_attempt(count: FieldValue) -> None:
    assert retries_made(returned(count)) == 0
    assert crashes_seen(returned(count)) == 0


def test_a_count_on_a_message_that_was_never_delivered_is_made_up() -> None:
    assert retries_made(returned(7, redelivered=False)) == 0


def test_retries_from_before_the_queue_was_ordered_count() -> None:
    delivery = replace(returned(1), exchange="", routing_key=ORDERED.queue)
    moved = replace(
        delivery,
        properties=delivery.properties._replace(
            headers=table(x_delivery_count=1, redrive_retries=2)
        ),
    )

    assert retries_made(moved) == 3


def test_the_main_queue_has_a_single_active_consumer() -> None:
    main = next(queue for queue in ORDERED.topology().queues if queue.name == ORDERED.queue)

    assert main.arguments["x-single-active-consumer"] is True


@pytest.mark.parametrize(
    "policy",
    [
        RetryPolicy(delay=LONGEST_IN_PLACE + timedelta(seconds=1)),
        RetryPolicy(backoff=[timedelta(seconds=1), timedelta(hours=2)]),
        RetryPolicy(errors={OSError: ErrorRule(backoff=timedelta(hours=1))}),
    ],
)
def test_a_retry_that_would_hold_its_message_for_too_long_is_refused(policy: RetryPolicy) -> None:
    with pytest.raises(ConfigurationError, match="25 minutes at most"):
        replace(ORDERED, retry=policy)


def test_the_longest_wait_is_allowed() -> None:
    assert (
        longest_wait_of(replace(ORDERED, retry=RetryPolicy(delay=LONGEST_IN_PLACE)).retry)
        == LONGEST_IN_PLACE
    )


def test_an_ordered_subscription_stands_in_a_file_and_is_read_from_a_broker() -> None:
    topology = ORDERED.topology()
    observed = Observed(
        {exchange.name: exchange.type for exchange in topology.exchanges},
        {queue.name: queue.arguments for queue in topology.queues},
        frozenset(topology.bindings),
    )

    assert broker_import.recover(observed).subscriptions == (ORDERED,)
    assert broker_import.file_of(broker_import.recover(observed)).endswith(
        "    ordered: true\n    max_failed: 1000\n"
    )
    file = {
        "subscriptions": {
            ORDERED.queue: {"routing_keys": ["booking.#"], "ordered": True, "max_failed": 1000}
        }
    }
    assert file_schema.parse(file).built() == (ORDERED,)
    assert ORDERED.exchanges == FAMILY


def test_a_subscription_that_parks_stands_in_a_file_and_is_read_from_a_broker() -> None:
    parking = replace(ORDERED, when_given_up="park")
    topology = parking.topology()
    observed = Observed(
        {exchange.name: exchange.type for exchange in topology.exchanges},
        {queue.name: queue.arguments for queue in topology.queues},
        frozenset(topology.bindings),
    )

    assert broker_import.recover(observed).subscriptions == (parking,)
    text = broker_import.file_of(broker_import.recover(observed))
    assert "    ordered: true\n    when_given_up: park\n" in text
    keys = {"routing_keys": ["booking.#"], "ordered": True, "max_failed": 1000}
    file = {"subscriptions": {ORDERED.queue: {**keys, "when_given_up": "park"}}}
    assert file_schema.parse(file).built() == (parking,)


def test_a_subscription_that_is_not_ordered_can_not_park() -> None:
    with pytest.raises(ConfigurationError, match="when_given_up='park', but is not ordered"):
        Subscription("ledger@bookings", when_given_up="park")


@given(BROKERS, st.integers(0, 3))
def test_a_message_whose_key_is_parked_is_set_aside_behind_the_others_and_keeps_its_place(
    broker: BrokerVersion, returns: int
) -> None:
    delivery = returned(returns)
    settlement = decided(delivery, ORDERED, Overtaken(), broker)
    assert isinstance(settlement, MoveToFailed)
    assert (settlement.reason, settlement.retries) == ("behind", returns)

    step = route(replace(settlement, place=ParkedPlace("c-7", 5)), delivery, ORDERED, CIRCUMSTANCES)
    assert isinstance(step, PublishThenAck)
    failed = replace(
        delivery, exchange="", routing_key=ORDERED.queue, properties=step.publish.properties
    )
    requeued = rewrite.requeue(failed, job="job", frame_max=0).properties.headers
    assert (requeued.get("redrive-place"), requeued.get("redrive-order-key")) == (5, "c-7")


@given(st.one_of(st.none(), st.text(), st.booleans(), st.integers(-(2**63), 0), st.just(2**62)))
def test_a_place_that_is_none_is_no_place(value: FieldValue) -> None:
    assert place_in(value) == 0


def test_what_the_broker_has_taken_back_is_counted_by_the_broker_where_it_can_be_forged() -> None:
    assert times_taken_back(first_delivery(table(x_delivery_count=3))) == 3
    assert times_taken_back(first_delivery(table(x_delivery_count=9, x_acquired_count=1))) == 1
    assert times_taken_back(first_delivery()) == 0


def test_an_ordered_classic_queue_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="does not count how often"):
        Subscription("ledger@bookings", queue_type="classic", ordered=True)


def test_an_ordered_broadcast_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="is ordered and a broadcast queue"):
        Subscription("ledger@bookings", broadcast=True, ordered=True)


def test_a_message_that_is_held_by_its_handler_and_then_for_its_retry_is_warned_of(
    caplog: pytest.LogCaptureFixture,
) -> None:
    Subscriber(
        "amqp://localhost",
        "q",
        ["x"],
        ordered=True,
        retry=RetryPolicy(delay=timedelta(minutes=20)),
        handler_timeout=600,
    )

    assert "for 30 min" in caplog.text
    assert "Shorten the delays of its retries" in caplog.text
