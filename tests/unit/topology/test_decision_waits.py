"""What is decided for a message whose retries wait for different times, or not at all."""

from dataclasses import replace
from datetime import timedelta

import pytest

from deliveries import (
    CIRCUMSTANCES,
    ERROR,
    NOW,
    SUBSCRIPTION,
    death,
    deaths,
    decided,
    first_delivery,
    returned,
    table,
)
from field_tables import QUEUE
from redrive.amqp.field_table import EMPTY, Table
from redrive.amqp.properties import Properties
from redrive.errors import ConfigurationError
from redrive.pubsub.logs import fields_of
from redrive.pubsub.verdict import Verdict
from redrive.topology import headers
from redrive.topology.broker_version import BrokerVersion
from redrive.topology.decision import (
    AckIt,
    Arrived,
    DecisionContext,
    Drop,
    Handle,
    MoveToFailed,
    PublishThenAck,
    Raised,
    RejectIt,
    RetryByLadder,
    RetryByReject,
    RetryByRepublish,
    ReturnIt,
    decide,
    rejection,
    route,
    whereabouts,
    without_ladder,
)
from redrive.topology.headers import Delivery
from redrive.topology.model import Subscription
from redrive.topology.policy import NO_RETRY, ErrorRule, RetryPolicy
from redrive.topology.rewrite import postpone, republish

CONTINUES = BrokerVersion(3, 10, 8)
IGNORES = BrokerVersion(4, 0, 5)
SECOND = timedelta(seconds=1)
USUAL = timedelta(seconds=30)
LADDER_KEY = "0." * 26 + "1.0.r." + QUEUE


def with_retry(policy: RetryPolicy) -> Subscription:
    return replace(SUBSCRIPTION, retry=policy)


def from_the_ladder(headers: Table) -> Delivery:
    return Delivery(QUEUE, "master.deliver", LADDER_KEY, Properties(headers=headers), b"{}")


def test_a_delay_that_is_not_the_retry_queue_s_takes_the_ladder() -> None:
    subscription = with_retry(RetryPolicy(3, backoff=[SECOND, USUAL]))
    assert decided(first_delivery(), subscription, Raised(ERROR), IGNORES) == RetryByLadder(
        1, SECOND, 3
    )


def test_a_delay_that_is_the_retry_queue_s_stays_on_the_reject_path() -> None:
    subscription = with_retry(RetryPolicy(3, backoff=[SECOND, USUAL]))
    delivery = from_the_ladder(table(redrive_retries=1))
    assert decided(delivery, subscription, Raised(ERROR), IGNORES) == RetryByReject(2, USUAL, 3)


def test_chance_takes_its_part_off_the_delay() -> None:
    from redrive.topology.backoff import Exponential

    subscription = with_retry(RetryPolicy(backoff=Exponential(10 * SECOND, jitter=0.5)))
    assert decide(
        first_delivery(), subscription, Raised(ERROR), IGNORES, DecisionContext(NOW, 1.0)
    ) == RetryByLadder(1, 5 * SECOND, 3)


def test_what_the_handler_asks_for_counts_before_the_policy() -> None:
    assert decided(
        first_delivery(), SUBSCRIPTION, Raised(ERROR, after=SECOND), IGNORES
    ) == RetryByLadder(1, SECOND, 3)


def test_a_queue_whose_name_is_too_long_for_the_ladder_waits_for_its_usual_delay() -> None:
    subscription = Subscription("q" * 198)
    delivery = Delivery("q" * 198, "master", "a", Properties(), b"{}")
    assert decided(delivery, subscription, Raised(ERROR, after=SECOND), IGNORES) == RetryByReject(
        1, USUAL, 3
    )


def test_an_error_that_is_not_to_be_retried_is_set_aside_at_once() -> None:
    subscription = with_retry(RetryPolicy(errors={ValueError: NO_RETRY}))
    assert decided(
        first_delivery(), subscription, Raised(ERROR, rule=NO_RETRY), IGNORES
    ) == MoveToFailed("not-retryable", ERROR, 0)


def test_an_error_has_its_own_budget() -> None:
    subscription = with_retry(
        RetryPolicy(max_retries=1, errors={OSError: ErrorRule(max_retries=2)})
    )
    delivery = from_the_ladder(table(redrive_retries=1))
    assert decided(
        delivery, subscription, Raised(ERROR, rule=ErrorRule(max_retries=2)), IGNORES
    ) == RetryByReject(2, USUAL, 2)
    assert decided(delivery, subscription, Raised(ERROR), IGNORES) == MoveToFailed(
        "retries-exhausted", ERROR, 1
    )


def test_a_message_is_handled_as_long_as_any_error_s_budget_lasts() -> None:
    subscription = with_retry(
        RetryPolicy(max_retries=1, errors={OSError: ErrorRule(max_retries=5)})
    )
    assert decided(
        from_the_ladder(table(redrive_retries=5)), subscription, Arrived(), IGNORES
    ) == Handle(5)
    assert isinstance(
        decided(from_the_ladder(table(redrive_retries=6)), subscription, Arrived(), IGNORES),
        MoveToFailed,
    )


# --- max_age --------------------------------------------------------------------------------------

AGED = with_retry(RetryPolicy(max_age=timedelta(hours=1)))


def published(seconds_ago: int, table: Table = EMPTY) -> Delivery:
    return Delivery(
        QUEUE,
        "master",
        "user.create",
        Properties(headers=table, timestamp=int(NOW.timestamp()) - seconds_ago),
        b"{}",
    )


def test_a_message_that_is_too_old_is_not_tried_again() -> None:
    assert decided(published(3700), AGED, Raised(ERROR), IGNORES) == MoveToFailed(
        "too-old", ERROR, 0
    )


def test_a_message_that_is_young_enough_is_tried_again() -> None:
    assert decided(published(3500), AGED, Raised(ERROR), IGNORES) == RetryByReject(1, USUAL, 3)


def test_a_message_that_a_person_requeued_is_not_too_old() -> None:
    requeued = replace(published(10**6, table(redrive_count=1)), exchange="", routing_key=QUEUE)
    assert decided(requeued, AGED, Raised(ERROR), IGNORES) == RetryByReject(1, USUAL, 3)


def test_a_message_without_a_timestamp_ages_from_its_first_failure() -> None:
    subscription = with_retry(RetryPolicy(max_age=timedelta(minutes=20)))
    assert decided(
        returned(deaths(death(QUEUE, "rejected", 1))), subscription, Raised(ERROR), IGNORES
    ) == MoveToFailed("too-old", ERROR, 1)
    assert decided(first_delivery(), subscription, Raised(ERROR), IGNORES) == RetryByReject(
        1, USUAL, 3
    )


def test_a_timestamp_that_is_no_time_makes_no_age() -> None:
    delivery = Delivery(QUEUE, "master", "user.create", Properties(timestamp=2**64 - 1), b"{}")
    assert decided(delivery, AGED, Raised(ERROR), IGNORES) == RetryByReject(1, USUAL, 3)


# --- the ladder's publish -------------------------------------------------------------------------


def test_a_postponed_message_carries_its_retries_in_our_header_and_no_x_death() -> None:
    delivery = returned(deaths(death(QUEUE, "rejected", 2)))
    step = route(RetryByLadder(3, 90 * SECOND, 3), delivery, SUBSCRIPTION, CIRCUMSTANCES)
    assert isinstance(step, PublishThenAck)
    assert step.publish == postpone(
        delivery, SUBSCRIPTION.exchanges, retry=3, delay=90 * SECOND, context=CIRCUMSTANCES
    )
    assert (step.publish.exchange, step.levels) == ("master.delay.6", 7)
    written = step.publish.properties.headers
    assert headers.X_DEATH not in written
    assert written[headers.RETRIES] == 3
    assert written[headers.ORIG_ROUTING_KEY] == "user.create"
    assert written[headers.ORIG_EXCHANGE] == "master"
    assert written[headers.FIRST_FAILED_AT] == "2024-05-17T08:00:00.000Z"


@pytest.mark.parametrize("exchange", ["master.deliver", "master.delay.0", "shop.delay-50ms.17"])
def test_a_message_from_the_ladder_came_back_and_shows_its_original_key(exchange: str) -> None:
    delivery = replace(from_the_ladder(table(x_orig_routing_key="user.create")), exchange=exchange)
    assert (delivery.came_back, delivery.was_moved, delivery.original_routing_key) == (
        True,
        True,
        "user.create",
    )


def test_a_scheduled_message_did_not_come_back_and_shows_its_key() -> None:
    delivery = Delivery(QUEUE, "master.deliver", "0." * 27 + "1.p.user.create", Properties(), b"{}")
    assert (delivery.came_back, delivery.was_moved, delivery.original_routing_key) == (
        False,
        False,
        "user.create",
    )


@pytest.mark.parametrize(
    ("exchange", "key"),
    [
        ("master", LADDER_KEY),
        ("master.deliver", LADDER_KEY + "x"),
        ("master.deliver", LADDER_KEY.replace(".r.", ".p.")),
        ("master.deliver", QUEUE),
    ],
)
def test_what_only_looks_like_a_retry_from_the_ladder_is_none(exchange: str, key: str) -> None:
    assert not Delivery(QUEUE, exchange, key, Properties(), b"{}").came_back


def test_a_log_line_says_that_a_message_is_on_the_ladder_and_for_how_long() -> None:
    assert (
        whereabouts(RetryByLadder(7, 90 * SECOND, 20), SUBSCRIPTION)
        == "on the delay ladder for 90 s (retry 7 of 20)"
    )


# --- queues shared with peers ---------------------------------------------------------------------

SHARED = Subscription(QUEUE, ["user.*"], queue_type="classic", retry_via="republish")


@pytest.mark.parametrize(("version", "counts_on"), [(CONTINUES, True), (IGNORES, False)], ids=str)
def test_on_a_shared_queue_a_failed_message_is_republished(
    version: BrokerVersion, counts_on: bool
) -> None:
    assert decided(first_delivery(), SHARED, Raised(ERROR), version) == RetryByRepublish(
        1, USUAL, 3, counts_on
    )


def test_an_x_death_that_the_broker_cannot_read_is_not_counted_on() -> None:
    assert decided(
        first_delivery(table(x_death="x")), SHARED, Raised(ERROR), CONTINUES
    ) == RetryByRepublish(1, USUAL, 3, counts_on=False)


def test_a_republish_that_the_broker_counts_on_keeps_x_death_and_leaves_our_count_alone() -> None:
    received = deaths(death(f"{QUEUE}@retry", "expired", 2))
    moved = republish(
        returned(received), SHARED.exchanges, retries=2, counts_on=True, frame_max=0
    ).properties.headers
    assert moved[headers.X_DEATH] == received[headers.X_DEATH]
    assert headers.RETRIES not in moved


def test_a_retry_comes_back_to_a_shared_queue_through_the_main_exchange() -> None:
    delivery = Delivery(QUEUE, "master", QUEUE, Properties(), b"{}", way_back=SHARED.way_back)
    assert delivery.came_back
    assert not replace(delivery, exchange="").came_back


# --- broadcast ------------------------------------------------------------------------------------

BROADCAST = Subscription("cache@1", ["user.*"], broadcast=True)


def test_a_broadcast_message_is_handled_whatever_its_headers_say() -> None:
    delivery = Delivery(
        "cache@1",
        "master",
        "user.create",
        Properties(headers=table(redrive_retries=9)),
        b"{}",
        redelivered=True,
    )
    assert decided(delivery, BROADCAST, Arrived(), IGNORES) == Handle(0)


def test_a_broadcast_message_that_fails_is_acked_and_let_go() -> None:
    settlement = decided(first_delivery(), BROADCAST, Raised(ERROR, "gave-up"), IGNORES)
    assert settlement == Drop()
    assert route(settlement, first_delivery(), BROADCAST, CIRCUMSTANCES) == AckIt()
    assert (
        whereabouts(settlement, BROADCAST)
        == "gone: cache@1 is a broadcast queue, which has no retries"
    )


def test_the_queue_of_a_broadcast_goes_with_its_instance_and_has_no_others_beside_it() -> None:
    topology = BROADCAST.topology()
    (queue,) = topology.queues
    assert (queue.name, queue.auto_delete, queue.arguments["x-expires"]) == (
        "cache@1",
        True,
        60_000,
    )
    assert {binding.routing_key for binding in topology.bindings} == {
        "user.*",
        "*." * 28 + "p.user.*",
    }


def test_broadcast_with_a_retry_policy_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="never retried"):
        Subscription("cache@1", broadcast=True, retry=RetryPolicy(max_retries=1))


# --- where the ladder can't be had ----------------------------------------------------------------


def test_without_the_ladder_a_retry_goes_to_the_retry_queue_and_counts_the_same() -> None:
    assert without_ladder(
        RetryByLadder(2, 90 * SECOND, 20), first_delivery(), SUBSCRIPTION, IGNORES
    ) == RetryByReject(2, USUAL, 20)
    assert without_ladder(
        RetryByLadder(2, 90 * SECOND, 20), first_delivery(), SHARED, CONTINUES
    ) == RetryByRepublish(2, USUAL, 20, counts_on=True)


def test_what_a_reject_would_lose_is_not_rejected_without_the_ladder_either() -> None:
    forged = first_delivery(table(x_death="x"))
    assert without_ladder(
        RetryByLadder(1, SECOND, 3), forged, SUBSCRIPTION, CONTINUES
    ) == RetryByRepublish(1, USUAL, 3)


@pytest.mark.parametrize(
    ("subscription", "headers", "broker", "expected"),
    [
        (SUBSCRIPTION, EMPTY, CONTINUES, RejectIt()),
        (SUBSCRIPTION, table(x_death="x"), IGNORES, RejectIt()),
        (SUBSCRIPTION, table(x_death="x"), CONTINUES, None),
        (SHARED, EMPTY, IGNORES, None),
        (replace(SUBSCRIPTION, retry_via="broker"), EMPTY, IGNORES, ReturnIt()),
        (replace(SUBSCRIPTION, broadcast=True), EMPTY, IGNORES, None),
        (replace(SUBSCRIPTION, ordered=True), EMPTY, IGNORES, None),
    ],
)
def test_a_message_is_rejected_only_where_that_has_it_tried_again(
    subscription: Subscription,
    headers: Table,
    broker: BrokerVersion,
    expected: RejectIt | ReturnIt | None,
) -> None:
    assert rejection(first_delivery(headers), subscription, broker) == expected


def test_a_log_line_for_programs_says_how_many_retries_the_error_is_allowed() -> None:
    verdict = Verdict(RetryByReject(7, USUAL, 20), RejectIt(), ERROR)
    assert fields_of(SUBSCRIPTION, first_delivery(), verdict)["max_retries"] == 20
