"""A delivery on its way through a subscriber."""

import threading

from deliveries import first_delivery
from redrive.pubsub.work import DropCount
from unit.pubsub.running_engine import RunningEngine, properties


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
    dropped = DropCount()

    def decline() -> None:
        for _ in range(1000):
            dropped.decline()

    threads = [threading.Thread(target=decline) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert dropped.declined == 4000
