"""What becomes of messages that were requeued: seen while they are sent, and afterwards."""

import contextlib
from collections.abc import Iterator
from datetime import timedelta

import pytest

from cli_support import Outcome, declare, depth_of, redrive
from contract.plain import wait_for_consumers
from redrive import FailedQueue, Message, RetryPolicy, Subscriber
from redrive.amqp.field_table import Table
from redrive.amqp.properties import Properties
from redrive.topology.headers import Delivery
from waiting import wait_until

QUEUE = "ucenter@user"


@contextlib.contextmanager
def a_worker(url: str, breaks: bool | None = None) -> Iterator[None]:
    """A worker whose handler fails always, never, or, without being told, for every other
    message."""
    subscriber = Subscriber(
        url, QUEUE, ["user.*"], retry=RetryPolicy(0, timedelta(milliseconds=200))
    )

    @subscriber.handler
    def handle(message: Message) -> None:
        if int(message.body) % 2 if breaks is None else breaks:
            raise ValueError(f"still no plan {message.body.decode()}")

    subscriber.start()
    try:
        wait_for_consumers(url, QUEUE)
        yield
    finally:
        subscriber.stop()
        subscriber.wait()


@pytest.fixture
def failures(rabbitmq_url: str) -> str:
    """A failed queue of 60 messages."""
    declare(rabbitmq_url, QUEUE)
    set_aside(rabbitmq_url, range(60))
    return rabbitmq_url


def set_aside(url: str, numbers: range) -> None:
    FailedQueue(url, QUEUE).restore(
        Delivery(
            QUEUE,
            "master.failed",
            QUEUE,
            Properties(headers=Table.of({"redrive-failure-id": str(n)}), delivery_mode=2),
            str(n).encode(),
        )
        for n in numbers
    )


def requeue(url: str, *arguments: str) -> Outcome:
    return redrive("failed", "requeue", QUEUE, "--yes", "--output", "json", *arguments, url=url)


def told_of(url: str, job: str) -> tuple[int, int, int, int]:
    """Sent, succeeded, failed again, unknown."""
    found = redrive("jobs", "show", job, "--output", "json", url=url).json()
    return found["sent"], found["succeeded"], found["failed_again"], found["unknown"]


def test_a_job_knows_what_became_of_its_messages(failures: str) -> None:
    with a_worker(failures):
        job = requeue(failures).json()["job"]
        wait_until(lambda: told_of(failures, job) == (60, 30, 30, 0), "the worker tells of all")
    assert told_of(failures, job) == (60, 30, 30, 0)


def test_what_an_older_worker_does_not_tell_is_counted_in_the_failed_queue(failures: str) -> None:
    job = requeue(failures, "--limit", "3").json()["job"]
    with a_worker(failures, breaks=True):
        wait_until(lambda: depth_of(failures, QUEUE)["failed"] == 60, "they fail again")
    FailedQueue(failures, QUEUE)._heard(job)  # as if nothing had been told
    assert told_of(failures, job) == (3, 0, 3, 0)


def test_a_job_stops_when_too_many_fail_again(failures: str) -> None:
    set_aside(
        failures, range(60, 2000)
    )  # most of a minute: more than enough to be stopped in the middle of
    with a_worker(failures, breaks=True):
        done = requeue(failures, "--rate", "40/s", "--stop-at", "5%")
    assert done.code == 1
    assert "more than 5.0%" in done.json()["problem"]
    assert 20 <= done.json()["requeued"] < 2000
