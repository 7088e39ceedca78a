from collections import Counter

import pytest

from redrive import BrokerUnavailable
from redrive.pubsub.transfer.pace import Pace


class Broker:
    """Queues whose depths, and a time that a test sets."""

    def __init__(self, **depths: int) -> None:
        self.depths = depths
        self.asked: Counter[str] = Counter()
        self.now = 100.0
        self.is_there = True

    def depth(self, queue: str) -> int | None:
        self.asked[queue] += 1
        if not self.is_there:
            raise BrokerUnavailable("amqp://broker:5672/", "it is gone")
        return self.depths.get(queue)

    def pace(self, most: int | None) -> Pace:
        return Pace(most, self.depth, patience=30, clock=lambda: self.now)


def sent(pace: Pace, queue: str, in_flight: int = 0) -> int:
    """How many may be sent before one must wait."""
    count = 0
    while count < 1000 and pace.has_room(queue, in_flight + count):
        pace.sent(queue)
        count += 1
    return count


def test_without_a_pace_no_queue_is_asked() -> None:
    broker = Broker(orders=1_000_000)
    assert sent(broker.pace(None), "orders") == 1000
    assert not broker.asked


def test_as_many_are_sent_as_there_is_room_for() -> None:
    broker = Broker(orders=3)
    assert sent(broker.pace(10), "orders") == 7


def test_nothing_is_sent_to_a_queue_that_has_more_already() -> None:
    broker = Broker(orders=300)
    assert sent(broker.pace(10), "orders") == 0


def test_it_goes_on_when_consumers_have_taken_some() -> None:
    broker = Broker(orders=0)
    pace = broker.pace(10)
    assert sent(pace, "orders") == 10
    broker.depths["orders"] = 6
    broker.now += 1
    assert sent(pace, "orders") == 4


def test_what_is_on_its_way_takes_its_room() -> None:
    broker = Broker(orders=3)
    assert sent(broker.pace(10), "orders", in_flight=5) == 2


def test_each_queue_has_room_of_its_own() -> None:
    broker = Broker(orders=10, bills=4)
    pace = broker.pace(10)
    assert (sent(pace, "orders"), sent(pace, "bills")) == (0, 6)


def test_a_queue_is_asked_four_times_a_second_at_most() -> None:
    broker = Broker(orders=10)
    pace = broker.pace(10)
    for _ in range(1024):
        pace.has_room("orders", 0)
        broker.now += 1 / 1024
    assert broker.asked["orders"] == 4


def test_a_queue_that_is_gone_may_refuse_what_is_sent() -> None:
    assert sent(Broker().pace(10), "orders") == 10


def test_a_broker_that_is_away_for_a_while_is_waited_for() -> None:
    broker = Broker(orders=0)
    broker.is_there = False
    pace = broker.pace(10)
    assert sent(pace, "orders") == 0
    broker.now += 29
    assert sent(pace, "orders") == 0
    broker.now += 1
    with pytest.raises(BrokerUnavailable):
        pace.has_room("orders", 0)


def test_a_broker_that_is_back_is_given_the_whole_time_again() -> None:
    broker = Broker(orders=0)
    pace = broker.pace(10)
    for is_there in (False, True, False):
        broker.is_there = is_there
        pace.has_room("orders", 0)
        broker.now += 20
    broker.is_there = True
    assert sent(pace, "orders") == 10
