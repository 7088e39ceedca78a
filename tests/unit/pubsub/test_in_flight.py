"""What is published and not settled yet, and who waits for it."""

import asyncio
import contextlib
import threading

import pytest

from redrive.errors import BrokerUnavailable
from redrive.pubsub.aio.publisher import TaskInFlight
from redrive.pubsub.confirms import Outgoing
from redrive.pubsub.in_flight import BulkTicket, InFlight, ThreadInFlight
from redrive.pubsub.reports import PublishReport

LONG = 60.0


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def in_flight(clock: Clock) -> InFlight:
    return InFlight(contextlib.nullcontext(), lambda: None, clock)


def outgoing(message_id: str, key: str = "order.paid") -> Outgoing:
    return Outgoing("master", key, b"", b"", message_id, lambda *_: None)


def test_nothing_in_flight_is_never_stalled(in_flight: InFlight, clock: Clock) -> None:
    clock.now = 1_000.0
    assert not in_flight.is_stalled(5.0)


def test_messages_of_which_none_is_settled_for_the_timeout_are_stalled(
    in_flight: InFlight, clock: Clock
) -> None:
    clock.now = 100.0
    in_flight.add(2)
    clock.now = 104.0
    assert not in_flight.is_stalled(5.0)
    clock.now = 105.0
    assert in_flight.is_stalled(5.0)


def test_each_one_that_is_settled_gives_the_others_their_time_again(
    in_flight: InFlight, clock: Clock
) -> None:
    in_flight.add(2)
    clock.now = 4.0
    in_flight.settle()
    clock.now = 8.0
    assert not in_flight.is_stalled(5.0)
    clock.now = 9.0
    assert in_flight.is_stalled(5.0)


def test_more_messages_do_not_hide_that_nothing_is_settled(
    in_flight: InFlight, clock: Clock
) -> None:
    in_flight.add(1)
    clock.now = 4.0
    in_flight.add(1)
    clock.now = 5.0
    assert in_flight.is_stalled(5.0)


def test_a_thread_waits_until_all_are_settled() -> None:
    in_flight = ThreadInFlight()
    in_flight.add(100)

    def settle_all() -> None:
        for _ in range(100):
            in_flight.settle()

    settling = threading.Thread(target=settle_all)
    settling.start()
    assert in_flight.wait_until_below(1, LONG)
    assert in_flight.count == 0
    settling.join()


def test_a_thread_waits_in_vain_for_what_nobody_settles() -> None:
    in_flight = ThreadInFlight()
    in_flight.add(1)
    assert not in_flight.wait_until_below(1, 0.01)


def test_a_thread_waits_no_longer_than_it_wants_to() -> None:
    in_flight = ThreadInFlight()
    in_flight.add(1)
    assert not in_flight.wait_until_below(1, LONG, at_most=0.01)


def test_a_task_waits_until_all_are_settled() -> None:
    async def work() -> bool:
        in_flight = TaskInFlight()
        in_flight.add(100)
        for number in range(100):
            asyncio.get_running_loop().call_later(number / 10_000, in_flight.settle)
        return await in_flight.wait_until_below(1, LONG) and in_flight.count == 0

    assert asyncio.run(work())


def test_a_task_waits_in_vain_for_what_nobody_settles() -> None:
    async def work() -> bool:
        in_flight = TaskInFlight()
        in_flight.add(1)
        return await in_flight.wait_until_below(1, 0.01)

    assert not asyncio.run(work())


def test_what_is_withdrawn_is_a_failure_and_not_counted_twice(in_flight: InFlight) -> None:
    report = PublishReport()
    many = BulkTicket(report, True, in_flight)
    first, second = outgoing("1"), outgoing("2")
    many.add([(0, first), (1, second)])
    many.settle(first, None)
    many.withdraw(lambda one: BrokerUnavailable("broker", f"no confirm of {one.message_id}"))
    many.settle(second, None)

    assert (report.confirmed, [failed.position for failed in report.failed]) == (1, [1])
    assert (in_flight.count, second.withdrawn) == (0, True)
