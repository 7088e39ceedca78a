"""What a running subscriber does with its deliveries, whatever its broker and its handlers do."""

import os
import threading
import time
from collections import deque
from collections.abc import Callable
from datetime import timedelta

import pytest

from redrive.amqp.field_table import Table
from redrive.amqp.properties import Properties
from redrive.errors import ConfigurationError, PermissionDenied, Retry
from redrive.pubsub import engine, late_attempts
from redrive.pubsub.engine import Engine
from redrive.pubsub.isolation import Isolation
from redrive.pubsub.late_attempts import LateAttempts
from redrive.pubsub.order_key import ReadKey
from redrive.topology.decision import Ack, Drop, MoveToFailed, RetryByReject
from redrive.topology.headers import JOB
from redrive.topology.model import Subscription
from unit.pubsub.fake_wire import LOST, FakeChannel, Published, Settling
from unit.pubsub.running_engine import (
    BROADCAST,
    DELAYED,
    FAILURE,
    GIVE_UP,
    GRACE,
    HELD_BACK,
    ORDERED,
    ORDERS,
    RunningEngine,
)

ACKED = [Settling("ack", (1,))]
REJECTED = [Settling("reject", (1,))]
RETURNED = [Settling("nack", (1,), requeue=True)]


@pytest.fixture
def running() -> RunningEngine:
    running = RunningEngine()
    running.connect()
    return running


# --- verdicts -------------------------------------------------------------------------------------


def test_what_was_handled_is_acked(running: RunningEngine) -> None:
    running.consuming.deliver()
    running.handle()
    assert running.consuming.settled == ACKED
    assert running.notes == [Ack()]


def test_what_failed_is_rejected_and_the_broker_retries_it(running: RunningEngine) -> None:
    running.consuming.deliver()
    running.handle(FAILURE)
    assert running.consuming.settled == REJECTED
    assert isinstance(running.notes[0], RetryByReject)


def test_what_is_given_up_is_published_and_acked_once_that_is_confirmed(
    running: RunningEngine,
) -> None:
    running.consuming.deliver(b"body")
    running.handle(GIVE_UP)
    (copy,) = running.publishing.published
    assert (copy.exchange, copy.routing_key, copy.body) == ("master.failed", "orders", b"body")
    assert running.consuming.settled == []
    running.publishing.ack(1)
    assert running.consuming.settled == ACKED
    assert isinstance(running.notes[0], MoveToFailed)


def test_a_job_is_told_what_became_of_the_messages_that_it_requeued(running: RunningEngine) -> None:
    by_a_job = Properties(headers=Table.of({JOB: "job-1"})).encode()
    running.consuming.deliver(exchange="", routing_key="orders", properties=by_a_job)
    running.handle(FAILURE)
    running.consuming.deliver()
    running.handle()
    assert len(running.notes) == 2
    assert running.told == running.notes[:1]


def test_verdicts_that_come_together_are_acked_together(running: RunningEngine) -> None:
    for _ in range(3):
        running.deliver()
        item = running.begin()
        running.engine.settle(item, running.engine.attempted(item, None))
    running.link.run()
    assert running.consuming.settled == [Settling("ack", (1, 2, 3))]


def test_a_verdict_counts_once(running: RunningEngine) -> None:
    running.consuming.deliver()
    item = running.handle(FAILURE)
    running.end(item)
    assert running.consuming.settled == REJECTED
    assert len(running.notes) == 1


def test_a_message_whose_properties_can_not_be_read_is_settled_as_an_invalid_one(
    running: RunningEngine, caplog: pytest.LogCaptureFixture
) -> None:
    running.consuming.deliver(b'{"id": 17}', properties=b"\xff\xff\xff")
    running.begin()
    running.link.run()
    assert running.consuming.settled == []
    publishing = running.publishing
    assert b'{"id": 17}' in publishing.published[-1].body
    publishing.ack(1)
    running.run()
    assert running.consuming.settled == ACKED
    assert "redrive.errors.InvalidMessage: the properties of a message are cut off" in caplog.text
    assert "Defect" not in caplog.text


@pytest.mark.parametrize(("subscription", "requeue"), [(ORDERS, False), (HELD_BACK, True)])
def test_what_redrive_can_not_decide_about_is_retried_as_it_is(
    subscription: Subscription, requeue: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    running = RunningEngine(subscription)
    running.connect()
    running.consuming.deliver()
    item = running.begin()
    monkeypatch.setattr(item.decider, "success", lambda: 1 // 0)
    running.end(item)
    assert running.consuming.settled == [Settling("reject", (1,), requeue=requeue)]


def test_what_a_predicate_declines_is_acked_and_counted() -> None:
    running = RunningEngine(where=lambda message: message.body == b"wanted")
    running.connect()
    running.consuming.deliver(b"other")
    running.begin()
    running.link.run()
    assert (running.consuming.settled, running.dropped.declined) == (ACKED, 1)
    running.consuming.deliver(b"wanted")
    assert running.engine.arrived(running.workers.waiting.popleft()) is None


def test_a_predicate_that_fails_is_a_failed_attempt() -> None:
    running = RunningEngine(where=lambda message: message.body[99] == 1)
    running.connect()
    running.consuming.deliver()
    running.begin()
    running.link.run()
    assert running.consuming.settled == REJECTED


def test_what_fails_in_broadcast_is_acked_and_counted() -> None:
    running = RunningEngine(BROADCAST)
    running.connect()
    running.consuming.deliver()
    running.handle(FAILURE)
    assert (running.consuming.settled, running.dropped.let_go) == (ACKED, 1)
    assert running.notes == [Drop()]


def test_what_failed_in_an_ordered_queue_is_held_and_then_returned() -> None:
    running = RunningEngine(ORDERED, prefetch=1, concurrency=1)
    running.connect()
    running.consuming.deliver()
    running.handle(FAILURE)
    delay = ORDERED.retry.delay.total_seconds()
    running.link.sleep(delay / 2)
    assert running.consuming.settled == []
    running.link.sleep(delay)
    assert running.consuming.settled == [Settling("reject", (1,), requeue=True)]


def test_what_was_held_on_a_connection_that_was_lost_is_not_returned_on_the_next() -> None:
    running = RunningEngine(ORDERED, prefetch=1, concurrency=1)
    running.connect()
    running.consuming.deliver()
    running.handle(FAILURE)
    running.link.lose()
    running.connect()
    running.consuming.deliver(redelivered=True)
    running.link.sleep(ORDERED.retry.delay.total_seconds() + 1)
    assert running.consuming.settled == []


def test_at_first_one_is_taken_and_then_what_the_prefetch_allows() -> None:
    running = RunningEngine(prefetch=30, concurrency=2)
    running.connect()
    assert running.consuming.prefetch == 1
    running.deliver()
    assert running.consuming.prefetch == 30
    assert len(running.consuming.consumers) == 1


# --- handlers that take too long ------------------------------------------------------------------


def test_a_handler_that_runs_for_too_long_counts_as_failed_and_its_return_does_not() -> None:
    running = RunningEngine(handler_timeout=1.0)
    running.connect()
    running.consuming.deliver()
    item = running.begin()
    running.workers.overdue.append((item, "a stack"))
    running.link.sleep(1.0)
    assert running.consuming.settled == REJECTED
    running.end(item)
    assert running.consuming.settled == REJECTED


def hanging(
    subscription: Subscription = ORDERS, max_hung: int = 2, order_by: ReadKey | None = None
) -> RunningEngine:
    running = RunningEngine(subscription, handler_timeout=1.0, max_hung=max_hung, order_by=order_by)
    running.connect()
    return running


def test_what_hangs_is_counted_until_it_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    late = LateAttempts()
    monkeypatch.setattr(late_attempts, "of_this_process", late)
    running = hanging()
    running.deliver()
    item = running.hang()
    assert (running.engine.late, late.counts()) == (1, {"orders": 1})
    running.end_late(item)
    assert (running.engine.late, late.counts()) == (0, {"orders": 0})


def test_the_broker_is_told_within_a_second_how_many_hang() -> None:
    running = hanging(max_hung=9)
    running.deliver()
    item = running.hang()
    running.link.sleep(1)
    running.run()
    assert (running.consuming.hung[-1], len(running.consuming.consumers)) == (1, 1)
    running.end_late(item)
    running.link.sleep(1)
    running.run()
    assert running.consuming.hung[-1] is None


def test_an_ordered_queue_is_not_left_to_tell_that_a_handler_hangs() -> None:
    running = hanging(ORDERED, max_hung=9)
    running.deliver()
    running.hang()
    running.link.sleep(9)
    running.run()
    assert running.consuming.hung == [None]


def test_while_too_many_hang_no_more_is_taken_and_what_is_in_hand_is_handled() -> None:
    running = hanging()
    running.deliver()
    running.deliver()
    running.deliver(b"in hand")
    items = [running.hang(), running.hang()]
    assert (running.engine.is_stuck, running.consuming.consumers) == (True, {})
    running.handle()
    running.end_late(items[0])
    assert (running.engine.is_stuck, len(running.consuming.consumers)) == (False, 1)
    running.deliver()
    assert running.consuming.prefetch == 5


@pytest.mark.parametrize("subscription", [ORDERED, BROADCAST], ids=["ordered", "broadcast"])
def test_a_queue_that_may_not_be_left_keeps_what_comes_while_too_many_hang(
    subscription: Subscription,
) -> None:
    running = hanging(subscription, max_hung=1, order_by=lambda message: str(message.body))
    running.deliver()
    item = running.hang()
    running.deliver(b"next")
    assert running.consuming.consumers
    assert not running.workers.waiting
    running.end_late(item)
    assert [one.received.body for one in running.workers.waiting] == [b"next"]


def test_a_new_connection_takes_nothing_either_while_too_many_hang() -> None:
    running = hanging(max_hung=1)
    running.deliver()
    item = running.hang()
    running.link.lose()
    wire = running.connect()
    assert wire.channel.consumers == {}
    running.end_late(item)
    assert len(wire.channel.consumers) == 1


def test_a_suspect_is_not_handled_alone_beside_too_many_that_hang() -> None:
    running = hanging(max_hung=1)
    running.deliver()
    running.hang()
    running.isolation.ask(running.engine)
    running.run()
    running.isolation.done(running.engine)
    running.run()
    assert running.consuming.consumers == {}


def test_a_handler_can_ask_whether_its_time_is_up() -> None:
    running = hanging()
    running.deliver()
    item = running.begin()
    assert item.delivery is not None
    message = running.engine.message_of(item.delivery, item)
    assert not message.timed_out
    running.workers.overdue.append((item, "a stack"))
    running.link.sleep(1)
    assert message.timed_out


def test_a_process_that_a_handler_has_forked_is_ended(
    running: RunningEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended: list[BaseException | None] = []
    monkeypatch.setattr(engine, "end_child", ended.append)
    running.engine.check_process(FAILURE)
    assert ended == []
    monkeypatch.setattr(os, "getpid", lambda: 1)
    running.engine.check_process(FAILURE)
    assert ended == [FAILURE]


def test_a_handler_that_was_ended_from_outside_leaves_its_delivery(running: RunningEngine) -> None:
    running.consuming.deliver()
    item = running.begin()
    running.engine.leave(item)
    running.end(item)
    assert running.consuming.settled == []


# --- a copy that is not taken ---------------------------------------------------------------------


def refuse(channel: FakeChannel) -> None:
    """Nacks the last publish."""
    channel.nack(channel.published[-1].tag)


def give_back(channel: FakeChannel) -> None:
    """Returns the last publish, and confirms it."""
    channel.return_(channel.published[-1].tag)
    channel.ack(channel.published[-1].tag)


NOT_TAKEN = pytest.mark.parametrize(
    "answer", [refuse, give_back, FakeChannel.close_by_broker], ids=["nack", "return", "close"]
)


@NOT_TAKEN
def test_what_could_not_be_set_aside_stays_unsettled_and_is_tried_again(
    running: RunningEngine, answer: Callable[[FakeChannel], None]
) -> None:
    running.consuming.deliver()
    running.handle(GIVE_UP)
    answer(running.publishing)
    assert running.link.wire is not None
    running.link.wire.answer_all()
    assert running.consuming.settled == []
    running.link.sleep(1)
    running.publishing.ack(running.publishing.published[-1].tag)
    assert running.consuming.settled == ACKED
    assert len(running.notes) == 1


@NOT_TAKEN
def test_it_is_declared_again_where_that_may_help(answer: Callable[[FakeChannel], None]) -> None:
    declared = threading.Event()
    running = RunningEngine(declare=lambda _, __: declared.set())
    running.connect()
    running.consuming.deliver()
    running.handle(GIVE_UP)
    answer(running.publishing)
    assert declared.wait(0 if answer is refuse else 60) == (answer is not refuse)


def test_what_is_too_large_for_the_failed_queue_goes_to_its_retry_queue(
    running: RunningEngine,
) -> None:
    running.consuming.deliver()
    running.handle(GIVE_UP)
    running.publishing.close_by_broker(406, "PRECONDITION_FAILED - larger than 16 MB")
    assert running.consuming.settled == REJECTED
    assert running.notes == []


def test_what_a_forbidden_ladder_does_not_take_goes_to_the_retry_queue() -> None:
    running = RunningEngine(DELAYED)
    running.connect()
    running.consuming.deliver()
    running.handle(FAILURE)
    assert running.publishing.published[0].exchange.startswith("master.delay")
    running.publishing.close_by_broker(403, "ACCESS_REFUSED - write access refused")
    assert running.consuming.settled == REJECTED


def test_a_ladder_that_lacks_a_level_is_declared_before_a_message_is_sent_to_it() -> None:
    levels: list[int] = []
    may_declare = threading.Event()

    def declare(count: int, _: bool) -> None:
        may_declare.wait(60)
        levels.append(count)

    running = RunningEngine(declare=declare)
    running.connect()
    running.consuming.deliver()
    running.handle(Retry(after=timedelta(days=400)))
    assert not running.has_published
    may_declare.set()
    while not running.link.calls:  # a thread declares, and then calls
        time.sleep(0.001)
    running.link.run()
    (copy,) = running.publishing.published
    assert copy.exchange == f"master.delay.{levels[0] - 1}"


# --- the connection is lost -----------------------------------------------------------------------


@pytest.mark.parametrize("error", [None, FAILURE, GIVE_UP], ids=["success", "failure", "give up"])
def test_a_verdict_that_comes_after_its_connection_was_lost_settles_nothing(
    running: RunningEngine, error: BaseException | None
) -> None:
    lost = running.consuming
    lost.deliver()
    item = running.begin()
    running.link.lose()
    running.connect()
    running.consuming.deliver(redelivered=True)
    running.end(item, error)
    assert (lost.settled, running.consuming.settled, running.notes) == ([], [], [])
    assert not running.has_published


def test_what_waited_for_a_handler_is_dropped_with_its_connection(running: RunningEngine) -> None:
    running.consuming.deliver()
    running.link.lose()
    assert not running.workers.waiting


def test_a_copy_that_was_not_confirmed_is_not_sent_again_on_the_next_connection(
    running: RunningEngine,
) -> None:
    running.consuming.deliver()
    running.handle(GIVE_UP)
    running.link.lose()
    running.connect()
    assert running.publishing.published == []
    running.consuming.deliver(redelivered=True)
    running.handle(GIVE_UP)
    running.publishing.ack(1)
    assert running.consuming.settled == ACKED


def test_a_retry_of_a_move_does_not_outlive_its_connection(running: RunningEngine) -> None:
    running.consuming.deliver()
    running.handle(GIVE_UP)
    refuse(running.publishing)
    running.link.lose()
    running.connect()
    running.link.sleep(60)
    assert len(running.publishing.published) == 1


# --- the connection that publishes ----------------------------------------------------------------


@pytest.mark.parametrize("error", [None, FAILURE], ids=["success", "failure"])
def test_what_needs_no_publish_opens_no_connection_for_one(
    running: RunningEngine, error: BaseException | None
) -> None:
    running.consuming.deliver()
    running.handle(error)
    assert not running.has_published


def test_what_is_moved_passes_no_connection_that_is_consumed_on(running: RunningEngine) -> None:
    running.consuming.deliver()
    running.handle(GIVE_UP)
    assert running.publishing.published
    assert running.link.wire is not None
    assert running.link.wire.channels == [running.consuming]


def test_while_the_broker_takes_no_messages_what_succeeds_is_acked_and_what_is_moved_waits(
    running: RunningEngine,
) -> None:
    running.deliver()
    running.handle(GIVE_UP)
    running.publishing.ack(1)
    blocked = running.moves_links[-1].wire
    assert blocked is not None
    blocked.block()
    running.deliver()
    running.deliver()
    running.handle(GIVE_UP)
    running.handle()
    assert running.consuming.settled == [*ACKED, Settling("ack", (3,))]
    assert len(running.publishing.published) == 1
    blocked.unblock()
    running.publishing.ack(2)
    assert running.consuming.settled[2:] == [Settling("ack", (2,))]


def test_what_is_moved_as_that_connection_is_lost_is_moved_on_the_next(
    running: RunningEngine,
) -> None:
    running.consuming.deliver()
    running.handle(GIVE_UP)
    assert running.publishing.published
    running.moves_links[-1].lose()
    running.link.run()
    running.link.sleep(1)
    running.publishing.ack(1)
    assert running.consuming.settled == ACKED


def test_where_that_connection_can_not_be_had_it_is_tried_again(running: RunningEngine) -> None:
    running.consuming.deliver()
    running.handle(GIVE_UP)
    running.moves_links[-1].give_up(LOST)
    running.link.run()
    running.link.sleep(1)
    assert len(running.moves_links) == 2
    running.publishing.ack(1)
    assert running.consuming.settled == ACKED


# --- the consumer is refused ----------------------------------------------------------------------


def test_a_queue_that_can_not_be_consumed_at_all_ends_the_run_with_the_reason() -> None:
    running = RunningEngine()
    wire = running.link.connect()
    wire.answer()
    wire.answer()
    wire.channels[0].close_by_broker(403, "ACCESS_REFUSED - access to queue 'orders' refused")
    assert isinstance(running.engine.failure, PermissionDenied)
    assert running.ends == 1


@pytest.mark.parametrize("how", [FakeChannel.close_by_broker, FakeChannel.cancel_by_broker])
@pytest.mark.parametrize("deliveries", [0, 1])
def test_a_consumer_that_is_ended_later_begins_again_on_a_new_connection(
    running: RunningEngine, how: Callable[[FakeChannel], None], deliveries: int
) -> None:
    """Whether or not a message came meanwhile."""
    for _ in range(deliveries):
        running.consuming.deliver()
    how(running.consuming)
    assert running.engine.failure is None
    assert len(running.link.reconnects) == 1
    assert not running.engine.consuming
    running.connect()
    assert running.engine.consuming


def test_what_was_not_begun_is_returned_uncounted_where_the_broker_would_count_it() -> None:
    running = RunningEngine(HELD_BACK)
    running.connect()
    channel = running.consuming
    for _ in range(3):
        running.deliver()
    item = running.begin()
    channel.cancel_by_broker()
    assert channel.settled == [
        Settling("nack", (2,), requeue=True),
        Settling("nack", (3,), requeue=True),
    ]
    running.end(item)
    assert len(running.link.reconnects) == 1
    running.connect()
    assert running.engine.consuming


# --- stopping -------------------------------------------------------------------------------------


def test_a_stop_with_nothing_in_hand_ends_once_no_more_can_come(running: RunningEngine) -> None:
    running.stop()
    assert not running.engine.consuming
    assert running.ends == 0
    assert running.link.wire is not None
    running.link.wire.answer_all()
    assert running.ends == 1
    assert running.workers.stopped


def test_a_stop_waits_for_the_handler_that_runs_and_returns_what_was_not_begun(
    running: RunningEngine,
) -> None:
    channel = running.consuming
    running.deliver()
    running.deliver()
    item = running.begin()
    running.stop()
    assert running.link.wire is not None
    channel.deliver()
    running.link.wire.answer_all()
    assert running.ends == 0
    running.end(item)
    assert channel.settled == [Settling("ack", (1,)), Settling("nack", (2, 3), requeue=True)]
    assert running.ends == 1


def test_what_a_free_thread_takes_before_the_connection_hears_of_a_stop_is_not_begun(
    running: RunningEngine,
) -> None:
    channel = running.consuming
    running.deliver()
    item = running.workers.waiting.popleft()
    assert not running.engine.skips(item)
    running.engine.stop()
    assert running.engine.skips(item)
    running.run()
    assert channel.settled == [Settling("nack", (1,), requeue=True)]
    assert running.ends == 1


def test_nothing_is_returned_while_it_could_be_delivered_here_again(
    running: RunningEngine,
) -> None:
    channel = running.consuming
    running.deliver()
    running.deliver()
    item = running.begin()
    running.stop()
    running.end(item)
    assert channel.settled == ACKED
    assert running.link.wire is not None
    running.link.wire.answer_all()
    assert channel.settled[1:] == [Settling("nack", (2,), requeue=True)]


def test_a_stop_waits_for_the_confirm_of_a_copy(running: RunningEngine) -> None:
    channel = running.consuming
    channel.deliver()
    running.handle(GIVE_UP)
    running.stop()
    assert running.link.wire is not None
    running.link.wire.answer_all()
    assert running.ends == 0
    running.publishing.ack(1)
    assert channel.settled == ACKED
    assert running.ends == 1


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_stop_returns_what_can_not_be_moved(running: RunningEngine, when: str) -> None:
    channel = running.consuming
    channel.deliver()
    running.handle(GIVE_UP)
    publishing = running.publishing
    if when == "before":
        refuse(publishing)
    running.stop()
    if when == "after":
        refuse(publishing)
    assert running.link.wire is not None
    running.link.wire.answer_all()
    assert channel.settled == RETURNED
    assert running.ends == 1


def test_a_stop_before_there_is_a_connection_ends_at_once() -> None:
    running = RunningEngine()
    running.stop()
    assert running.ends == 1


@pytest.mark.parametrize("answers", [0, 1, 2, 3])
def test_a_stop_while_it_begins_to_consume_ends(answers: int) -> None:
    running = RunningEngine()
    wire = running.link.connect()
    for _ in range(answers):
        wire.answer()
    running.stop()
    wire.answer_all()
    assert running.ends == 1


def test_a_stop_without_a_connection_waits_for_the_handler_that_runs(
    running: RunningEngine,
) -> None:
    running.consuming.deliver()
    item = running.begin()
    running.link.lose()
    running.stop()
    assert running.ends == 0
    running.end(item)
    assert running.ends == 1


def test_a_connection_that_is_lost_in_a_stop_ends_it(running: RunningEngine) -> None:
    running.stop()
    running.link.lose(LOST)
    assert running.ends == 1


def test_a_connection_that_comes_back_in_a_stop_consumes_no_more(running: RunningEngine) -> None:
    running.consuming.deliver()
    item = running.begin()
    running.stop()
    running.link.lose()
    wire = running.link.connect()
    assert not wire.asked
    running.end(item)
    assert running.ends == 1


def test_a_channel_that_the_broker_closes_in_a_stop_ends_it(running: RunningEngine) -> None:
    """Nothing can come on it any more, and nothing that came can be settled."""
    running.stop()
    running.consuming.close_by_broker(406, "PRECONDITION_FAILED - timeout")
    assert running.ends == 1


def test_a_channel_that_the_broker_closes_in_a_stop_is_no_reason_to_leave_a_handler(
    running: RunningEngine,
) -> None:
    running.consuming.deliver()
    item = running.begin()
    running.stop()
    running.consuming.close_by_broker(406, "PRECONDITION_FAILED - timeout")
    assert running.ends == 0
    running.end(item)
    assert running.ends == 1


def test_at_the_end_of_the_grace_period_a_handler_is_left(running: RunningEngine) -> None:
    channel = running.consuming
    channel.deliver()
    running.begin()
    running.stop()
    running.link.sleep(GRACE - 1)
    assert running.ends == 0
    running.link.sleep(1)
    assert running.ends == 1
    assert channel.settled == []


def test_at_the_end_of_the_grace_period_what_the_broker_would_count_is_returned_uncounted() -> None:
    running = RunningEngine(HELD_BACK)
    running.connect()
    channel = running.consuming
    running.deliver()
    running.deliver()
    running.handle()
    item = running.begin()
    running.stop()
    running.link.sleep(GRACE)
    assert channel.settled == [Settling("ack", (1,)), Settling("nack", (2,), requeue=True)]
    running.end(item)
    assert len(channel.settled) == 2
    assert running.ends == 1


def test_a_second_stop_does_nothing(running: RunningEngine) -> None:
    running.stop()
    running.stop()
    assert running.link.wire is not None
    running.link.wire.answer_all()
    assert running.ends == 1


def test_an_ordered_queue_is_left_by_a_dropped_connection_once_every_ack_is_in() -> None:
    running = RunningEngine(ORDERED, prefetch=1, concurrency=1)
    wire = running.connect()
    channel = running.consuming
    channel.deliver()
    item = running.begin()
    running.stop()
    assert len(channel.consumers) == 1
    running.end(item)
    assert channel.settled == ACKED
    assert running.ends == 0
    wire.answer_all()
    assert running.ends == 1
    assert running.link.aborted


# --- order ----------------------------------------------------------------------------------------


def by_key(prefetch: int = 5) -> RunningEngine:
    """A run whose messages are ordered by the first byte of their body."""
    running = RunningEngine(
        ORDERED, prefetch=prefetch, order_by=lambda message: message.body[:1].decode() or None
    )
    running.connect()
    return running


def waiting(running: RunningEngine) -> list[bytes]:
    """The bodies of what is to be handled now."""
    return [item.received.body for item in running.workers.waiting]


def test_a_key_that_waits_for_a_retry_holds_up_no_other() -> None:
    running = by_key()
    for body in (b"a1", b"b1", b"a2", b"b2"):
        running.deliver(body)
    assert waiting(running) == [b"a1", b"b1"]
    running.handle(FAILURE)
    running.handle()
    assert waiting(running) == [b"b2"]
    assert [(one.key, one.behind) for one in running.engine.blocked] == [("a", 1)]
    running.link.sleep(ORDERED.retry.delay.total_seconds())
    running.deliver(b"a1", crashes=1)
    running.handle()
    assert waiting(running) == [b"a1"]
    running.handle()
    assert waiting(running) == [b"a2"]
    assert running.engine.blocked == []


def test_what_waits_behind_a_message_that_is_set_aside_goes_on_once_it_is_there() -> None:
    running = by_key()
    running.deliver(b"a1")
    running.deliver(b"a2")
    running.handle(GIVE_UP)
    channel = running.publishing
    assert waiting(running) == []
    channel.ack(1)
    running.run()
    assert waiting(running) == [b"a2"]


def test_what_comes_back_is_handled_once_nothing_more_comes_and_the_broker_has_answered() -> None:
    running = by_key()
    running.deliver(b"a2", crashes=1)
    running.link.sleep(0.9)
    running.deliver(b"a1", crashes=2)
    running.link.sleep(0.9)
    running.link.run()
    assert waiting(running) == []
    running.link.sleep(0.2)
    running.link.run()
    assert waiting(running) == []
    running.run()
    assert waiting(running) == [b"a1"]


def test_a_message_without_a_key_is_counted_and_told_of_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    running = by_key()
    running.deliver(b"")
    running.deliver(b"")
    assert waiting(running) == [b""]
    assert running.dropped.keyless == 2
    assert caplog.text.count("has no key to be ordered by") == 1


def test_what_waits_in_a_lane_is_left_where_it_is_when_the_run_stops() -> None:
    running = by_key()
    running.deliver(b"a1")
    running.deliver(b"a2")
    item = running.begin()
    running.stop()
    running.end(item)
    running.run()
    assert (running.ends, running.link.aborted) == (1, True)
    assert running.workers.waiting == deque()


def test_a_lost_connection_forgets_what_waited() -> None:
    running = by_key()
    running.deliver(b"a1")
    running.deliver(b"a2")
    item = running.begin()
    running.link.lose()
    running.connect()
    running.end(item)
    running.deliver(b"b1")
    assert waiting(running) == [b"b1"]


def test_a_suspect_of_another_subscriber_does_not_wait_for_what_waits_in_a_lane() -> None:
    isolation = Isolation()
    running = RunningEngine(ORDERED, isolation=isolation)
    running.connect()
    running.deliver(b"a1")
    running.deliver(b"a2")
    item = running.begin()
    other = RunningEngine(isolation=isolation)
    other.connect()
    other.deliver(b"suspect", crashes=1)
    running.run()
    other.run()
    assert waiting(other) == []
    running.end(item)
    other.run()
    assert waiting(other) == [b"suspect"]


def test_a_prefetch_that_is_full_of_what_waits_is_told_of(
    caplog: pytest.LogCaptureFixture,
) -> None:
    running = by_key(prefetch=2)
    running.deliver(b"a1")
    running.deliver(b"a2")
    running.handle(FAILURE)
    assert "1 keys wait for a retry" in caplog.text


def test_what_redrive_can_not_decide_about_keeps_its_place(monkeypatch: pytest.MonkeyPatch) -> None:
    running = by_key()
    running.deliver(b"a1")
    running.deliver(b"a2")
    item = running.begin()
    monkeypatch.setattr(item.decider, "success", lambda: 1 // 0)
    running.end(item)
    assert running.consuming.settled == []
    assert waiting(running) == []


# --- parked keys ----------------------------------------------------------------------------------

PARKING = Subscription("orders", ["order.*"], ordered=True, when_given_up="park")


class ParkingEngine(RunningEngine):
    """A run that parks, whose messages are ordered by the first byte of their body."""

    def __init__(self) -> None:
        super().__init__(PARKING, order_by=lambda message: message.body[:1].decode())
        self.connect()

    def append(self) -> Published:
        """Confirms what it appends to its log, and returns it."""
        publishing = self.publishing
        entry = publishing.published[-1]
        publishing.ack(entry.tag)
        self.run()
        return entry

    def read_log(self, *entries: bytes) -> None:
        """Has its log deliver these entries, and then its fence."""
        fence = self.append()
        assert self.link.wire is not None
        log = self.link.wire.channel
        assert list(log.consumers.values()) == ["orders@parked"]
        for entry in (*entries, fence.body):
            log.deliver_entry(entry)
        self.run()
        self.append()


def test_nothing_is_handled_before_it_is_known_what_is_parked() -> None:
    running = ParkingEngine()
    running.deliver(b"a1")
    running.deliver(b"b1")
    assert waiting(running) == []
    running.read_log(b'{"run": "0", "fence": true}', b'{"run": "0", "keys": {"a": [5, 5]}}')
    assert waiting(running) == [b"a1", b"b1"]
    running.begin()
    running.run()
    assert running.append().body.startswith(b'{"run": ')
    assert running.append().exchange == "master.failed"
    assert [type(note) for note in running.notes] == [MoveToFailed]
    running.handle()
    assert isinstance(running.notes[-1], Ack)


def test_a_message_is_given_up_only_after_the_log_says_so() -> None:
    running = ParkingEngine()
    running.deliver(b"a1")
    running.deliver(b"a2")
    running.read_log()
    running.handle(GIVE_UP)
    publishing = running.publishing
    assert publishing.published[-1].routing_key == "orders@parked"
    publishing.nack(publishing.published[-1].tag)
    running.run()
    assert waiting(running) == []
    running.link.sleep(1)
    running.run()
    assert running.append().routing_key == "orders@parked"
    assert running.append().exchange == "master.failed"
    assert waiting(running) == [b"a2"]
    assert running.engine.order_counts.parked == 1


def test_a_log_that_can_not_be_read_has_the_run_connect_again() -> None:
    running = ParkingEngine()
    running.deliver(b"a1")
    running.append()
    assert running.link.wire is not None
    running.link.wire.channel.close_by_broker()
    assert running.link.reconnects
    assert waiting(running) == []


def test_a_run_that_is_aborted_ends() -> None:
    running = RunningEngine()
    running.connect()
    running.engine.abort()
    assert running.ends == 1


def test_a_connection_that_can_not_be_had_is_the_failure_of_the_run() -> None:
    running = RunningEngine()
    error = ConfigurationError("a file is missing")
    running.engine.gave_up(error)
    assert running.engine.failure is error


# --- preparing ------------------------------------------------------------------------------------


def test_the_topology_is_declared_before_each_connection_but_not_in_a_stop() -> None:
    declared: list[tuple[int, bool]] = []
    running = RunningEngine(declare=lambda levels, again: declared.append((levels, again)))
    engine: Engine = running.engine
    engine.prepare()
    engine.prepare()
    running.stop()
    engine.prepare()
    assert declared == [(0, False), (0, True)]
