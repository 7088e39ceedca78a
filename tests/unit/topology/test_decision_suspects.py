"""What may have killed a worker, and how it steps aside with its counts."""

from dataclasses import replace

import pytest

from deliveries import (
    FRAME_MAX,
    SUBSCRIPTION,
    death,
    deaths,
    failed,
    first_delivery,
    returned,
    table,
)
from field_tables import QUEUE
from redrive.topology import headers, rewrite
from redrive.topology.broker_version import BrokerVersion
from redrive.topology.decision import crashes_seen, is_suspect, retries_made, step_aside
from redrive.topology.headers import Delivery
from redrive.topology.model import Subscription
from redrive.topology.policy import RetryPolicy
from redrive.topology.rewrite import Publish


def crashed(count: int, **of: object) -> Delivery:
    """A message that went back to its queue so often."""
    counts = table(x_delivery_count=count, x_acquired_count=count)
    return replace(first_delivery(counts, redelivered=True), **of)  # type: ignore[arg-type]


def arrived(publish: Publish) -> Delivery:
    """A message as its queue delivers it that was published so."""
    return Delivery(QUEUE, publish.exchange, publish.routing_key, publish.properties, publish.body)


@pytest.mark.parametrize(("crashes", "suspect"), [(0, False), (1, True), (4, True)])
def test_whatever_went_back_without_a_verdict_may_have_killed_its_worker(
    crashes: int, suspect: bool
) -> None:
    assert is_suspect(crashed(crashes), SUBSCRIPTION) is suspect


def test_a_retry_is_no_crash() -> None:
    counts = deaths(death(QUEUE, "rejected", 2)).with_values({"x-delivery-count": 2})
    assert not is_suspect(returned(counts, redelivered=True), SUBSCRIPTION)


@pytest.mark.parametrize(
    "subscription",
    [replace(SUBSCRIPTION, queue_type="classic"), replace(SUBSCRIPTION, broadcast=True)],
    ids=["classic", "broadcast"],
)
def test_where_no_crash_is_counted_nothing_is_suspected(subscription: Subscription) -> None:
    assert not is_suspect(crashed(3), subscription)


@pytest.mark.parametrize(("returns", "suspect"), [(2, False), (3, True)])
@pytest.mark.parametrize(
    ("subscription", "how"),
    [
        (replace(SUBSCRIPTION, ordered=True, retry=RetryPolicy(2)), "in_place"),
        (replace(SUBSCRIPTION, retry_via="broker", retry=RetryPolicy(2)), "held_back"),
    ],
    ids=["ordered", "held back"],
)
def test_where_retries_are_counted_as_returns_more_of_them_than_retries_are_a_crash(
    subscription: Subscription, how: str, returns: int, suspect: bool
) -> None:
    assert is_suspect(crashed(returns, **{how: True}), subscription) is suspect


def test_what_steps_aside_keeps_its_retries_and_its_crashes() -> None:
    before = returned(
        deaths(death(QUEUE, "rejected", 2)).with_values({"x-delivery-count": 5}), redelivered=True
    )
    after = arrived(step_aside(before, SUBSCRIPTION, FRAME_MAX))
    assert (retries_made(before), crashes_seen(before)) == (2, 3)
    assert (retries_made(after), crashes_seen(after)) == (2, 3)
    assert after.original_routing_key == "user.create"
    assert headers.X_DEATH not in after.properties.headers


def test_what_steps_aside_again_has_all_of_its_crashes() -> None:
    once = arrived(step_aside(crashed(1), SUBSCRIPTION, FRAME_MAX))
    again = replace(
        once,
        properties=once.properties._replace(
            headers=once.properties.headers.with_values({"x-delivery-count": 1})
        ),
        redelivered=True,
    )
    assert crashes_seen(arrived(step_aside(again, SUBSCRIPTION, FRAME_MAX))) == 2


def test_a_count_of_crashes_that_a_publisher_made_up_counts_for_nothing() -> None:
    assert crashes_seen(first_delivery(table(redrive_crashes=4))) == 0


def test_counts_that_find_no_room_are_missed() -> None:
    def with_a_header_of(size: int) -> Delivery:
        counts = table(x_delivery_count=1, note="x" * size)
        return first_delivery(counts, redelivered=True)

    assert step_aside(with_a_header_of(3000), SUBSCRIPTION, 4096).complete
    assert not step_aside(with_a_header_of(4040), SUBSCRIPTION, 4096).complete


def test_a_requeue_forgets_the_crashes() -> None:
    was_failed = failed(table(redrive_crashes=4, redrive_retries=3))
    requeued = rewrite.requeue(was_failed, job="a-job", frame_max=FRAME_MAX)
    assert headers.CRASHES not in requeued.properties.headers


@pytest.mark.parametrize(("version", "counts"), [((4, 2, 9), True), ((4, 3, 0), False)])
def test_brokers_count_what_is_returned_up_to_4_2(
    version: tuple[int, int, int], counts: bool
) -> None:
    assert BrokerVersion(*version).counts_what_is_returned is counts
