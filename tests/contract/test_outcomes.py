"""What subscribers of both shells tell of messages that a job has requeued."""

import contextlib
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from itertools import islice
from typing import Any

import pika
import pytest

from contract.administration import Administration
from contract.support import Service, always_fails
from effort import effort
from redrive import ErrorRule, FailedQueue, Message, Retry, RetryPolicy
from redrive.pubsub.blocking.connection import Connector
from redrive.pubsub.blocking.declarer import declaring
from redrive.topology.model import Exchange
from redrive.topology.outcome_events import OutcomeTotals
from waiting import DEADLINE, wait_until


def fails_for_odd_ones(message: Message) -> None:
    if int(message.body) % 2:
        raise ValueError("odd")


def test_a_subscriber_tells_what_became_of_messages_that_were_requeued(service: Service) -> None:
    service.fail(10)
    failed = FailedQueue(service.url, service.queue)
    heard: Counter[str] = Counter()

    def listen() -> bool:
        for outcomes in failed._heard("after-the-fix"):
            assert outcomes.queue == service.queue
            heard.update(handled=outcomes.handled, failed=outcomes.failed)
        return heard.total() >= 10

    failed._listen("after-the-fix")
    with service.subscriber(fails_for_odd_ones):
        failed.requeue(job="after-the-fix")
        wait_until(listen, "all outcomes are told")
    assert heard == {"handled": 5, "failed": 5}


def test_without_anybody_who_listens_messages_are_handled_all_the_same(service: Service) -> None:
    service.fail(3)
    with service.subscriber(fails_for_odd_ones):
        FailedQueue(service.url, service.queue).requeue(job="nobody-listens")
        assert [message.body for message in service.wait_for_failed(1)] == [b"1"]
        assert FailedQueue(service.url, service.queue)._heard("nobody-listens") == []


def heard(failed: FailedQueue, job: str, settled: int) -> dict[str, int]:
    """What is told of a job until so many of its messages are handled or set aside."""
    counts: Counter[str] = Counter()

    def listen() -> bool:
        for outcomes in failed._heard(job):
            counts.update(
                {
                    name: getattr(outcomes, name)
                    for name in outcomes.__slots__
                    if name not in ("job", "queue")
                }
            )
        return counts["handled"] + counts["failed"] >= settled

    wait_until(listen, "all outcomes are told")
    return {name: count for name, count in counts.items() if count}


def fails_twice(message: Message) -> None:
    if message.retries < 2:
        raise ValueError("not yet")


def asks_for_two_retries(message: Message) -> None:
    if message.retries < 2:
        raise Retry(after=timedelta(seconds=1))


@pytest.mark.parametrize(
    ("handler", "options"),
    [
        pytest.param(fails_twice, {}, id="dead-letter"),
        pytest.param(
            fails_twice, {"queue_type": "classic", "retry_via": "republish"}, id="republish"
        ),
        pytest.param(asks_for_two_retries, {}, id="ladder"),
        pytest.param(fails_twice, {"ordered": True}, id="ordered"),
    ],
)
def test_a_retry_is_told_once_for_each_message_however_it_is_retried(
    service: Service, handler: Any, options: dict[str, Any]
) -> None:
    failed = FailedQueue(service.url, service.queue)
    service.declare(**options)
    service.set_aside_declared(6)
    failed._listen("retried")
    with service.subscriber(handler, **options):
        failed.requeue(job="retried")
        assert heard(failed, "retried", 6) == {
            "handled": 6,
            "handled_after_retry": 6,
            "retrying": 6,
        }


def test_what_fails_for_good_is_told_of_with_whether_it_was_retried(service: Service) -> None:
    service.fail(4)
    failed = FailedQueue(service.url, service.queue)
    failed._listen("retried")
    with service.subscriber(always_fails):
        failed.requeue(job="retried", limit=2)
        assert heard(failed, "retried", 2) == {"failed": 2, "failed_after_retry": 2, "retrying": 2}
    failed._listen("at-once")
    with service.subscriber(always_fails, retry=RetryPolicy(0, service.retry.delay)):
        failed.requeue(job="at-once", limit=2)
        assert heard(failed, "at-once", 2) == {"failed": 2}


def test_what_a_rule_discards_has_failed_again_and_is_told_of_as_discarded(
    service: Service,
) -> None:
    service.fail(4)
    failed = FailedQueue(service.url, service.queue)
    failed._listen("gone")
    retry = RetryPolicy(1, service.retry.delay, errors=[ErrorRule(discard=True)])
    with service.subscriber(always_fails, retry=retry), failed.watch("gone") as watch:
        failed.requeue(job="gone")
        assert heard(failed, "gone", 4) == {
            "failed": 4,
            "failed_after_retry": 4,
            "discarded": 4,
            "discarded_after_retry": 4,
            "retrying": 4,
        }
        wait_until(lambda: watch.standing == OutcomeTotals(0, 4, 4), "the watch counts them")
    assert service.failed() == []


def test_what_is_set_aside_in_a_failed_queue_of_its_own_has_failed_again(service: Service) -> None:
    service.fail(2)
    failed = FailedQueue(service.url, service.queue)
    retry = RetryPolicy(0, service.retry.delay, errors=[ErrorRule(failed_queue="own")])
    with service.subscriber(always_fails, retry=retry), failed.watch("own") as watch:
        failed.requeue(job="own")
        wait_until(lambda: watch.standing == OutcomeTotals(0, 2, 2), "the watch counts them")
        assert sum(watch.causes.values()) == 2


def test_a_watch_counts_each_message_that_fails_once(service: Service) -> None:
    service.fail(5)
    failed = FailedQueue(service.url, service.queue)
    with failed.watch("watched") as watch, service.subscriber(always_fails):
        failed.requeue(job="watched")
        # Each is retried three times, told of, and seen in two exchanges.
        wait_until(lambda: watch.standing.failed_again >= 5, "all are set aside again")
        assert watch.standing == OutcomeTotals(succeeded=0, failing=5, failed_again=5)


@pytest.mark.versions("x-death")
def test_a_watch_sees_the_retries_of_a_subscriber_that_tells_nothing(service: Service) -> None:
    service = replace(service, retry=RetryPolicy(3, timedelta(hours=1)))
    service.set_aside(5)
    failed = FailedQueue(service.url, service.queue)
    with failed.watch("watched") as watch, service.subscriber(always_fails):
        without_events(service)
        failed.requeue(job="watched")
        wait_until(lambda: watch.standing.failing >= 5, "their retries are seen")
        assert watch.standing == OutcomeTotals(succeeded=0, failing=5, failed_again=0)


def test_a_watch_counts_each_message_of_a_peer_once_that_is_retried_again_and_again(
    service: Service,
) -> None:
    service.fail(5)
    failed = FailedQueue(service.url, service.queue)
    with failed.watch("watched") as watch:
        failed.requeue(job="watched")
        for _ in islice(rejected_by_a_peer(service), 15):
            pass
        wait_until(lambda: watch.standing.failing >= 5, "their retries are seen")
        assert watch.standing == OutcomeTotals(succeeded=0, failing=5, failed_again=0)


def test_a_watch_does_not_count_the_messages_of_others(service: Service) -> None:
    service.fail(4)
    failed = FailedQueue(service.url, service.queue)
    with failed.watch("watched") as watch, service.subscriber(always_fails):
        failed.requeue(job="another", limit=3)
        failed.requeue(job="watched", limit=1)
        wait_until(lambda: failed.depth() == 4, "all are set aside again")
        wait_until(lambda: watch.standing.failed_again >= 1, "one of them is seen")
        assert watch.standing == OutcomeTotals(succeeded=0, failing=1, failed_again=1)


def test_a_watch_that_begins_and_ends_in_the_middle_of_retries_holds_none_of_them_back(
    service: Service,
) -> None:
    service = replace(service, retry=RetryPolicy(10, timedelta(milliseconds=20)))
    ids = service.set_aside(count := effort(50, nightly=200))
    failed = FailedQueue(service.url, service.queue)
    with service.subscriber(always_fails):
        failed.requeue(job="watched")
        deadline = time.monotonic() + DEADLINE
        while failed.depth() < count:
            with failed.watch("watched"):
                assert time.monotonic() < deadline, "some are held back"
    assert sorted(message.message_id or "" for message in service.failed()) == sorted(ids)


def test_a_watch_that_ends_leaves_its_queue_to_expire_and_bound_to_nothing(
    service: Service, rabbitmq_management_url: str
) -> None:
    # A quorum queue that dead-letters into a queue that is being deleted holds what it does for
    # minutes.
    service.declare()
    administration = Administration(rabbitmq_management_url, service.url)
    with FailedQueue(service.url, service.queue).watch("watched"):
        [(watching, sources)] = administration.sources_of("redrive.watch.").items()
        assert {"master.retry", "master.failed", "master.events"} <= sources
    assert administration.sources_of("redrive.watch.") == {watching: {""}}


def without_events(service: Service) -> None:
    """Has nothing told of that a subscriber tells."""
    with declaring(Connector(service.url, "test")) as declarer:
        declarer.delete(Exchange("master.events"))


def rejected_by_a_peer(service: Service) -> Iterator[bytes]:
    """What a consumer of another kind takes from the main queue, and rejects."""
    with contextlib.closing(pika.BlockingConnection(pika.URLParameters(service.url))) as connection:
        channel = connection.channel()
        for method, _, body in channel.consume(service.queue, inactivity_timeout=0.1):
            if method is not None and body is not None:
                channel.basic_reject(method.delivery_tag, requeue=False)
                yield body
