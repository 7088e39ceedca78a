"""What a consumer tells its broker of the deliveries that it got, and when."""

from collections.abc import Callable

import pytest

from redrive.amqp.frames import Received
from redrive.errors import PermissionDenied, RedriveError
from redrive.pubsub.consumer import MOST_PREFETCH, Consumer
from unit.pubsub.fake_wire import FakeChannel, FakeWire, Settling


class Consuming:
    """A consumer on a wire, and what it was given."""

    def __init__(self, prefetch: int = 10, *, most: int | None = None) -> None:
        self.wire = FakeWire()
        self.received: list[Received] = []
        self.refusals: list[RedriveError] = []
        self.begun = 0
        self.done: list[object] = []
        self.consumer = Consumer(
            self.wire,
            "orders",
            prefetch,
            received=lambda _, received: self.received.append(received),
            refused=self.refusals.append,
            begun=self._begun,
            most=most,
            priority=3,
        )

    def _begun(self) -> None:
        self.begun += 1

    @property
    def channel(self) -> FakeChannel:
        """Its channel."""
        return self.wire.channel

    def finished(self) -> None:
        """What is called at an end."""
        self.done.append(True)

    def deliver(self, count: int) -> list[int]:
        """Delivers messages; returns their tags."""
        return [self.channel.deliver(str(number).encode()) for number in range(count)]


@pytest.fixture
def consuming() -> Consuming:
    consuming = Consuming()
    consuming.wire.answer_all()
    return consuming


# --- beginning ------------------------------------------------------------------------------------


def test_it_begins_to_consume_with_its_prefetch_and_its_priority() -> None:
    consuming = Consuming(7)
    assert not consuming.consumer.alive
    consuming.wire.answer()
    assert (consuming.channel.prefetch, consuming.channel.priorities) == (7, [3])
    assert consuming.begun == 0
    consuming.wire.answer_all()
    assert consuming.begun == 1
    assert consuming.consumer.consuming


def test_what_is_delivered_is_handed_on_with_its_consumer(consuming: Consuming) -> None:
    consuming.deliver(2)
    assert [received.body for received in consuming.received] == [b"0", b"1"]


def test_any_number_is_asked_for_as_the_most_that_amqp_has_room_for() -> None:
    consuming = Consuming(0)
    consuming.wire.answer_all()
    assert consuming.channel.prefetch == MOST_PREFETCH
    consuming.deliver(MOST_PREFETCH // 2)
    assert len(consuming.channel.consumers) == 1
    consuming.deliver(1)
    assert len(consuming.channel.consumers) == 2


# --- settling -------------------------------------------------------------------------------------


def test_acks_without_a_gap_are_sent_as_one(consuming: Consuming) -> None:
    for tag in consuming.deliver(4):
        consuming.consumer.ack(tag)
    assert consuming.channel.settled == []
    consuming.consumer.flush()
    assert consuming.channel.settled == [Settling("ack", (1, 2, 3, 4))]


def test_an_ack_behind_a_gap_is_sent_alone_and_settles_nothing_in_the_gap(
    consuming: Consuming,
) -> None:
    consuming.deliver(5)
    for tag in (1, 3, 5):
        consuming.consumer.ack(tag)
    consuming.consumer.flush()
    assert consuming.channel.settled == [Settling("ack", (tag,)) for tag in (1, 3, 5)]
    assert list(consuming.channel.unsettled) == [2, 4]


def test_a_gap_that_was_filled_is_passed_over(consuming: Consuming) -> None:
    consuming.deliver(6)
    for batch in ((2, 3), (1,), (4, 6)):
        for tag in batch:
            consuming.consumer.ack(tag)
        consuming.consumer.flush()
    assert list(consuming.channel.unsettled) == [5]


def test_a_reject_is_sent_at_once_and_alone(consuming: Consuming) -> None:
    consuming.deliver(3)
    consuming.consumer.ack(1)
    consuming.consumer.reject(2)
    assert consuming.channel.settled == [Settling("reject", (2,))]
    consuming.consumer.ack(3)
    consuming.consumer.flush()
    assert consuming.channel.settled[1:] == [Settling("ack", (1, 3))]


def test_one_delivery_is_returned_by_a_reject_that_counts(consuming: Consuming) -> None:
    consuming.deliver(2)
    consuming.consumer.return_one(1)
    assert consuming.channel.settled == [Settling("reject", (1,), requeue=True)]


def test_everything_unsettled_is_returned_by_one_nack(consuming: Consuming) -> None:
    consuming.deliver(5)
    consuming.consumer.ack(2)
    consuming.consumer.reject(4)
    consuming.consumer.flush()
    consuming.consumer.return_all()
    assert consuming.channel.settled[2:] == [Settling("nack", (1, 3, 5), requeue=True)]


def test_all_is_returned_whose_last_is_settled(consuming: Consuming) -> None:
    consuming.deliver(3)
    consuming.consumer.reject(3)
    consuming.consumer.return_all()
    assert consuming.channel.settled[1:] == [Settling("nack", (1, 2), requeue=True)]


def test_where_all_is_settled_nothing_is_returned(consuming: Consuming) -> None:
    for tag in consuming.deliver(3):
        consuming.consumer.ack(tag)
    consuming.consumer.flush()
    consuming.consumer.return_all()
    consuming.consumer.flush()
    assert consuming.channel.settled == [Settling("ack", (1, 2, 3))]


def ack(consumer: Consumer) -> None:
    """Acks the first delivery."""
    consumer.ack(1)
    consumer.flush()


SETTLE: list[Callable[[Consumer], None]] = [
    ack,
    lambda consumer: consumer.reject(1),
    lambda consumer: consumer.return_one(1),
    lambda consumer: consumer.return_all(),
]
"""Each way to settle a delivery."""


@pytest.mark.parametrize("settle", SETTLE, ids=["ack", "reject", "return one", "return all"])
@pytest.mark.parametrize("end", ["connection lost", "channel closed"])
def test_what_was_delivered_on_a_channel_that_is_gone_is_not_settled(
    consuming: Consuming, settle: Callable[[Consumer], None], end: str
) -> None:
    consuming.deliver(1)
    if end == "connection lost":
        consuming.wire.lose()
    else:
        consuming.channel.close_by_broker(406, "PRECONDITION_FAILED - timeout")
    settle(consuming.consumer)
    assert consuming.channel.settled == []
    assert not consuming.consumer.alive


# --- as many as are wanted ------------------------------------------------------------------------


def test_no_ack_is_sent_that_would_bring_more_than_are_wanted() -> None:
    consuming = Consuming(2, most=3)
    consuming.wire.answer_all()
    for tag in consuming.deliver(2):
        consuming.consumer.ack(tag)
    consuming.consumer.flush()
    assert consuming.channel.settled == [Settling("ack", (1,))]
    assert consuming.consumer.credit == 1
    consuming.consumer.ack(consuming.channel.deliver())
    consuming.consumer.flush()
    assert len(consuming.channel.settled) == 1


def test_acks_that_were_kept_back_are_sent_at_the_end() -> None:
    consuming = Consuming(2, most=2)
    consuming.wire.answer_all()
    for tag in consuming.deliver(2):
        consuming.consumer.ack(tag)
    consuming.consumer.flush()
    assert consuming.channel.settled == []
    consuming.consumer.finish(consuming.finished)
    consuming.wire.answer_all()
    assert consuming.channel.unsettled == {}
    assert consuming.done


def test_from_when_no_more_are_taken_no_ack_brings_another() -> None:
    consuming = Consuming(2)
    consuming.wire.answer_all()
    consuming.deliver(2)
    consuming.consumer.ack(1)
    consuming.consumer.flush()
    consuming.consumer.take_no_more()
    consuming.consumer.ack(2)
    consuming.consumer.flush()
    assert consuming.channel.settled == [Settling("ack", (1,))]


# --- consuming with another prefetch --------------------------------------------------------------


def test_another_prefetch_is_another_consumer_on_the_same_channel(consuming: Consuming) -> None:
    consuming.deliver(1)
    consuming.consumer.consume_anew(30)
    states = [consuming.consumer.consuming]
    consuming.wire.answer()
    assert [*states, consuming.consumer.consuming] == [False, True]
    assert (consuming.channel.prefetch, len(consuming.channel.consumers)) == (30, 1)
    consuming.consumer.reject(1)
    assert consuming.channel.unsettled == {}


def test_a_consumer_that_is_cancelled_meanwhile_does_not_begin_again(consuming: Consuming) -> None:
    consuming.consumer.consume_anew(30)
    consuming.consumer.cancel(consuming.finished)
    assert consuming.done == []
    consuming.wire.answer_all()
    assert consuming.done == [True]
    assert consuming.channel.consumers == {}


def test_a_further_prefetch_that_is_asked_for_meanwhile_counts() -> None:
    consuming = Consuming(1)
    consuming.wire.answer_all()
    consuming.consumer.consume_anew(30)
    consuming.consumer.consume_anew(40)
    consuming.wire.answer_all()
    assert (consuming.channel.prefetch, len(consuming.channel.consumers)) == (40, 1)


# --- the broker ends it ---------------------------------------------------------------------------


@pytest.mark.parametrize("answers", [1, 2, 3])
def test_a_channel_that_the_broker_closes_is_a_refusal_with_the_queue_in_it(answers: int) -> None:
    consuming = Consuming()
    for _ in range(answers):
        consuming.wire.answer()
    consuming.channel.close_by_broker(403, "ACCESS_REFUSED - access to queue 'orders' refused")
    (refusal,) = consuming.refusals
    assert isinstance(refusal, PermissionDenied)
    assert "consume queue 'orders'" in str(refusal)


def test_a_consumer_whose_queue_was_deleted_is_refused_and_consumes_no_more(
    consuming: Consuming,
) -> None:
    consuming.channel.cancel_by_broker()
    assert len(consuming.refusals) == 1
    assert (consuming.consumer.alive, consuming.consumer.consuming) == (True, False)


# --- ends -----------------------------------------------------------------------------------------


def test_deliveries_may_come_until_the_broker_has_cancelled(consuming: Consuming) -> None:
    consuming.consumer.cancel(consuming.finished)
    consuming.deliver(1)
    assert len(consuming.received) == 1
    assert consuming.done == []
    consuming.wire.answer()
    assert consuming.done == [True]


@pytest.mark.parametrize("before", ["opened", "cancelled", "lost", "closed"])
def test_what_delivers_nothing_is_cancelled_at_once(before: str) -> None:
    consuming = Consuming()
    if before != "opened":
        consuming.wire.answer_all()
    if before == "cancelled":
        consuming.channel.cancel_by_broker()
    elif before == "lost":
        consuming.wire.lose()
    elif before == "closed":
        consuming.channel.close_by_broker()
    consuming.consumer.cancel(consuming.finished)
    assert consuming.done == [True]


def test_a_consumer_that_was_cancelled_before_its_channel_opened_never_begins() -> None:
    consuming = Consuming()
    consuming.consumer.cancel()
    consuming.wire.answer_all()
    assert consuming.channel.consumers == {}


def test_it_finishes_once_the_broker_has_every_ack(consuming: Consuming) -> None:
    consuming.deliver(2)
    consuming.consumer.ack(1)
    consuming.consumer.finish(consuming.finished)
    consuming.consumer.ack(2)
    consuming.wire.answer()
    assert list(consuming.channel.unsettled) == []
    assert consuming.done == []
    consuming.wire.answer()
    assert consuming.done == [True]


def test_it_settles_and_holds_the_rest(consuming: Consuming) -> None:
    consuming.deliver(2)
    consuming.consumer.ack(1)
    consuming.consumer.settle_and_hold(consuming.finished)
    assert list(consuming.channel.unsettled) == [2]
    assert consuming.done == []
    consuming.wire.answer_all()
    assert consuming.done == [True]
    assert consuming.channel.is_open


def test_what_is_unsettled_is_returned_in_order_by_the_end_of_its_channel(
    consuming: Consuming,
) -> None:
    consuming.deliver(5)
    consuming.consumer.ack(2)
    consuming.consumer.return_in_order(consuming.done.append)
    states = [consuming.channel.closed_by_client]
    consuming.wire.answer_all()
    assert [*states, consuming.channel.closed_by_client] == [False, True]
    assert consuming.channel.consumers == {}
    assert list(consuming.channel.unsettled) == [1, 3, 4, 5]
    assert consuming.done == [4]


@pytest.mark.parametrize("how", ["finish", "settle and hold", "return in order"])
@pytest.mark.parametrize("before", ["opened", "lost", "closed"])
def test_each_end_comes_at_once_where_the_channel_is_gone(how: str, before: str) -> None:
    consuming = Consuming()
    if before != "opened":
        consuming.wire.answer_all()
        consuming.deliver(1)
    if before == "lost":
        consuming.wire.lose()
    elif before == "closed":
        consuming.channel.close_by_broker()
    match how:
        case "finish":
            consuming.consumer.finish(consuming.finished)
            assert consuming.done == [True]
        case "settle and hold":
            consuming.consumer.settle_and_hold(consuming.finished)
            assert consuming.done == [True]
        case _:
            consuming.consumer.return_in_order(consuming.done.append)
            assert consuming.done == [None]
