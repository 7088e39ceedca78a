"""Once a message is given up, later ones of its key are parked behind it in the failed queue, until
they are requeued in their order."""

import json
from contextlib import AbstractContextManager
from datetime import timedelta

import pytest

from contract.shells import Subscribes
from contract.support import Service, retrying
from contract.test_order_by import BY_CUSTOMER, Handled, numbers_of
from redrive import Message
from waiting import wait_until

BRIEF = timedelta(milliseconds=20)

pytestmark = pytest.mark.versions("streams")


class Shop:
    """A service that parks, whose handler fails for the customers that it is told."""

    def __init__(self, service: Service) -> None:
        self.service = service
        self.broken = {"a"}
        self.handler = Handled(self._act)
        self._published = 0

    def _act(self, message: Message) -> None:
        if json.loads(message.body)["customer"] in self.broken:
            raise RuntimeError("never")

    def running(self) -> AbstractContextManager[Subscribes]:
        """A worker."""
        return self.service.subscriber(
            self.handler,
            order_by=BY_CUSTOMER,
            when_given_up="park",
            concurrency=3,
            retry=retrying(1, BRIEF),
        )

    def publish(self, customers: str) -> None:
        """Publishes a message for each customer; all are numbered."""
        with self.service.publisher() as publisher:
            for customer in customers:
                body = {"customer": customer, "number": self._published}
                self._published += 1
                publisher.publish(body, "order.paid", mandatory=True)

    def failed(self, count: int) -> list[tuple[int, str | None]]:
        """Waits for so many failed messages; returns their numbers, and why each is there."""
        return [
            (json.loads(message.body)["number"], message.reason)
            for message in self.service.wait_for_failed(count)
        ]

    def requeue(self) -> None:
        """Requeues all failed messages."""
        assert self.service.failed_queue.requeue().requeued


@pytest.fixture
def shop(service: Service) -> Shop:
    return Shop(service)


GIVEN_UP, BEHIND = "retries-exhausted", "behind"


def test_later_messages_of_a_key_are_parked_and_handled_in_order_once_requeued(shop: Shop) -> None:
    with shop.running() as worker:
        shop.publish("abaab")
        assert shop.failed(3) == [(0, GIVEN_UP), (2, BEHIND), (3, BEHIND)]
        shop.handler.wait_for(2)
        assert worker.parked_keys == 1
        shop.broken = set()
        shop.requeue()
        shop.handler.wait_for(5)
        wait_until(lambda: worker.parked_keys == 0, "the key is handled again")
        shop.publish("a")
        shop.handler.wait_for(6)

    assert numbers_of(shop.handler.bodies) == {"a": [0, 2, 3, 5], "b": [1, 4]}
    assert shop.service.failed() == []


def test_a_worker_that_takes_over_knows_what_is_parked(shop: Shop) -> None:
    with shop.running() as dying:
        shop.publish("aa")
        shop.failed(2)
        dying.abort()
    shop.broken = set()
    shop.publish("ab")
    with shop.running():
        assert shop.failed(3) == [(0, GIVEN_UP), (1, BEHIND), (2, BEHIND)]
        shop.handler.wait_for(1)
        shop.requeue()
        shop.handler.wait_for(4)

    assert numbers_of(shop.handler.bodies) == {"a": [0, 1, 2], "b": [3]}


def test_what_is_requeued_goes_before_what_came_since(shop: Shop) -> None:
    with shop.running():
        shop.publish("aa")
        shop.failed(2)
    shop.broken = set()
    shop.publish("a")
    shop.requeue()
    shop.publish("a")
    with shop.running() as worker:
        shop.handler.wait_for(2)
        assert shop.failed(1) == [(2, BEHIND)]
        assert worker.parked_keys == 1
        shop.requeue()
        shop.handler.wait_for(4)

    assert numbers_of(shop.handler.bodies) == {"a": [0, 1, 2, 3]}
    assert shop.service.failed() == []


def test_a_requeued_message_that_fails_again_has_the_others_behind_it_again(shop: Shop) -> None:
    with shop.running():
        shop.publish("aaa")
        shop.failed(3)
        shop.requeue()
        wait_until(
            lambda: (
                all(message.redrive_count == 1 for message in shop.service.failed())
                and shop.service.failed_queue.depth() == 3
            ),
            "all three are there again",
        )
        assert shop.failed(3) == [(0, GIVEN_UP), (1, BEHIND), (2, BEHIND)]
        shop.broken = set()
        shop.requeue()
        shop.handler.wait_for(3)

    assert numbers_of(shop.handler.bodies) == {"a": [0, 1, 2]}


def test_messages_without_a_key_are_never_parked(shop: Shop) -> None:
    shop.broken = {"a"}
    with shop.running() as worker, shop.service.publisher() as publisher:
        for number in range(2):
            publisher.publish({"number": number}, "order.paid", mandatory=True)
        failed = shop.service.wait_for_failed(2)
        assert worker.parked_keys == 0

    assert {message.reason for message in failed} == {GIVEN_UP}


def test_workers_that_die_while_they_park_keep_the_order_all_the_same(shop: Shop) -> None:
    shop.service.declare(ordered=True, when_given_up="park", retry=retrying(1, BRIEF))
    shop.publish("ab" * 15)
    failed = shop.service.failed_queue
    for least in (1, 4, 8):
        with shop.running() as dying:
            wait_until(lambda least=least: failed.depth() >= least, "some are parked")  # type: ignore[misc]
            dying.abort()
    with shop.running() as worker:
        # What the last worker had in hand may be parked already, and is parked once more. This one
        # comes behind all of it.
        shop.publish("a")
        wait_until(
            lambda: any(json.loads(message.body)["number"] == 30 for message in failed.browse()),
            "all of the key are parked",
        )
        shop.handler.wait_for(15)
        shop.broken = set()
        shop.requeue()
        shop.handler.wait_for(31)
        wait_until(lambda: worker.parked_keys == 0, "the key is handled again")

    odd, even = list(range(1, 30, 2)), list(range(0, 31, 2))
    assert numbers_of(shop.handler.bodies) == {"a": even, "b": odd}
    assert shop.service.failed() == []
