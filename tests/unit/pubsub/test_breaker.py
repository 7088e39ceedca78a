"""While something that handlers need is down, a fleet of workers costs messages next to nothing."""

import logging
from collections import Counter
from collections.abc import Callable

import pytest

from redrive.errors import DependencyDown
from redrive.pubsub.breaker import LONGEST_TRY
from redrive.topology.backoff import Exponential
from redrive.topology.broker_version import BrokerVersion
from redrive.topology.model import Subscription
from redrive.topology.outage import Outage
from redrive.topology.policy import RetryPolicy
from unit.pubsub.outage_fleet import TICK, Dependency, Fleet
from unit.pubsub.running_engine import BROADCAST, FAILURE, RunningEngine

V3_10, V4_3 = BrokerVersion(3, 10, 8), BrokerVersion(4, 3, 6)
VERSIONS = [pytest.param(V3_10, id="3.10"), pytest.param(V4_3, id="4.3")]
CAP = 30.0
OUTAGE = Outage(on=ConnectionError, probe=Exponential("1s", cap=CAP), name="billing")
REFUSED = ConnectionError("refused")
BEGIN, SECONDS = 2.0, 300.0
END = BEGIN + SECONDS
Handle = Callable[[str, Fleet], BaseException | None]


@pytest.fixture(autouse=True)
def _quiet(caplog: pytest.LogCaptureFixture) -> None:
    """Fails so often that keeping all log lines would take most of the time."""
    caplog.set_level(logging.CRITICAL, "redrive")


def fleet_of(
    version: BrokerVersion = V4_3,
    outages: list[tuple[Outage, ...]] | None = None,
    rate: float = 500,
    handle: Handle | None = None,
    key_of: Callable[[str], str] = lambda _: "user.create",
) -> Fleet:
    return Fleet(
        Dependency(BEGIN, END),
        outages or [(OUTAGE,)] * 4,
        version,
        rate=rate,
        handle=handle,
        key_of=key_of,
    )


def tries_of(fleet: Fleet) -> list[float]:
    """When the dependency was called and failed, besides what ran when it went down."""
    return [moment for moment in fleet.dependency.failed if moment > BEGIN + 0.5]


@pytest.mark.parametrize("version", VERSIONS)
def test_five_minutes_at_500_a_second_set_nothing_aside_and_cost_the_first_failures_and_the_tries(
    version: BrokerVersion,
) -> None:
    fleet = fleet_of(version)
    fleet.turn(END)
    tries = tries_of(fleet)
    assert fleet.set_aside == []
    assert sum(fleet.attempts.values()) == 4 + len(tries)
    assert max(fleet.attempts.values()) == 1
    for minute in range(5):
        begin = BEGIN + 60 * minute
        assert 0 < fleet.rate_of(tries, begin, begin + 60) <= 1

    # The delays of the four differ by the moment that each of them began to wait, not by more.
    fleet.turn(17)
    before = len(fleet.handled)
    fleet.turn(1)
    capacity = 4 * fleet.concurrency / TICK
    assert 0.95 * capacity <= len(fleet.handled) - before <= 1.05 * capacity
    assert max(Counter(fleet.dependency.calls).values()) <= 4 * fleet.concurrency


def test_without_it_a_small_part_of_that_sets_hundreds_aside() -> None:
    fleet = fleet_of(outages=[()] * 4, rate=3)
    fleet.turn(END)
    assert len(fleet.set_aside) > 500


def test_a_worker_that_starts_meanwhile_costs_one_attempt_more() -> None:
    fleet = fleet_of()
    fleet.turn(END - 150)
    counted, tries = sum(fleet.attempts.values()), len(tries_of(fleet))
    assert counted == 4 + tries
    fleet.replace(0, (OUTAGE,))
    fleet.turn(150)
    first = fleet.concurrency  # handlers that began before the first of them had failed
    assert sum(fleet.attempts.values()) <= counted + 1 + len(tries_of(fleet)) - tries
    assert len(tries_of(fleet)) - tries <= 4 * 5 + first + 5
    assert fleet.set_aside == []


def test_a_worker_of_an_older_version_beside_it_goes_on_as_it_did() -> None:
    fleet = fleet_of(outages=[(OUTAGE,), ()], rate=5)
    fleet.turn(END + CAP)
    before = len(fleet.handled)
    fleet.turn(10)
    assert fleet.set_aside  # by the one that knows nothing of it
    assert len(fleet.handled) - before >= 40


def test_a_poisonous_kind_of_message_is_set_aside_and_does_not_stop_the_others() -> None:
    def handle(message: str, _: Fleet) -> BaseException | None:
        return REFUSED if message.endswith("7") else None

    fleet = fleet_of(outages=[(OUTAGE,)] * 2, rate=100, handle=handle)
    fleet.turn(200)
    assert all(message.endswith("7") for message in fleet.set_aside)
    assert len(fleet.set_aside) > 700
    assert fleet.rate_of(fleet.handled, 190, 200) > 80


def test_a_poisonous_message_wears_itself_out_and_others_are_tried_meanwhile() -> None:
    def handle(message: str, _: Fleet) -> BaseException | None:
        return REFUSED if message == "7" else None

    fleet = fleet_of(outages=[(OUTAGE,)], rate=1, handle=handle)
    fleet.turn(180)
    assert fleet.set_aside == ["7"]
    assert fleet.attempts["7"] == 3
    assert len(fleet.handled) > 170


def test_a_poisonous_message_that_is_alone_is_set_aside_once_others_are_handled() -> None:
    def handle(message: str, _: Fleet) -> BaseException | None:
        return REFUSED if message == "1" else None

    fleet = Fleet(Dependency(0, 0), [(OUTAGE,)], V4_3, rate=1 / 600, handle=handle)
    fleet.turn(590)
    assert fleet.set_aside == []
    fleet.turn(300)
    assert fleet.set_aside == ["1"]


def test_the_failure_that_finds_an_outage_out_is_not_a_messages_last() -> None:
    without_retries = Subscription("orders", ["order.*"], retry=RetryPolicy(max_retries=0))
    running = RunningEngine(without_retries, outages=(Outage(on=ConnectionError),))
    running.connect()
    running.deliver()
    running.handle()
    running.deliver()
    running.handle(REFUSED)
    (moved,) = running.publishing.published
    assert (moved.exchange, moved.routing_key) == ("", "orders")


def test_an_outage_costs_rare_messages_all_attempts_but_the_last() -> None:
    fleet = Fleet(Dependency(0, 1200), [(OUTAGE,)], V4_3, rate=1 / 60)
    fleet.turn(1200)
    assert fleet.set_aside == []
    assert max(fleet.attempts.values()) == 3
    fleet.turn(2 * CAP)
    assert len(fleet.handled) >= 20


def test_two_dependencies_of_one_subscription_have_delays_of_their_own() -> None:
    mail = Outage(on=TimeoutError, probe="5s", name="mail")

    def handle(message: str, fleet: Fleet) -> BaseException | None:
        if fleet.key_of(message) == "mail":
            return TimeoutError("mail") if fleet.now < 60 else None
        return None

    fleet = fleet_of(
        outages=[(OUTAGE, mail)] * 2,
        rate=10,
        handle=handle,
        key_of=lambda message: "mail" if int(message) % 2 else "bill",
    )
    fleet.turn(60)
    assert {worker.running.engine.down for worker in fleet.workers} <= {"mail", None}
    assert sum(fleet.attempts.values()) <= 2 * 60 / 5 + 2
    fleet.turn(60)
    assert fleet.set_aside == []
    assert fleet.rate_of(fleet.handled, 110, 120) > 8


def test_a_handler_says_itself_what_is_down() -> None:
    def handle(_: str, fleet: Fleet) -> BaseException | None:
        return DependencyDown("503", "billing") if fleet.now < 60 else None

    fleet = fleet_of(outages=[()], rate=10, handle=handle)
    fleet.turn(30)
    assert fleet.workers[0].running.engine.down == "billing"
    fleet.turn(60)
    assert fleet.set_aside == []
    assert fleet.workers[0].running.engine.down is None


# --- one worker, step by step ---------------------------------------------------------------------


def down(**options: object) -> RunningEngine:
    """A worker whose first message has just failed."""
    running = RunningEngine(outages=(Outage(on=ConnectionError, probe="10s"),), **options)  # type: ignore[arg-type]
    running.connect(V4_3)
    running.deliver()
    running.handle(REFUSED)
    running.run()
    return running


def test_a_message_that_comes_meanwhile_is_held_and_tried_after_the_delay() -> None:
    running = down()
    running.deliver(b"next")
    assert not running.workers.waiting
    running.link.sleep(9.9)
    assert not running.workers.waiting
    running.link.sleep(0.2)
    assert [item.received.body for item in running.workers.waiting] == [b"next"]


def test_it_shows_the_broker_what_is_down() -> None:
    running = down()
    assert running.consuming.down[-1] == "ConnectionError"
    running.deliver()
    running.link.sleep(10)
    running.handle()
    running.run()
    running.deliver()
    running.deliver()
    running.handle()
    running.handle()
    for _ in range(4):
        running.deliver()
        running.handle()
    running.run()
    assert running.consuming.down[-1:] == [None]
    assert running.engine.down is None


def test_it_is_ready_meanwhile() -> None:
    assert down().engine.consuming


def test_a_try_that_hangs_gives_way_to_another_message() -> None:
    running = down()
    running.deliver(b"hangs")
    running.link.sleep(10)
    hanging = running.begin()
    running.consuming.prefetch = 2  # another consumer's room: the first still has its message
    running.deliver(b"next")
    running.link.sleep(LONGEST_TRY)
    assert not running.workers.waiting
    running.link.sleep(10)
    assert [item.received.body for item in running.workers.waiting] == [b"next"]
    running.handle()
    assert running.engine._breaker.room == 2
    running.end(hanging)  # much later


def test_a_try_that_runs_into_its_timeout_has_failed() -> None:
    running = down(handler_timeout=30.0)
    running.deliver(b"hangs")
    running.link.sleep(10)
    running.hang()
    assert running.engine.down is not None
    assert running.engine._breaker.holds


def test_a_lost_connection_changes_nothing_of_it() -> None:
    running = down()
    running.link.lose()
    running.connect(V4_3)
    running.deliver()
    assert not running.workers.waiting
    running.link.sleep(10)
    assert len(running.workers.waiting) == 1


def test_another_error_of_the_message_that_is_tried_says_that_it_is_back() -> None:
    running = down()
    running.deliver()
    running.link.sleep(10)
    running.handle(FAILURE)
    assert not running.engine._breaker.holds


def test_what_a_crash_may_have_left_is_tried_alone() -> None:
    running = down()
    running.deliver(b"suspect", crashes=1)
    running.link.sleep(10)
    while running.link.calls or (running.link.wire and running.link.wire.asked):
        running.run()
    assert [item.received.body for item in running.workers.waiting] == [b"suspect"]
    running.handle()
    running.run()
    assert not running.engine._breaker.holds


def test_a_broadcast_queue_drops_what_fails_as_ever() -> None:
    running = RunningEngine(BROADCAST)
    running.connect(V4_3)
    running.deliver()
    running.handle(DependencyDown())
    assert running.engine.down is None


def test_stopping_meanwhile_leaves_nothing_behind() -> None:
    running = down()
    running.deliver()
    running.stop()
    running.run()
    assert running.ends == 1
