"""A delivery on its way through a subscriber."""

import threading

import pytest

from deliveries import first_delivery
from redrive.pubsub.work import ConsumeOptions, LossCounter, consumer_timeout
from redrive.topology.broker_version import BrokerVersion
from redrive.topology.model import Subscription
from unit.pubsub.running_engine import BROADCAST, ORDERED, ORDERS, RunningEngine, properties

MINUTES = 60_000
NEW, OLD = BrokerVersion(4, 3, 0), BrokerVersion(4, 2, 9)
CLASSIC = Subscription("orders", ["order.*"], queue_type="classic")


def test_an_item_is_called_by_its_tag_until_it_was_read_and_then_by_its_message() -> None:
    running = RunningEngine()
    running.connect()
    running.consuming.deliver(properties=properties(x_orig_routing_key="order\npaid"))
    item = running.workers.waiting[0]
    assert item.name == "delivery 1"
    running.begin()
    assert item.name == "message None (order paid)"
    item.delivery = first_delivery()
    assert "user.create" in item.name


def test_what_is_declined_on_many_threads_is_counted_whole() -> None:
    dropped = LossCounter()

    def decline() -> None:
        for _ in range(1000):
            dropped.decline()

    threads = [threading.Thread(target=decline) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert dropped.declined == 4000


@pytest.mark.parametrize(
    ("subscription", "options", "broker", "timeout"),
    [
        (ORDERS, ConsumeOptions(1, 1, handler_timeout=2400), NEW, 81 * MINUTES),
        (ORDERS, ConsumeOptions(2, 60, handler_timeout=60), NEW, 61 * MINUTES),
        (ORDERED, ConsumeOptions(1, 1, handler_timeout=900), NEW, 32 * MINUTES),
        (ORDERED, ConsumeOptions(1, 2, handler_timeout=900), NEW, 64 * MINUTES),
        (ORDERS, ConsumeOptions(1, 1, handler_timeout=900), NEW, None),
        (ORDERS, ConsumeOptions(1, 1), NEW, None),
        (ORDERS, ConsumeOptions(1, 1, handler_timeout=2400), OLD, None),
        (CLASSIC, ConsumeOptions(1, 1, handler_timeout=2400), NEW, None),
        (BROADCAST, ConsumeOptions(1, 1, handler_timeout=2400), NEW, None),
    ],
    ids=[
        "a long handler",
        "a long queue behind it",
        "held for a retry",
        "held behind others that are tried again",
        "half of what the broker allows",
        "no limit",
        "an old broker",
        "classic",
        "broadcast",
    ],
)
def test_a_broker_is_told_where_handlers_take_longer_than_it_waits(
    subscription: Subscription, options: ConsumeOptions, broker: BrokerVersion, timeout: int | None
) -> None:
    assert consumer_timeout(subscription, options, broker) == timeout


def test_it_is_told_with_each_consumer() -> None:
    running = RunningEngine(handler_timeout=2400.0)
    running.connect(NEW)
    running.deliver()
    assert running.consuming.timeouts == [81 * MINUTES] * 2
