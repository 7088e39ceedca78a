from collections.abc import Callable
from dataclasses import FrozenInstanceError, replace
from datetime import timedelta
from typing import Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deliveries import (
    CIRCUMSTANCES,
    ERROR,
    SUBSCRIPTION,
    death,
    deaths,
    decided,
    failed,
    first_delivery,
    returned,
    table,
)
from field_tables import QUEUE, hostile_tables
from redrive.amqp.field_table import EMPTY, FieldValue, Table
from redrive.topology import headers
from redrive.topology.broker_version import NEWEST, BrokerVersion
from redrive.topology.decision import (
    Ack,
    AckIt,
    Arrived,
    Discard,
    Handle,
    Handled,
    MoveToFailed,
    Outcome,
    PublishThenAck,
    PutBack,
    Raised,
    RetryByReject,
    RetryByRepublish,
    crashes_seen,
    retries_made,
    route,
    whereabouts,
)
from redrive.topology.headers import Delivery
from redrive.topology.model import Subscription
from redrive.topology.policy import DISCARD, ErrorRule, RetryPolicy
from redrive.topology.rewrite import ErrorReport

CONTINUES = BrokerVersion(3, 10, 8)
IGNORES = BrokerVersion(4, 0, 5)
RETRY = f"{QUEUE}@retry"
CLASSIC = replace(SUBSCRIPTION, queue_type="classic")

outcomes = st.sampled_from(
    [
        Arrived(),
        Handled(),
        Raised(ERROR),
        Raised(ERROR, "gave-up"),
        Raised(ERROR, "invalid-message"),
        Raised(ERROR, "invalid-message", rule=DISCARD),
        Raised(ERROR, rule=ErrorRule(1, failed_queue="invalid")),
    ]
)
subscriptions = st.builds(
    Subscription,
    st.just(QUEUE),
    retry=st.builds(
        RetryPolicy, st.integers(0, 10), st.just(timedelta(seconds=30)), st.integers(1, 10)
    ),
    queue_type=st.sampled_from(["quorum", "classic"]),
)
deliveries = st.builds(
    lambda make, table, redelivered: replace(make(table), redelivered=redelivered),
    st.sampled_from([first_delivery, returned, failed]),
    hostile_tables(),
    st.booleans(),
)
versions = st.sampled_from([CONTINUES, IGNORES, NEWEST])


def rejected(count: int) -> Table:
    """What a message brings back that was rejected so often."""
    return deaths(death(RETRY, "expired", count), death(QUEUE, "rejected", count))


# --- what the rule for an error says --------------------------------------------------------------

DISCARDS = ErrorRule(1, discard=True)
OF_ITS_OWN = ErrorRule(failed_queue="invalid")


def test_a_rule_discards_what_it_does_not_retry_and_says_so() -> None:
    first = decided(first_delivery(), SUBSCRIPTION, Raised(ERROR, rule=DISCARDS), IGNORES)
    assert first == RetryByReject(1, SUBSCRIPTION.retry.delay, 1)
    settlement = decided(returned(rejected(1)), SUBSCRIPTION, Raised(ERROR, rule=DISCARDS), IGNORES)
    assert isinstance(settlement, Discard)
    assert settlement == Discard("retries-exhausted", 1)
    assert route(settlement, first_delivery(), SUBSCRIPTION, CIRCUMSTANCES) == AckIt()
    assert (
        whereabouts(settlement, SUBSCRIPTION)
        == "gone: its error's rule discards it (retries-exhausted after 1 retry)"
    )


@pytest.mark.parametrize("give_up", [None, "gave-up", "invalid-message"])
def test_a_rule_sets_a_message_aside_in_a_failed_queue_of_its_own(
    give_up: Literal["gave-up", "invalid-message"] | None,
) -> None:
    outcome = Raised(ERROR, give_up, rule=OF_ITS_OWN)
    settlement = decided(returned(rejected(3)), SUBSCRIPTION, outcome, IGNORES)
    assert isinstance(settlement, MoveToFailed)
    step = route(settlement, returned(rejected(3)), SUBSCRIPTION, CIRCUMSTANCES)
    assert isinstance(step, PublishThenAck)
    assert (step.publish.exchange, step.publish.routing_key) == (
        "master.failed",
        f"{QUEUE}@failed.invalid",
    )
    assert f"in {QUEUE}@failed.invalid (" in whereabouts(settlement, SUBSCRIPTION)


def test_a_known_outage_does_not_discard_a_message() -> None:
    outcome = Raised(ERROR, rule=DISCARD, outage="known")
    assert isinstance(decided(first_delivery(), SUBSCRIPTION, outcome, IGNORES), PutBack)


# --- totality -------------------------------------------------------------------------------------


@given(deliveries, subscriptions, outcomes, versions)
def test_there_is_a_decision_for_whatever_comes(
    delivery: Delivery, subscription: Subscription, outcome: Outcome, version: BrokerVersion
) -> None:
    decision = decided(delivery, subscription, outcome, version)
    match outcome:
        case Arrived():
            assert isinstance(decision, Handle | MoveToFailed)
        case Handled():
            assert decision == Ack()
        case Raised():
            assert isinstance(decision, RetryByReject | RetryByRepublish | MoveToFailed | Discard)


@given(deliveries, subscriptions, outcomes, versions)
def test_each_settlement_has_a_route_and_a_place(
    delivery: Delivery, subscription: Subscription, outcome: Outcome, version: BrokerVersion
) -> None:
    decision = decided(delivery, subscription, outcome, version)
    if not isinstance(decision, Handle):
        assert route(decision, delivery, subscription, CIRCUMSTANCES)
        assert whereabouts(decision, subscription)


@given(deliveries)
def test_retries_are_counted_for_whatever_comes(delivery: Delivery) -> None:
    assert 0 <= retries_made(delivery) <= 2 * headers.MAX_COUNT


@given(deliveries)
def test_crashes_are_counted_for_whatever_comes(delivery: Delivery) -> None:
    assert 0 <= crashes_seen(delivery) <= headers.MAX_COUNT


def test_a_decision_cannot_be_changed() -> None:
    with pytest.raises(FrozenInstanceError):
        Handle(0).retries = 1  # type: ignore[misc]


# --- before the handler ---------------------------------------------------------------------------


def test_a_new_message_is_handled_as_the_first_attempt() -> None:
    assert decided(first_delivery(), SUBSCRIPTION, Arrived(), IGNORES) == Handle(0)


def test_a_message_that_came_back_is_handled_with_the_retries_made() -> None:
    assert decided(returned(rejected(2)), SUBSCRIPTION, Arrived(), IGNORES) == Handle(2)


def test_retries_before_a_republish_are_added_to_those_after_it() -> None:
    delivery = returned(
        deaths(death(QUEUE, "rejected", 1, exchange="", routing_key=QUEUE)).with_values(
            {"redrive-retries": 2}
        )
    )
    assert decided(delivery, SUBSCRIPTION, Arrived(), IGNORES) == Handle(3)


def test_the_last_retry_is_handled() -> None:
    assert decided(returned(rejected(3)), SUBSCRIPTION, Arrived(), IGNORES) == Handle(3)


def test_a_message_with_more_retries_than_allowed_is_set_aside_without_being_handled() -> None:
    decision = decided(returned(rejected(4)), SUBSCRIPTION, Arrived(), IGNORES)
    assert isinstance(decision, MoveToFailed)
    assert (decision.reason, decision.retries, decision.error.message) == (
        "retries-exhausted",
        4,
        "arrived after 4 retries; 3 are allowed",
    )


@pytest.mark.parametrize("value", [True, -1, "9", b"9", 9.0, None, [9], 2**40], ids=repr)
def test_a_hostile_count_of_retries_counts_as_0(value: FieldValue) -> None:
    assert decided(
        returned(table(redrive_retries=value)), SUBSCRIPTION, Arrived(), IGNORES
    ) == Handle(0)


def test_an_x_death_on_a_message_that_did_not_come_back_counts_as_0() -> None:
    assert decided(first_delivery(rejected(9)), SUBSCRIPTION, Arrived(), IGNORES) == Handle(0)


# --- crashes --------------------------------------------------------------------------------------


def delivered_again(count: FieldValue, headers: Table = EMPTY) -> Delivery:
    return first_delivery(headers.with_values({"x-delivery-count": count}), redelivered=True)


def test_a_message_whose_worker_died_is_handled_again() -> None:
    assert decided(delivered_again(4), SUBSCRIPTION, Arrived(), IGNORES) == Handle(0)


def test_a_message_whose_worker_died_each_time_is_set_aside() -> None:
    decision = decided(delivered_again(5), SUBSCRIPTION, Arrived(), IGNORES)
    assert isinstance(decision, MoveToFailed)
    assert (decision.reason, decision.retries, decision.error.type) == (
        "crashed",
        0,
        "redrive.Crashed",
    )


def test_deliveries_that_ended_in_a_rejection_are_no_crashes() -> None:
    delivery = returned(rejected(3).with_values({"x-delivery-count": 7}), redelivered=True)
    assert crashes_seen(delivery) == 4


def test_more_rejections_than_deliveries_are_no_crash() -> None:
    delivery = returned(rejected(3).with_values({"x-delivery-count": 1}), redelivered=True)
    assert crashes_seen(delivery) == 0


def test_a_delivery_count_on_a_message_that_was_not_delivered_before_counts_as_0() -> None:
    assert decided(
        first_delivery(table(x_delivery_count=99)), SUBSCRIPTION, Arrived(), IGNORES
    ) == Handle(0)


@pytest.mark.parametrize("count", [True, -1, "99", 2**40, None], ids=repr)
def test_a_hostile_delivery_count_counts_as_0(count: FieldValue) -> None:
    assert decided(delivered_again(count), SUBSCRIPTION, Arrived(), IGNORES) == Handle(0)


def test_a_classic_queue_counts_no_crashes() -> None:
    assert decided(delivered_again(99), CLASSIC, Arrived(), IGNORES) == Handle(0)


@pytest.mark.parametrize(
    "entry",
    [death(QUEUE, "rejected", headers.MAX_COUNT), death(RETRY, "expired", headers.MAX_COUNT)],
    ids=["rejected", "expired"],
)
def test_a_made_up_x_death_hides_no_crash(entry: dict[str, FieldValue]) -> None:
    assert crashes_seen(delivered_again(5, deaths(entry))) == 5


# --- after the handler ----------------------------------------------------------------------------


def test_a_handled_message_is_acked() -> None:
    assert decided(returned(rejected(9)), SUBSCRIPTION, Handled(), IGNORES) == Ack()


def test_a_first_failure_is_dead_lettered_as_the_first_retry() -> None:
    assert decided(first_delivery(), SUBSCRIPTION, Raised(ERROR), IGNORES) == RetryByReject(
        1, timedelta(seconds=30), 3
    )


def test_a_failure_of_the_last_retry_is_set_aside() -> None:
    assert decided(returned(rejected(3)), SUBSCRIPTION, Raised(ERROR), IGNORES) == MoveToFailed(
        "retries-exhausted", ERROR, 3
    )


def test_without_retries_the_first_failure_is_set_aside() -> None:
    subscription = replace(SUBSCRIPTION, retry=RetryPolicy(max_retries=0))
    assert decided(first_delivery(), subscription, Raised(ERROR), IGNORES) == MoveToFailed(
        "retries-exhausted", ERROR, 0
    )


@pytest.mark.parametrize("reason", ["gave-up", "invalid-message"])
def test_a_failure_that_no_retry_can_help_is_set_aside_at_once(
    reason: Literal["gave-up", "invalid-message"],
) -> None:
    assert decided(first_delivery(), SUBSCRIPTION, Raised(ERROR, reason), IGNORES) == MoveToFailed(
        reason, ERROR, 0
    )


def test_the_delay_of_a_retry_is_that_of_the_policy() -> None:
    subscription = replace(SUBSCRIPTION, retry=RetryPolicy(delay=timedelta(minutes=5)))
    assert decided(first_delivery(), subscription, Raised(ERROR), IGNORES) == RetryByReject(
        1, timedelta(minutes=5), 3
    )


# --- an x-death that must not be continued --------------------------------------------------------


@pytest.mark.parametrize("x_death", ["rejected", [], ["x"], [{"queue": QUEUE}], None], ids=repr)
def test_an_x_death_is_never_republished_where_the_broker_ignores_it(x_death: FieldValue) -> None:
    assert isinstance(
        decided(first_delivery(table(x_death=x_death)), SUBSCRIPTION, Raised(ERROR), IGNORES),
        RetryByReject,
    )


@pytest.mark.parametrize("x_death", ["rejected", ["x"], [{"queue": QUEUE}], None], ids=repr)
@pytest.mark.parametrize("arrive", [first_delivery, returned])
def test_an_unreadable_x_death_is_republished_where_the_broker_continues_it(
    arrive: Callable[[Table], Delivery], x_death: FieldValue
) -> None:
    assert isinstance(
        decided(arrive(table(x_death=x_death)), SUBSCRIPTION, Raised(ERROR), CONTINUES),
        RetryByRepublish,
    )


@pytest.mark.parametrize("name", [QUEUE, RETRY])
def test_a_made_up_x_death_of_the_queue_is_republished_where_the_broker_continues_it(
    name: str,
) -> None:
    delivery = first_delivery(deaths(death(name, "rejected", 7)))
    assert decided(delivery, SUBSCRIPTION, Raised(ERROR), CONTINUES) == RetryByRepublish(
        1, timedelta(seconds=30), 3
    )


def test_an_x_death_of_another_queue_is_dead_lettered() -> None:
    delivery = first_delivery(deaths(death("another", "rejected", 7)))
    assert decided(delivery, SUBSCRIPTION, Raised(ERROR), CONTINUES) == RetryByReject(
        1, timedelta(seconds=30), 3
    )


def test_an_x_death_that_the_broker_wrote_is_dead_lettered() -> None:
    assert decided(returned(rejected(1)), SUBSCRIPTION, Raised(ERROR), CONTINUES) == RetryByReject(
        2, timedelta(seconds=30), 3
    )


def test_no_x_death_is_dead_lettered() -> None:
    assert decided(first_delivery(), SUBSCRIPTION, Raised(ERROR), CONTINUES) == RetryByReject(
        1, timedelta(seconds=30), 3
    )


@pytest.mark.parametrize("version", [CONTINUES, IGNORES], ids=str)
def test_the_retry_budget_ends_before_an_x_death_is_looked_at(version: BrokerVersion) -> None:
    delivery = returned(table(x_death="rejected", redrive_retries=3))
    assert decided(delivery, SUBSCRIPTION, Raised(ERROR), version) == MoveToFailed(
        "retries-exhausted", ERROR, 3
    )


def test_a_retry_count_copied_into_a_first_publish_spends_no_budget() -> None:
    assert retries_made(first_delivery(table(redrive_retries=3))) == 0


# --- where it is then -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("settlement", "sentence"),
    [
        (Ack(), "handled"),
        (
            RetryByReject(1, timedelta(seconds=30), 3),
            "in ucenter@user@retry for 30 s (retry 1 of 3)",
        ),
        (
            RetryByRepublish(2, timedelta(seconds=30), 3),
            "in ucenter@user@retry for 30 s (retry 2 of 3)",
        ),
        (
            MoveToFailed("gave-up", ErrorReport("GiveUp"), 2),
            "in ucenter@user@failed (gave-up after 2 retries)",
        ),
    ],
    ids=lambda part: type(part).__name__,
)
def test_the_place_of_a_message_is_told_in_words(
    settlement: Ack | RetryByReject | RetryByRepublish | MoveToFailed, sentence: str
) -> None:
    assert whereabouts(settlement, SUBSCRIPTION) == sentence
