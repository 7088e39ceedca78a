"""What a decider makes of a delivery and of what its handler did."""

from datetime import timedelta

import pytest

from deliveries import FRAME_MAX, SUBSCRIPTION, death, deaths, first_delivery, returned
from redrive.errors import GiveUp, HandlerTimeout, InvalidMessage, Retry
from redrive.pubsub.verdict import Decider
from redrive.topology import headers
from redrive.topology.broker_version import BrokerVersion
from redrive.topology.decision import (
    Ack,
    AckIt,
    Handle,
    MoveToFailed,
    PublishThenAck,
    RejectIt,
    RetryByLadder,
    RetryByReject,
)


@pytest.fixture
def decider() -> Decider:
    return Decider(SUBSCRIPTION, BrokerVersion(4, 0, 5), FRAME_MAX)


EXHAUSTED = returned(
    deaths(death(SUBSCRIPTION.queue, "rejected", SUBSCRIPTION.retry.max_retries)),
)


def test_a_first_delivery_is_handled_and_then_acked(decider: Decider) -> None:
    assert decider.arrival(first_delivery()) == Handle(0)
    assert decider.success()[:2] == (Ack(), AckIt())


def test_a_failure_is_retried_while_there_are_retries(decider: Decider) -> None:
    verdict = decider.failure(first_delivery(), ValueError("no"))
    assert isinstance(verdict.settlement, RetryByReject)
    assert verdict.step == RejectIt()
    assert verdict.error is not None
    assert verdict.error.message == "no"


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (ValueError("no"), "retries-exhausted"),
        (GiveUp("no"), "gave-up"),
        (InvalidMessage("no"), "invalid-message"),
    ],
)
def test_what_is_given_up_is_published_with_the_reason_and_the_traceback(
    decider: Decider, error: Exception, reason: str
) -> None:
    try:
        raise error
    except Exception as caught:  # noqa: BLE001 - it is the very error that is raised above
        verdict = decider.failure(EXHAUSTED, caught)
    assert isinstance(verdict.settlement, MoveToFailed)
    assert verdict.settlement.reason == reason
    assert "in test_what_is_given_up" in verdict.settlement.error.traceback
    assert isinstance(verdict.step, PublishThenAck)
    noted = verdict.step.publish.properties.headers.to_dict()
    assert noted[headers.REASON] == reason


def test_each_failure_that_is_set_aside_has_an_id_of_its_own(decider: Decider) -> None:
    ids = set()
    for _ in range(2):
        step = decider.failure(first_delivery(), GiveUp("no")).step
        assert isinstance(step, PublishThenAck)
        ids.add(step.publish.properties.headers.to_dict()[headers.FAILURE_ID])
    assert len(ids) == 2


def test_a_wait_that_is_out_of_range_is_a_failure_that_says_so(decider: Decider) -> None:
    verdict = decider.failure(first_delivery(), Retry(after=timedelta(days=36_500)))
    assert isinstance(verdict.settlement, RetryByReject)
    assert verdict.error is not None
    assert "ConfigurationError" in verdict.error.type


def test_without_the_ladder_a_retry_waits_in_its_retry_queue_and_says_why(
    decider: Decider,
) -> None:
    delivery = first_delivery()
    verdict = decider.failure(delivery, Retry(after=timedelta(hours=1)))
    assert isinstance(verdict.settlement, RetryByLadder)
    instead = decider.without_ladder(delivery, verdict, "it is forbidden")
    assert instead is not None
    assert isinstance(instead.settlement, RetryByReject)
    assert "3600 s" in instead.note
    assert "it is forbidden" in instead.note
    assert decider.without_ladder(delivery, instead, "") is None


def test_a_handler_that_runs_for_too_long_failed_where_it_hangs(decider: Decider) -> None:
    verdict = decider.overdue(EXHAUSTED, HandlerTimeout(5), "a stack")
    assert isinstance(verdict.settlement, MoveToFailed)
    assert verdict.settlement.error.traceback == "a stack"
    assert "5" in verdict.settlement.error.message
