"""What may have killed a worker is handled alone: its process has nothing else in hand."""

import pytest

from redrive.pubsub.isolation import Isolation
from redrive.topology.broker_version import BrokerVersion
from unit.pubsub.fake_wire import Settling, bodies_of
from unit.pubsub.running_engine import (
    BROADCAST,
    FAILURE,
    HELD_BACK,
    ORDERED,
    RunningEngine,
    properties,
)

COUNTS_RETURNS, COUNTS_NONE = BrokerVersion(4, 0, 5), BrokerVersion(4, 3, 6)
A_MINUTE = 60


def running_in(
    isolation: Isolation, version: BrokerVersion = COUNTS_RETURNS, **options: object
) -> RunningEngine:
    engine = RunningEngine(isolation=isolation, **options)  # type: ignore[arg-type]
    engine.connect(version)
    return engine


def settle_down(*engines: RunningEngine) -> None:
    """Has all that was to be done on any thread be done."""
    while any(one.link.calls or (one.link.wire and one.link.wire.asked) for one in engines):
        for one in engines:
            one.run()


def waiting(engine: RunningEngine) -> list[bytes]:
    """What waits for a handler to begin with it."""
    return bodies_of(item.received for item in engine.workers.waiting)


def held(engine: RunningEngine) -> list[bytes]:
    """What the engine has in hand."""
    return bodies_of(engine.consuming.unsettled.values())


@pytest.fixture
def running() -> RunningEngine:
    return running_in(Isolation())


@pytest.fixture
def pair() -> tuple[RunningEngine, RunningEngine]:
    """Two subscribers of one process."""
    isolation = Isolation()
    return running_in(isolation), running_in(isolation)


def test_a_suspect_that_comes_first_is_handled_with_nothing_behind_it(
    running: RunningEngine,
) -> None:
    running.deliver(b"suspect", crashes=1)
    settle_down(running)
    assert waiting(running) == [b"suspect"]
    assert running.consuming.prefetch == 1
    assert len(running.consuming.priorities) == 1, "it consumed anew, and needed not to"


def test_suspects_come_one_after_the_other_and_then_everything(running: RunningEngine) -> None:
    for number in range(3):
        running.deliver(b"%d" % number, crashes=1)
        settle_down(running)
        running.handle()
        settle_down(running)
    assert running.consuming.prefetch == 1
    running.deliver(b"good")
    assert running.consuming.prefetch == 5


def test_a_suspect_waits_for_what_runs_and_no_more_comes_meanwhile(running: RunningEngine) -> None:
    running.deliver(b"good")
    item = running.begin()
    running.deliver(b"suspect", crashes=1)
    settle_down(running)
    assert running.consuming.consumers == {}
    assert waiting(running) == []
    running.end(item)
    settle_down(running)
    assert held(running) == waiting(running) == [b"suspect"]


def test_it_goes_on_one_at_a_time_until_one_comes_that_is_no_suspect(
    running: RunningEngine,
) -> None:
    running.deliver(b"good")
    item = running.begin()
    running.deliver(b"suspect", crashes=1)
    running.end(item)
    settle_down(running)
    running.handle(FAILURE)
    settle_down(running)
    assert len(running.consuming.consumers) == 1
    assert running.consuming.prefetch == 1
    running.deliver(b"good, too")
    assert running.consuming.prefetch == 5


def test_it_is_ready_while_a_suspect_is_handled(running: RunningEngine) -> None:
    running.deliver(b"good")
    running.deliver(b"suspect", crashes=1)
    settle_down(running)
    assert running.engine.consuming
    running.handle()
    settle_down(running)
    running.handle()
    assert running.engine.consuming


def test_what_comes_until_the_consumer_is_cancelled_is_handled_before(
    running: RunningEngine,
) -> None:
    running.deliver(b"good")
    running.handle()
    running.consuming.deliver(
        b"suspect", redelivered=True, properties=properties(x_delivery_count=1)
    )
    running.link.run()
    running.consuming.deliver(b"late")
    settle_down(running)
    running.run()
    assert waiting(running) == [b"late"]
    running.handle()
    settle_down(running)
    assert waiting(running) == [b"suspect"]


def test_where_returns_are_not_counted_what_was_not_begun_goes_back() -> None:
    running = running_in(Isolation(), COUNTS_NONE)
    running.deliver(b"good")
    item = running.begin()
    running.deliver(b"not begun")
    running.deliver(b"suspect", crashes=1)
    running.deliver(b"another", crashes=1)
    settle_down(running)
    assert running.consuming.settled == [
        Settling("nack", (4,), requeue=True),
        Settling("nack", (2,), requeue=True),
    ]
    running.end(item)
    settle_down(running)
    assert held(running) == waiting(running) == [b"suspect"]


def test_where_returns_are_counted_other_suspects_go_to_the_end_of_the_queue_with_their_count(
    running: RunningEngine,
) -> None:
    running.deliver(b"good")
    running.handle()
    running.deliver(b"suspect", crashes=1)
    running.deliver(b"another", crashes=2)
    settle_down(running)
    (copy,) = running.publishing.published
    assert (copy.exchange, copy.routing_key, copy.body) == ("", "orders", b"another")
    assert waiting(running) == [], "the copy is not confirmed"
    running.publishing.ack(1)
    settle_down(running)
    assert held(running) == waiting(running) == [b"suspect"]
    running.handle()
    settle_down(running)
    running.consuming.deliver(
        b"another", exchange="", routing_key="orders", properties=copy.properties
    )
    settle_down(running)
    item = running.begin()
    running.end(item, FAILURE)
    assert running.consuming.settled[-1] == Settling("reject", (4,))


def test_a_suspect_whose_copy_is_refused_is_handled_alone_where_it_is(
    running: RunningEngine,
) -> None:
    running.deliver(b"good")
    running.handle()
    running.deliver(b"suspect", crashes=1)
    running.deliver(b"another", crashes=1)
    settle_down(running)
    running.publishing.nack(1)
    settle_down(running)
    assert waiting(running) == [b"suspect"]
    running.handle()
    settle_down(running)
    assert waiting(running) == [b"another"]


def test_other_subscribers_of_the_process_finish_and_wait(
    pair: tuple[RunningEngine, RunningEngine],
) -> None:
    running, other = pair
    other.deliver(b"good")
    item = other.begin()
    running.deliver(b"suspect", crashes=1)
    settle_down(*pair)
    assert waiting(running) == []
    assert other.consuming.consumers == {}
    other.end(item)
    settle_down(*pair)
    assert waiting(running) == [b"suspect"]
    running.handle()
    settle_down(*pair)
    assert len(other.consuming.consumers) == 1
    assert other.engine.consuming


def test_suspects_of_two_subscribers_have_their_turns(
    pair: tuple[RunningEngine, RunningEngine],
) -> None:
    first, second = pair
    first.deliver(b"suspect", crashes=1)
    second.deliver(b"suspect", crashes=1)
    settle_down(*pair)
    second.publishing.ack(1)
    settle_down(*pair)
    assert (waiting(first), waiting(second)) == ([b"suspect"], [])
    assert second.consuming.consumers == {}, "one more would come in place of its suspect"
    first.handle()
    settle_down(*pair)
    second.deliver(b"suspect", crashes=1)
    settle_down(*pair)
    assert waiting(second) == [b"suspect"]


@pytest.mark.parametrize("subscription", [ORDERED, BROADCAST], ids=["ordered", "broadcast"])
def test_what_may_not_leave_its_queue_keeps_what_comes_until_the_suspect_is_done(
    subscription: object,
) -> None:
    isolation = Isolation()
    running = running_in(isolation)
    other = running_in(isolation, subscription=subscription, prefetch=1, concurrency=1)
    running.deliver(b"suspect", crashes=1)
    settle_down(running, other)
    other.deliver(b"good")
    assert (waiting(running), waiting(other)) == ([b"suspect"], [])
    running.handle()
    settle_down(running, other)
    assert waiting(other) == [b"good"]


def test_a_subscriber_that_begins_meanwhile_waits(running: RunningEngine) -> None:
    running.deliver(b"suspect", crashes=1)
    settle_down(running)
    other = running_in(running.isolation)
    settle_down(running, other)
    assert other.link.wire is not None
    assert other.link.wire.channel.consumers == {}
    running.handle()
    settle_down(running, other)
    assert len(other.consuming.consumers) == 1


@pytest.mark.parametrize("whose", ["the other's", "its own"])
def test_a_connection_that_is_lost_keeps_nobody_waiting(
    pair: tuple[RunningEngine, RunningEngine], whose: str
) -> None:
    running, other = pair
    other.deliver(b"good")
    item = other.begin()
    running.deliver(b"suspect", crashes=1)
    settle_down(*pair)
    lost = other if whose == "the other's" else running
    lost.link.lose()
    lost.connect()
    settle_down(*pair)
    if lost is running:
        assert len(other.consuming.consumers) == 1
        running.deliver(b"suspect", crashes=1)
        settle_down(*pair)
    other.end(item)
    settle_down(*pair)
    assert waiting(running) == [b"suspect"]


def test_a_connection_that_is_lost_while_a_suspect_runs_keeps_the_others_until_it_has_ended(
    pair: tuple[RunningEngine, RunningEngine],
) -> None:
    running, other = pair
    running.deliver(b"suspect", crashes=1)
    settle_down(*pair)
    item = running.begin()
    running.link.lose()
    running.connect()
    settle_down(*pair)
    assert other.consuming.consumers == {}
    running.end(item)
    settle_down(*pair)
    assert len(other.consuming.consumers) == len(running.consuming.consumers) == 1


def test_a_subscriber_that_ends_keeps_nobody_waiting(
    pair: tuple[RunningEngine, RunningEngine],
) -> None:
    running, other = pair
    other.deliver(b"good")
    other.begin()
    running.deliver(b"suspect", crashes=1)
    settle_down(*pair)
    other.engine.abort()
    settle_down(*pair)
    assert waiting(running) == [b"suspect"]


@pytest.mark.parametrize("begun", [False, True])
def test_a_stop_lets_the_others_go_on(
    pair: tuple[RunningEngine, RunningEngine], begun: bool
) -> None:
    running, other = pair
    running.deliver(b"suspect", crashes=1)
    settle_down(*pair)
    item = running.begin() if begun else None
    running.stop()
    if item is not None:
        running.end(item)
    settle_down(*pair)
    assert running.ends == 1
    assert len(other.consuming.consumers) == 1


def test_a_handler_that_does_not_end_is_waited_for_for_a_minute(
    running: RunningEngine, caplog: pytest.LogCaptureFixture
) -> None:
    running.deliver(b"hangs")
    running.begin()
    running.deliver(b"suspect", crashes=1)
    settle_down(running)
    running.link.sleep(A_MINUTE - 1)
    assert waiting(running) == []
    running.link.sleep(1)
    assert waiting(running) == [b"suspect"]
    assert "other handlers of this process are still running after 60 s" in caplog.text


def test_a_handler_that_was_cancelled_ends_the_turn_of_its_message(
    pair: tuple[RunningEngine, RunningEngine],
) -> None:
    running, other = pair
    running.deliver(b"suspect", crashes=1)
    settle_down(*pair)
    running.engine.leave(running.begin())
    settle_down(*pair)
    assert len(other.consuming.consumers) == 1


def test_what_has_crashed_too_often_needs_no_handler_and_is_set_aside_at_once(
    running: RunningEngine,
) -> None:
    running.deliver(b"good")
    running.deliver(b"killer", crashes=5)
    assert waiting(running) == [b"good", b"killer"]


def test_what_the_broker_holds_back_is_a_suspect_once_a_crash_is_certain() -> None:
    isolation = Isolation()
    running = running_in(isolation, COUNTS_NONE, subscription=HELD_BACK)
    running.deliver(b"retried", crashes=3)
    assert running.consuming.prefetch == 5
    running.begin()
    running.deliver(b"crashed", crashes=4)
    assert waiting(running) == []
