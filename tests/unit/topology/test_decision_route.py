from datetime import timedelta

from deliveries import CIRCUMSTANCES, ERROR, SUBSCRIPTION, death, deaths, first_delivery
from field_tables import QUEUE
from redrive.topology import rewrite
from redrive.topology.decision import (
    Ack,
    AckIt,
    MoveToFailed,
    PublishThenAck,
    RejectIt,
    RetryByReject,
    RetryByRepublish,
    route,
)

DELIVERY = first_delivery(deaths(death("another", "rejected", 1)))
DELAY = timedelta(seconds=30)


def test_a_handled_message_is_acked() -> None:
    assert route(Ack(), DELIVERY, SUBSCRIPTION, CIRCUMSTANCES) == AckIt()


def test_a_dead_letter_is_rejected_and_nothing_is_published() -> None:
    assert route(RetryByReject(1, DELAY, 3), DELIVERY, SUBSCRIPTION, CIRCUMSTANCES) == RejectIt()


def test_a_republish_goes_to_the_retry_queue_with_the_retries_before_it() -> None:
    step = route(RetryByRepublish(3, DELAY, 3), DELIVERY, SUBSCRIPTION, CIRCUMSTANCES)
    assert step == PublishThenAck(
        rewrite.republish(
            DELIVERY,
            SUBSCRIPTION.exchanges,
            retries=2,
            counts_on=False,
            frame_max=CIRCUMSTANCES.frame_max,
        )
    )
    assert isinstance(step, PublishThenAck)
    assert (step.publish.exchange, step.publish.routing_key) == ("master.retry", QUEUE)


def test_a_failure_goes_to_the_failed_queue_with_its_reason() -> None:
    step = route(MoveToFailed("gave-up", ERROR, 2), DELIVERY, SUBSCRIPTION, CIRCUMSTANCES)
    assert step == PublishThenAck(
        rewrite.give_up(
            DELIVERY,
            SUBSCRIPTION.exchanges,
            reason="gave-up",
            error=ERROR,
            retries=2,
            context=CIRCUMSTANCES,
        )
    )
    assert isinstance(step, PublishThenAck)
    assert (step.publish.exchange, step.publish.routing_key) == ("master.failed", QUEUE)
