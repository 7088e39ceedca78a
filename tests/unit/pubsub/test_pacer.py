"""Messages begin at most so often: in one process, and in all of them together."""

import pytest

from redrive.pubsub.consumer_count import EVERY
from redrive.pubsub.pacer import LONGEST_HOLD
from unit.pubsub.running_engine import FAILURE, RunningEngine
from unit.pubsub.test_control_follower import COUNTS_NONE, Followed


def limited(rate: float, **options: object) -> RunningEngine:
    running = RunningEngine(rate=rate, **options)  # type: ignore[arg-type]
    running.connect(COUNTS_NONE)
    return running


def begun_in(
    running: RunningEngine, seconds: float, *, handlers_end: bool = True, more: bool = True
) -> int:
    """How many messages begin in this time, if there are always more."""
    count = 0
    until = running.link.now + seconds
    while running.link.now < until - 1e-9:
        channel = running.consuming
        while more and channel.consumers and len(channel.unsettled) < channel.prefetch:
            running.deliver()
            running.run()
        while running.workers.waiting:
            count += 1
            item = running.begin()
            if handlers_end:
                running.end(item)
                running.run()
        running.link.sleep(0.01)
        running.run()
    return count


@pytest.mark.parametrize("rate", [2, 10, 50])
def test_no_more_begin_than_the_rate_allows_in_any_second(rate: float) -> None:
    running = limited(rate)
    begun_in(running, 1)
    for _ in range(5):
        assert 0.8 * rate <= begun_in(running, 1) <= 1.05 * rate + 1
    assert begun_in(running, 20) == pytest.approx(20 * rate, rel=0.05, abs=1)


def test_time_in_which_nothing_came_is_not_made_up_for() -> None:
    running = limited(10)
    begun_in(running, 1)
    begun_in(running, 60, more=False)
    assert begun_in(running, 1) <= 12


def test_messages_that_wait_for_a_busy_handler_do_not_begin_in_a_burst_later() -> None:
    running = limited(10, concurrency=2)
    assert begun_in(running, 5, handlers_end=False) == 2
    for item in [one for one in running.engine._open if one.ran]:
        running.end(item)
    assert begun_in(running, 1) <= 12


def test_a_failed_message_has_used_its_turn() -> None:
    running = limited(1)
    running.deliver()
    running.deliver()
    running.handle(FAILURE)
    assert not running.workers.waiting
    running.link.sleep(1)
    assert len(running.workers.waiting) == 1


def test_where_turns_are_rare_no_message_is_held_in_between() -> None:
    running = limited(1 / (10 * LONGEST_HOLD))
    running.deliver()
    assert len(running.workers.waiting) == 1
    running.run()
    assert not running.consuming.consumers
    assert running.engine.consuming  # ready
    running.handle()
    running.link.sleep(10 * LONGEST_HOLD)
    running.run()
    assert running.consuming.consumers


def test_a_rate_for_all_is_divided_by_who_consumes() -> None:
    running = Followed()
    running.connect_and_know()
    assert running.link.wire is not None
    running.link.wire.workers = 4
    running.write("pause", rate=40.0)
    running.run()
    assert running.engine.paused is None
    begun_in(running, 1)
    assert begun_in(running, 10) == pytest.approx(100, rel=0.05)
    running.link.wire.workers = 2
    begun_in(running, EVERY)
    assert begun_in(running, 10) == pytest.approx(200, rel=0.05)
    running.write("resume")
    assert begun_in(running, 1) > 400


def test_the_lower_of_its_own_rate_and_its_share_holds() -> None:
    running = Followed(rate=5)
    running.connect_and_know()
    running.write("pause", rate=40.0)
    running.run()
    assert begun_in(running, 10) == pytest.approx(50, abs=3)


def test_nothing_begins_before_it_is_known_how_many_share_the_rate() -> None:
    running = Followed()
    running.connect(COUNTS_NONE)
    running.write("pause", rate=1000.0)
    wire = running.link.wire
    assert wire is not None
    running.link.sleep(0.1)
    running.link.run()
    wire.answer_all()
    assert begun_in(running, 1) <= 1050 + 1


def test_a_new_connection_counts_anew() -> None:
    running = Followed()
    running.connect_and_know()
    running.write("pause", rate=10.0)
    running.link.lose()
    wire = running.connect(COUNTS_NONE)
    wire.workers = 2
    running.run()
    begun_in(running, EVERY)
    assert begun_in(running, 10) == pytest.approx(50, abs=3)


def test_a_count_that_is_refused_is_said_once_and_asked_for_again(
    caplog: pytest.LogCaptureFixture,
) -> None:
    running = Followed()
    running.connect_and_know()
    wire = running.link.wire
    assert wire is not None
    running.write("pause", rate=10.0)
    begun_in(running, 2)
    for _ in range(2):
        wire.channels[-1].close_by_broker(403, "ACCESS_REFUSED")
        assert begun_in(running, 12) == pytest.approx(120, abs=5)
    assert caplog.text.count("its share of the rate is not known") == 1
