"""Where the broker itself holds failed messages back, they are counted by what it has taken back,
and never by what a publisher has made up."""

from dataclasses import replace
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deliveries import CIRCUMSTANCES, ERROR, FAMILY, death, decided, first_delivery, table
from field_tables import QUEUE
from redrive.amqp.field_table import FieldValue, Table
from redrive.errors import ConfigurationError
from redrive.topology.backoff import Exponential, Linear
from redrive.topology.broker_version import BrokerVersion
from redrive.topology.decision import (
    Arrived,
    Decision,
    Handle,
    MoveToFailed,
    PublishThenAck,
    Raised,
    RetryByBroker,
    RetryByLadder,
    ReturnIt,
    crashes_seen,
    retries_made,
    route,
    whereabouts,
    without_ladder,
)
from redrive.topology.delay_route import delivery_key
from redrive.topology.headers import Delivery
from redrive.topology.model import Subscription
from redrive.topology.policy import ErrorRule, RetryPolicy

BROKER = BrokerVersion(4, 3, 6)
SECOND = timedelta(seconds=1)
HELD_BACK = Subscription(QUEUE, ["user.*"], retry_via="broker")
GROWING = replace(HELD_BACK, retry=RetryPolicy(25, backoff=Linear(SECOND, 3 * SECOND)))


def returned(
    failed: FieldValue,
    returned_untried: int = 0,
    *,
    redelivered: bool = True,
    more: Table | None = None,
) -> Delivery:
    """A message as the broker delivers it after so many failures, and so many nacks."""
    deliveries = (failed if isinstance(failed, int) else 0) + returned_untried
    values = {**(more or {}), "x-delivery-count": failed, "x-acquired-count": deliveries}
    delivery = first_delivery(Table.of(values), redelivered=redelivered)
    return replace(delivery, held_back=True)


def came_back(headers: Table, *, redelivered: bool = True) -> Delivery:
    """The same of a message that came through the default exchange."""
    delivery = first_delivery(headers, redelivered=redelivered)
    return replace(delivery, exchange="", routing_key=QUEUE, held_back=True)


def after_failure(delivery: Delivery, subscription: Subscription = HELD_BACK) -> Decision:
    """What is decided once the handler has failed."""
    return decided(delivery, subscription, Raised(ERROR), BROKER)


@given(st.integers(0, 30), st.integers(1, 5), st.lists(st.integers(0, 3), max_size=31))
def test_a_message_that_always_fails_is_handled_once_more_than_its_retries_however_often_stopped(
    retries: int, crashes: int, stops: list[int]
) -> None:
    subscription = replace(HELD_BACK, retry=RetryPolicy(retries, max_crashes=crashes))
    untried = 0
    for attempt in range(retries + 1):
        untried += stops[attempt] if attempt < len(stops) else 0
        delivery = returned(attempt, untried, redelivered=attempt + untried > 0)
        assert decided(delivery, subscription, Arrived(), BROKER) == Handle(attempt)
        settlement = after_failure(delivery, subscription)
        if attempt < retries:
            assert settlement == RetryByBroker(attempt + 1, subscription.retry.delay, retries)
        else:
            assert settlement == MoveToFailed("retries-exhausted", ERROR, retries)


@given(st.integers(0, 10), st.integers(1, 5))
def test_a_message_that_kills_its_worker_each_time_ends(retries: int, crashes: int) -> None:
    subscription = replace(HELD_BACK, retry=RetryPolicy(retries, max_crashes=crashes))
    runs = [
        isinstance(decided(returned(times), subscription, Arrived(), BROKER), Handle)
        for times in range(30)
    ]

    assert sum(runs) == retries + crashes
    last = decided(returned(retries + crashes), subscription, Arrived(), BROKER)
    assert isinstance(last, MoveToFailed)
    assert last.reason == "crashed"


def test_a_failed_attempt_is_rejected_with_requeueing_and_nothing_is_published() -> None:
    settlement = RetryByBroker(2, timedelta(seconds=30), 3)

    assert route(settlement, returned(1), HELD_BACK, CIRCUMSTANCES) == ReturnIt()
    assert whereabouts(settlement, HELD_BACK) == f"held back in {QUEUE} for 30 s (retry 2 of 3)"


@given(
    st.one_of(
        st.none(), st.text(), st.booleans(), st.integers(-(2**31), -1), st.floats(allow_nan=False)
    )
)
def test_a_count_that_is_none_is_no_attempt(count: FieldValue) -> None:
    assert retries_made(returned(count)) == 0
    assert crashes_seen(returned(count)) == 0


@given(st.integers(1, 2**31))
def test_a_count_on_a_message_that_was_never_delivered_is_made_up(count: int) -> None:
    assert retries_made(returned(count, redelivered=False)) == 0


@given(st.integers(0, 5), st.integers(1, 100))
def test_a_count_beyond_the_deliveries_is_made_up(deliveries: int, beyond: int) -> None:
    """A nack leaves it as the publisher wrote it; the deliveries are the broker's."""
    headers = table(x_delivery_count=deliveries + beyond, x_acquired_count=deliveries)
    delivery = replace(first_delivery(headers, redelivered=True), held_back=True)

    assert retries_made(delivery) == 0
    assert crashes_seen(delivery) == 0


def test_the_n_th_retry_waits_n_times_as_long_up_to_the_cap() -> None:
    waits = [after_failure(returned(times), GROWING) for times in range(5)]

    assert waits == [RetryByBroker(times + 1, min(times + 1, 3) * SECOND, 25) for times in range(5)]


@pytest.mark.parametrize("after", [SECOND, timedelta(hours=1), timedelta(milliseconds=1)])
def test_what_the_broker_would_hold_back_for_another_time_goes_to_the_ladder(
    after: timedelta,
) -> None:
    settlement = decided(returned(1), HELD_BACK, Raised(ERROR, after=after), BROKER)

    assert settlement == RetryByLadder(2, after, 3)
    step = route(settlement, returned(1), HELD_BACK, CIRCUMSTANCES)
    assert isinstance(step, PublishThenAck)
    headers = step.publish.properties.headers
    assert headers["redrive-retries"] == 2
    assert "x-delivery-count" not in headers
    assert "x-acquired-count" not in headers


def test_a_message_that_came_down_the_ladder_goes_on_with_its_count() -> None:
    key = delivery_key(5, "r", QUEUE)

    def arrived(failed: int) -> Delivery:
        headers = table(redrive_retries=2, x_delivery_count=failed, x_acquired_count=failed)
        delivery = first_delivery(headers, redelivered=failed > 0)
        return replace(delivery, exchange=FAMILY.deliver, routing_key=key, held_back=True)

    assert [retries_made(arrived(failed)) for failed in range(4)] == [2, 3, 4, 5]
    # The broker counts anew, and would hold it back for a second.
    assert after_failure(arrived(0), GROWING) == RetryByLadder(3, 3 * SECOND, 25)


def test_a_message_that_was_requeued_or_migrated_starts_where_its_notes_say() -> None:
    migrated = came_back(table(redrive_retries=2), redelivered=False)
    requeued = came_back(table(redrive_count=1), redelivered=False)

    assert (retries_made(migrated), retries_made(requeued)) == (2, 0)


@pytest.mark.parametrize(("returns", "deliveries"), [(2, 2), (3, 1), (4, 2)])
def test_what_was_rejected_into_a_retry_queue_before_is_counted_once(
    returns: int, deliveries: int
) -> None:
    """The broker goes on counting returns, and counts deliveries anew."""
    x_death: list[FieldValue] = [
        death(f"{QUEUE}@retry", "expired", 2),
        death(QUEUE, "rejected", 2),
    ]
    headers = table(x_death=x_death, x_delivery_count=returns, x_acquired_count=deliveries)

    assert retries_made(came_back(headers)) == returns


def test_without_a_ladder_the_broker_holds_the_message_back_for_its_own_time() -> None:
    assert without_ladder(
        RetryByLadder(3, timedelta(hours=1), 25), returned(2), GROWING, BROKER
    ) == RetryByBroker(3, 3 * SECOND, 25)


def test_a_policy_of_the_brokers_own_delays_needs_no_ladder() -> None:
    rule: dict[type[BaseException], ErrorRule] = {
        ValueError: ErrorRule(backoff=Exponential(SECOND, cap=timedelta(minutes=5)))
    }

    assert not HELD_BACK.longest_on_the_ladder
    assert not GROWING.longest_on_the_ladder
    assert replace(GROWING, retry_via="dead-letter").longest_on_the_ladder == 3 * SECOND
    assert replace(
        HELD_BACK, retry=RetryPolicy(25, backoff=Linear(SECOND), errors=rule)
    ).longest_on_the_ladder == timedelta(minutes=5)


@pytest.mark.parametrize(
    ("options", "found"),
    [
        ({"queue_type": "classic"}, "retry_via='broker' and queue_type='classic'"),
        ({"ordered": True}, "is ordered and has retry_via='broker'"),
        ({"broadcast": True}, "is a broadcast queue and has retry_via='broker'"),
        (
            {"retry": RetryPolicy(backoff=Linear("1s", timedelta(days=50)))},
            "hold messages of queue .* back for 50 days",
        ),
        (
            {"retry": RetryPolicy(backoff=Linear(timedelta(microseconds=1500)))},
            "back for 0:00:00.001500",
        ),
    ],
)
def test_what_a_broker_can_not_hold_back_is_refused(options: dict[str, object], found: str) -> None:
    with pytest.raises(ConfigurationError, match=found):
        Subscription(QUEUE, retry_via="broker", **options)  # type: ignore[arg-type]


@pytest.mark.parametrize("version", [BrokerVersion(3, 10, 8), BrokerVersion(4, 0, 5)], ids=str)
def test_an_older_broker_is_told_that_it_needs_4_3(version: BrokerVersion) -> None:
    with pytest.raises(ConfigurationError, match=r"needs RabbitMQ 4\.3 or newer") as refused:
        HELD_BACK.check_broker(version)

    assert str(version) in str(refused.value)


def test_rabbitmq_4_3_is_taken() -> None:
    HELD_BACK.check_broker(BrokerVersion(4, 3, 0))
