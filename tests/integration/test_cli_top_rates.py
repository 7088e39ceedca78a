"""The rates of `redrive top` beside a service whose rates are known."""

import threading
import time
from collections.abc import Iterator
from datetime import timedelta

import pytest

from cli_support import redrive
from effort import nightly
from redrive import FailedQueue, GiveUp, Message, Publisher, RetryPolicy, Subscriber
from waiting import wait_until

QUEUE = "shop@orders"
EACH_SECOND = 50
EXPECTED = {
    "rate_in": 1.1 * EACH_SECOND,  # what was requeued is among it
    "rate_done": 1.1 * EACH_SECOND,
    "rate_retried": 0.2 * EACH_SECOND,
    "rate_failed": 0.1 * EACH_SECOND,
    "rate_redriven": 0.1 * EACH_SECOND,
}
STEADY = 7.0
"""Seconds within which RabbitMQ counts anew at least once."""


def of_ten_two_are_retried_and_one_is_set_aside(message: Message) -> None:
    """A handler."""
    digit = int(message.body) % 10
    if digit in (0, 2) and message.retries == 0:
        raise ValueError("not yet")
    if digit == 1 and "redrive-count" not in message.headers:
        raise GiveUp("no plan")


@pytest.fixture(
    params=[
        pytest.param(("dead-letter", "quorum"), id="dead-letter"),
        nightly(("republish", "classic"), why="another way of retrying", id="republish"),
    ],
)
def busy_url(rabbitmq_url: str, request: pytest.FixtureRequest) -> Iterator[str]:
    """A broker with a service that goes on at known rates, and somebody who requeues what it sets
    aside."""
    retry_via, queue_type = request.param
    retry = RetryPolicy(3, timedelta(milliseconds=200))
    subscriber = Subscriber(
        rabbitmq_url, QUEUE, ["order.*"], retry=retry, retry_via=retry_via, queue_type=queue_type
    )
    subscriber.handler(of_ten_two_are_retried_and_one_is_set_aside)
    subscriber.declare()
    over = threading.Event()

    def publish() -> None:
        with Publisher(rabbitmq_url) as publisher:
            began, published = time.monotonic(), 0
            while not over.wait(0.01):
                while not over.is_set() and published < (time.monotonic() - began) * EACH_SECOND:
                    publisher.publish(str(published), "order.paid")
                    published += 1

    def requeue() -> None:
        failed = FailedQueue(rabbitmq_url, QUEUE)
        while not over.wait(0.5):
            failed.requeue()

    threads = [threading.Thread(target=publish), threading.Thread(target=requeue)]
    subscriber.start()
    for thread in threads:
        thread.start()
    yield rabbitmq_url
    over.set()
    for thread in threads:
        thread.join()
    subscriber.stop()
    subscriber.wait()


@pytest.mark.nightly("compares rates for half a minute")
def test_each_rate_is_near_the_real_one_and_stays_there(
    busy_url: str, rabbitmq_management_url: str
) -> None:
    looks: list[dict[str, float]] = []
    steady_since: float | None = None

    def is_steady() -> bool:
        nonlocal steady_since
        arguments = (
            "top",
            "--once",
            "--output",
            "json",
            "--management-url",
            rabbitmq_management_url,
        )
        (found,) = redrive(*arguments, url=busy_url).json()["subscriptions"]
        looks.append({name: found[name] for name in EXPECTED})
        near = all(
            found[name] is not None and rate / 2 <= found[name] <= rate * 2
            for name, rate in EXPECTED.items()
        )
        steady_since = (steady_since or time.monotonic()) if near else None
        return steady_since is not None and time.monotonic() - steady_since >= STEADY

    try:
        wait_until(is_steady, "steady rates", 240)
    except AssertionError as error:
        raise AssertionError(f"{error}; the last looks were {looks[-20:]}") from error
