"""Messages of one key are handled one after the other in the order in which they were published,
and other keys beside them."""

import json
import threading
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from datetime import timedelta

import pytest

from contract.support import Recorder, Service, retrying
from redrive import App, ConfigurationError, Message, RetryPolicy
from waiting import DEADLINE, wait_until

BRIEF = timedelta(milliseconds=20)
LONG = timedelta(minutes=10)
BY_CUSTOMER = "$.customer"


def publish_for(service: Service, customers: Iterable[object]) -> list[str]:
    """Publishes a message for each of these customers, numbered for each of them; returns the
    ids."""
    counts: Counter[object] = Counter()
    ids = []
    with service.publisher() as publisher:
        for customer in customers:
            body = {"customer": customer, "number": counts[customer]}
            counts[customer] += 1
            ids.append(publisher.publish(body, "order.paid", mandatory=True))
    return ids


def numbers_of(bodies: Iterable[bytes]) -> dict[str, list[int]]:
    """The numbers of what was handled, by customer, each as it was handled first."""
    found: dict[str, list[int]] = defaultdict(list)
    for body in map(json.loads, bodies):
        if body["number"] not in found[body["customer"]]:
            found[body["customer"]].append(body["number"])
    return dict(found)


class Handled:
    """A handler that notes each body that it has handled, and never runs for two messages of one
    customer at once."""

    def __init__(self, act: Callable[[Message], object] = lambda _: None) -> None:
        self._act = act
        self._lock = threading.Lock()
        self._running: Counter[str] = Counter()
        self.bodies: list[bytes] = []
        self.together = 0
        self.overlaps = 0

    def __call__(self, message: Message) -> None:
        customer = json.loads(message.body)["customer"]
        with self._lock:
            self._running[customer] += 1
            self.together = max(self.together, self._running.total())
            self.overlaps += self._running[customer] > 1
        try:
            self._act(message)
            with self._lock:
                self.bodies.append(message.body)
        finally:
            with self._lock:
                self._running[customer] -= 1

    def wait_for(self, count: int) -> None:
        """Waits until so many different messages are handled."""
        wait_until(lambda: len(set(self.bodies)) >= count, f"{count} messages are handled")


def fails_each_third(message: Message) -> None:
    """Fails at the first attempt with a third of the messages."""
    if message.retries == 0 and json.loads(message.body)["number"] % 3 == 0:
        raise RuntimeError("not yet")


@pytest.mark.versions("the place that a returned message takes")
def test_each_key_keeps_its_order_through_retries_and_others_go_on(service: Service) -> None:
    handler = Handled(fails_each_third)
    with service.subscriber(handler, order_by=BY_CUSTOMER, concurrency=4, retry=retrying(2, BRIEF)):
        publish_for(service, "abcabdabcaabbccdd" * 3)
        handler.wait_for(51)

    assert numbers_of(handler.bodies) == {
        "a": list(range(15)),
        "b": list(range(15)),
        "c": list(range(12)),
        "d": list(range(9)),
    }
    assert handler.overlaps == 0


@pytest.mark.parametrize("when_given_up", ["continue", "park"])
def test_each_key_keeps_its_order_through_a_pause(service: Service, when_given_up: str) -> None:
    handler = Handled(fails_each_third)
    options = {"order_by": BY_CUSTOMER, "concurrency": 4, "retry": retrying(2, BRIEF)}
    with service.subscriber(handler, when_given_up=when_given_up, **options) as subscriber:
        publish_for(service, "abc" * 4)
        wait_until(lambda: len(set(handler.bodies)) >= 4, "some are handled")
        App(service.url).pause(service.queue)
        wait_until(lambda: subscriber.paused is not None, "it knows of the pause")
        publish_for(service, "ddd")
        assert "d" not in numbers_of(handler.bodies)
        App(service.url).resume(service.queue)
        handler.wait_for(15)

    assert numbers_of(handler.bodies) == {
        "a": list(range(4)),
        "b": list(range(4)),
        "c": list(range(4)),
        "d": list(range(3)),
    }
    assert handler.overlaps == 0


def test_a_key_that_waits_holds_up_no_other_and_says_so(service: Service) -> None:
    def act(message: Message) -> None:
        if json.loads(message.body)["customer"] == "blocked":
            raise RuntimeError("not yet")

    handler = Handled(act)
    with service.subscriber(
        handler, order_by=BY_CUSTOMER, concurrency=2, retry=retrying(1, LONG)
    ) as subscriber:
        publish_for(service, ["blocked", "a", "blocked", "b", "blocked", "a"])
        handler.wait_for(3)
        wait_until(
            lambda: [(one.key, one.behind) for one in subscriber.blocked_keys] == [("blocked", 2)],
            "two wait behind the key that failed",
        )

    assert numbers_of(handler.bodies) == {"a": [0, 1], "b": [0]}
    assert service.failed() == []


def test_different_keys_are_handled_at_the_same_time(service: Service) -> None:
    meet = threading.Barrier(3)
    handler = Recorder(lambda _: meet.wait(DEADLINE))
    with service.subscriber(handler, order_by="header:tenant", concurrency=3):
        ids = [service.publish(headers={"tenant": tenant}) for tenant in ("a", "b", "c")]
        handler.wait_for_handled(ids)


def test_after_its_last_retry_a_message_is_set_aside_and_its_key_goes_on(service: Service) -> None:
    def act(message: Message) -> None:
        if json.loads(message.body)["number"] == 1:
            raise RuntimeError("never")

    handler = Handled(act)
    with service.subscriber(handler, order_by=BY_CUSTOMER, concurrency=2, retry=retrying(2, BRIEF)):
        ids = publish_for(service, "aaab")
        handler.wait_for(3)
        (failed,) = service.wait_for_failed()

    assert (failed.message_id, failed.retries) == (ids[1], 2)
    assert numbers_of(handler.bodies) == {"a": [0, 2], "b": [0]}


def test_what_has_no_key_is_handled_in_order_and_counted(service: Service) -> None:
    handler = Recorder(lambda message: message.retries or 1 / 0)
    with service.subscriber(
        handler, order_by=BY_CUSTOMER, concurrency=4, retry=retrying(1, BRIEF)
    ) as subscriber:
        bodies: list[object] = [{}, "no object", {"customer": None}, {"customer": ["a"]}]
        ids = [service.publish(body) for body in bodies]
        handler.wait_for_handled(ids)
        assert subscriber.keyless >= 4

    assert handler.order == ids


@pytest.mark.versions("the order of what a dead consumer held")
def test_the_order_of_each_key_survives_workers_that_die_with_messages_in_hand(
    service: Service,
) -> None:
    retry = RetryPolicy(max_retries=200, delay=BRIEF)
    customers = [f"c{number % 7}" for number in range(140)]
    handler = Handled(fails_each_third)
    service.declare(ordered=True, retry=retry)
    publish_for(service, customers)
    for number in range(4):
        with service.subscriber(
            handler, order_by=BY_CUSTOMER, concurrency=3, prefetch=40, retry=retry
        ) as dying:
            handler.wait_for(20 * (number + 1))
            dying.abort()
    with service.subscriber(handler, order_by=BY_CUSTOMER, concurrency=3, prefetch=40, retry=retry):
        handler.wait_for(140)

    assert numbers_of(handler.bodies) == {f"c{number}": list(range(20)) for number in range(7)}
    assert service.failed() == []


@pytest.mark.versions("when the next single active consumer takes over")
def test_the_order_of_each_key_survives_workers_that_are_replaced(service: Service) -> None:
    retry = RetryPolicy(max_retries=200, delay=BRIEF)
    handler = Handled(fails_each_third)
    options = {"order_by": BY_CUSTOMER, "concurrency": 3, "prefetch": 40, "retry": retry}
    with (
        service.subscriber(handler, **options) as first,
        service.subscriber(handler, **options) as second,
        service.subscriber(handler, **options),
    ):
        publish_for(service, [f"c{number % 7}" for number in range(140)])
        handler.wait_for(30)
        first.stop()
        assert first.stopped(DEADLINE)
        handler.wait_for(70)
        second.stop()
        assert second.stopped(DEADLINE)
        handler.wait_for(140)

    assert numbers_of(handler.bodies) == {f"c{number}": list(range(20)) for number in range(7)}
    assert service.failed() == []


@pytest.mark.parametrize(
    ("options", "found"),
    [
        ({"order_by": "customer"}, "order_by is 'customer'"),
        ({"order_by": BY_CUSTOMER, "queue_type": "classic"}, "queue_type='classic'"),
        ({"order_by": BY_CUSTOMER, "broadcast": True}, "is ordered and a broadcast queue"),
        ({"order_by": BY_CUSTOMER, "retry_via": "broker"}, "is ordered"),
    ],
)
def test_what_can_not_be_ordered_is_refused_at_once(
    service: Service, options: dict[str, object], found: str
) -> None:
    with (
        pytest.raises(ConfigurationError, match=found),
        service.shell.subscriber(print, service.url, "q", **options),
    ):
        pass
