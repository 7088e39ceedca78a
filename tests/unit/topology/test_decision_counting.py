"""Retries are counted right on every broker: `decided` and `route` against a model of it."""

from dataclasses import replace
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deliveries import CIRCUMSTANCES, ERROR, FRAME_MAX, SUBSCRIPTION, death, decided
from field_tables import QUEUE, hostile_tables
from model_broker import RETRY_QUEUE, LostMessage, ModelBroker
from redrive.amqp.field_table import EMPTY, FieldValue, Table
from redrive.amqp.properties import Properties
from redrive.topology import headers, rewrite
from redrive.topology.broker_version import NEWEST, BrokerVersion
from redrive.topology.decision import (
    Ack,
    Arrived,
    Handle,
    Handled,
    MoveToFailed,
    PublishThenAck,
    Raised,
    RejectIt,
    RetryByLadder,
    RetryByReject,
    RetryByRepublish,
    route,
)
from redrive.topology.headers import Delivery
from redrive.topology.model import Subscription
from redrive.topology.policy import RetryPolicy
from redrive.topology.rewrite import Publish

CONTINUES = BrokerVersion(3, 10, 8)
IGNORES = BrokerVersion(4, 0, 5)
VERSIONS = [
    CONTINUES,
    BrokerVersion(3, 13, 2),
    BrokerVersion(3, 13, 3),
    IGNORES,
    BrokerVersion(4, 3, 6),
    NEWEST,
]

FORGED_DEATHS: list[FieldValue] = [
    [death(QUEUE, "rejected", 7)],
    [death(RETRY_QUEUE, "expired", 7)],
    [death("another", "rejected", 7)],
    [death(QUEUE, "rejected", headers.MAX_COUNT)],
    [death(QUEUE, "rejected", -7)],
    [death(QUEUE, "rejected", 2**62)],
    [{"queue": QUEUE, "reason": "rejected", "count": 7}],
    ["rejected"],
    "rejected",
    [],
    {},
    None,
    True,
]

forged_headers = hostile_tables()


def subscription_with(max_retries: int) -> Subscription:
    return Subscription(QUEUE, ["user.*"], retry=RetryPolicy(max_retries=max_retries))


def retries_seen(
    broker: ModelBroker, version: BrokerVersion, subscription: Subscription, delivery: Delivery
) -> tuple[list[int], Publish]:
    """The retries told to each run of a handler that always fails, and the publish that sets the
    message aside."""
    seen: list[int] = []
    while True:
        before = decided(delivery, subscription, Arrived(), version)
        assert isinstance(before, Handle)
        seen.append(before.retries)
        assert len(seen) <= subscription.retry.max_retries + 1, seen
        after = decided(delivery, subscription, Raised(ERROR), version)
        assert not isinstance(after, Handle)
        match after, route(after, delivery, subscription, CIRCUMSTANCES):
            case RetryByReject(), RejectIt():
                delivery = broker.reject(delivery)
            case RetryByRepublish(), PublishThenAck(publish):
                delivery = broker.through_the_retry_queue(publish)
            case RetryByLadder(), PublishThenAck(publish):
                delivery = broker.down_the_ladder(publish)
            case MoveToFailed(reason="retries-exhausted"), PublishThenAck(publish):
                return seen, publish
            case other:
                pytest.fail(f"{other} for a message that fails")


@given(st.integers(0, 12), st.sampled_from(VERSIONS))
def test_a_message_that_always_fails_is_handled_once_and_then_once_for_each_retry(
    max_retries: int, version: BrokerVersion
) -> None:
    broker = ModelBroker(version)
    seen, _ = retries_seen(
        broker,
        version,
        subscription_with(max_retries),
        broker.first_delivery(Properties(headers=EMPTY)),
    )
    assert seen == list(range(max_retries + 1))


BACKOFFS = st.lists(st.sampled_from([1, 5, 30, 300]), min_size=1, max_size=6).map(
    lambda seconds: [timedelta(seconds=number) for number in sorted(seconds)]
)


@given(st.integers(0, 8), BACKOFFS, st.sampled_from(VERSIONS), st.booleans(), forged_headers)
def test_retries_by_the_retry_queue_and_by_the_ladder_count_one_each_whatever_a_publisher_makes_up(
    max_retries: int, backoff: list[timedelta], version: BrokerVersion, shared: bool, forged: Table
) -> None:
    subscription = Subscription(
        QUEUE, ["user.*"], retry=RetryPolicy(max_retries=max_retries, backoff=backoff)
    )
    if shared:
        subscription = replace(subscription, queue_type="classic", retry_via="republish")
    broker = ModelBroker(version, subscription.way_back)
    seen, _ = retries_seen(
        broker, version, subscription, broker.first_delivery(Properties(headers=forged))
    )
    assert seen == list(range(max_retries + 1))


@given(st.integers(0, 6), st.sampled_from(VERSIONS), forged_headers)
def test_whatever_headers_a_publisher_makes_up_a_message_has_its_whole_budget(
    max_retries: int, version: BrokerVersion, forged: Table
) -> None:
    broker = ModelBroker(version)
    seen, _ = retries_seen(
        broker,
        version,
        subscription_with(max_retries),
        broker.first_delivery(Properties(headers=forged)),
    )
    assert seen == list(range(max_retries + 1))


@pytest.mark.parametrize("version", VERSIONS, ids=str)
@pytest.mark.parametrize("x_death", FORGED_DEATHS, ids=lambda value: repr(value)[:60])
def test_an_x_death_that_a_publisher_made_up_counts_as_none(
    version: BrokerVersion, x_death: FieldValue
) -> None:
    broker = ModelBroker(version)
    seen, _ = retries_seen(
        broker,
        version,
        subscription_with(3),
        broker.first_delivery(Properties(headers=Table.of({headers.X_DEATH: x_death}))),
    )
    assert seen == [0, 1, 2, 3]


@given(st.integers(0, 4), st.sampled_from(VERSIONS), forged_headers)
def test_a_message_that_is_requeued_has_a_fresh_budget(
    max_retries: int, version: BrokerVersion, forged: Table
) -> None:
    broker, subscription = ModelBroker(version), subscription_with(max_retries)
    _, given_up = retries_seen(
        broker, version, subscription, broker.first_delivery(Properties(headers=forged))
    )
    requeued = rewrite.requeue(broker.delivery_of(given_up), job="job-1", frame_max=FRAME_MAX)
    seen, _ = retries_seen(broker, version, subscription, broker.delivery_of(requeued))
    assert seen == list(range(max_retries + 1))


@given(st.integers(0, 8), st.integers(0, 8), st.sampled_from(VERSIONS))
def test_a_message_given_up_tells_how_often_it_was_retried(
    max_retries: int, stop_after: int, version: BrokerVersion
) -> None:
    broker, subscription = ModelBroker(version), subscription_with(max_retries)
    delivery = broker.first_delivery(Properties(headers=EMPTY))
    for _ in range(min(stop_after, max_retries)):
        delivery = broker.reject(delivery)
    settlement = decided(delivery, subscription, Raised(ERROR, "gave-up"), version)
    assert isinstance(settlement, MoveToFailed)
    step = route(settlement, delivery, subscription, CIRCUMSTANCES)
    assert isinstance(step, PublishThenAck)
    assert (
        step.publish.properties.headers[headers.RETRIES]
        == settlement.retries
        == min(stop_after, max_retries)
    )


@given(st.lists(st.booleans(), max_size=8), st.sampled_from(VERSIONS))
def test_rejections_and_republishes_in_any_order_count_one_each(
    republished: list[bool], version: BrokerVersion
) -> None:
    broker = ModelBroker(version)
    delivery = broker.first_delivery(Properties(headers=EMPTY))
    seen = []
    for by_publish in republished:
        seen.append(_retries_of(delivery, version))
        if by_publish:
            publish = rewrite.republish(
                delivery,
                SUBSCRIPTION.exchanges,
                retries=seen[-1],
                counts_on=False,
                frame_max=FRAME_MAX,
            )
            delivery = broker.through_the_retry_queue(publish)
        else:
            delivery = broker.reject(delivery)
    assert seen == list(range(len(republished)))


def _retries_of(delivery: Delivery, version: BrokerVersion) -> int:
    decision = decided(delivery, subscription_with(100), Arrived(), version)
    assert isinstance(decision, Handle)
    return decision.retries


def test_the_model_loses_what_rabbitmq_3_10_loses() -> None:
    broker = ModelBroker(CONTINUES)
    with pytest.raises(LostMessage):
        broker.reject(
            broker.first_delivery(Properties(headers=Table.of({headers.X_DEATH: "rejected"})))
        )


def test_a_message_that_is_handled_is_acked_whatever_it_went_through() -> None:
    broker = ModelBroker(IGNORES)
    assert (
        decided(
            broker.reject(broker.first_delivery(Properties())), SUBSCRIPTION, Handled(), IGNORES
        )
        == Ack()
    )
