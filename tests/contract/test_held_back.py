"""RabbitMQ 4.3 itself holds failed messages back in the main queue, with the same budget and the
same failed queue as any other retry."""

import itertools
import threading
import time
from datetime import timedelta

import pika
import pytest

from contract.support import (
    Recorder,
    Service,
    always_fails,
    fails_first,
    holds_back,
    retrying,
)
from redrive import Linear, Message, Retry, RetryPolicy
from waiting import DEADLINE, wait_until

pytestmark = pytest.mark.versions("delayed retries, new in 4.3")

BRIEF = timedelta(milliseconds=20)
BROKER = {"retry_via": "broker"}


@pytest.mark.parametrize("max_retries", [0, 1, 3, 25])
def test_a_message_that_always_fails_is_tried_once_more_than_its_retries(
    service: Service, max_retries: int
) -> None:
    if not holds_back(service):
        return
    handler = Recorder(always_fails)
    with service.subscriber(handler, retry=retrying(max_retries, BRIEF), **BROKER):
        service.publish()
        (failed,) = service.wait_for_failed()

    assert [attempt.retries for attempt in handler.attempts] == list(range(max_retries + 1))
    assert (failed.reason, failed.retries) == ("retries-exhausted", max_retries)
    assert (failed.routing_key, failed.exchange) == ("order.paid", "master")


def test_a_message_that_recovers_is_handled_and_not_set_aside(service: Service) -> None:
    if not holds_back(service):
        return
    handler = Recorder(fails_first(2))
    with service.subscriber(handler, **BROKER):
        message_id = service.publish()
        handler.wait_for_handled([message_id])

    assert [attempt.retries for attempt in handler.attempts] == [0, 1, 2]
    assert service.failed() == []


def forge(service: Service, **headers: object) -> None:
    """Publishes a message with headers of which redrive's publisher would take none."""
    with pika.BlockingConnection(pika.URLParameters(service.url)) as connection:
        connection.channel().basic_publish(
            "master",
            "order.paid",
            b"socks",
            pika.BasicProperties(  # type: ignore[no-untyped-call]
                headers={name.replace("_", "-"): value for name, value in headers.items()},
                delivery_mode=2,
            ),
        )


@pytest.mark.parametrize("count", [1, 7, 1_000_000])
def test_counts_that_a_publisher_made_up_take_no_retry_away(service: Service, count: int) -> None:
    if not holds_back(service):
        return
    handler = Recorder(always_fails)
    with service.subscriber(handler, retry=retrying(3, BRIEF), **BROKER):
        forge(service, x_delivery_count=count, x_acquired_count=count, redrive_retries=count)
        (failed,) = service.wait_for_failed()

    assert [attempt.retries for attempt in handler.attempts] == [0, 1, 2, 3]
    assert failed.retries == 3


def moments_of(service: Service, retry: RetryPolicy, retries: int) -> list[float]:
    """The seconds between the attempts of a message that fails so often."""
    moments: list[float] = []

    def handle(message: Message) -> None:
        moments.append(time.monotonic())
        if message.retries < retries:
            raise RuntimeError("not yet")

    handler = Recorder(handle)
    with service.subscriber(handler, retry=retry, **BROKER):
        handler.wait_for_handled([service.publish()])
    return [later - earlier for earlier, later in itertools.pairwise(moments)]


def test_a_message_waits_for_the_same_delay_before_each_retry(service: Service) -> None:
    if not holds_back(service):
        return
    waits = moments_of(service, retrying(3, timedelta(milliseconds=300)), 3)
    assert len(waits) == 3
    assert all(wait >= 0.29 for wait in waits)


def test_delays_grow_in_the_broker_up_to_the_cap(service: Service) -> None:
    if not holds_back(service):
        return
    waits = moments_of(service, RetryPolicy(3, backoff=Linear("300ms", "600ms")), 3)
    assert len(waits) == 3
    assert waits[0] >= 0.29
    assert waits[1] >= 0.59
    assert waits[2] >= 0.59


@pytest.mark.parametrize(
    ("retry", "delays"),
    [
        (retrying(2, timedelta(milliseconds=400)), [0.4, 0.4]),
        (RetryPolicy(2, backoff=Linear("200ms", "400ms")), [0.2, 0.4]),
    ],
    ids=["constant", "linear"],
)
def test_of_hundreds_of_messages_none_comes_back_before_its_delay_is_over(
    service: Service, retry: RetryPolicy, delays: list[float]
) -> None:
    if not holds_back(service):
        return
    failed_at: dict[tuple[str | None, int], float] = {}
    waits: list[float] = []

    def handle(message: Message) -> None:
        if message.retries:
            began = time.monotonic()
            failed = failed_at[message.message_id, message.retries - 1]
            waits.append(began - failed - delays[message.retries - 1])
        if message.retries < 2:
            failed_at[message.message_id, message.retries] = time.monotonic()
            raise RuntimeError("not yet")

    handler = Recorder(handle)
    with service.subscriber(handler, retry=retry, **BROKER):
        handler.wait_for_handled(service.publish_numbered(200))

    assert len(waits) == 400
    assert min(waits) > -0.002  # its timers count whole milliseconds


def test_a_delay_that_the_handler_asks_for_goes_over_the_ladder_and_counts_one(
    service: Service,
) -> None:
    if not holds_back(service):
        return

    def handle(message: Message) -> None:
        if message.retries in (1, 3):
            raise Retry(after=timedelta(seconds=1))
        raise RuntimeError("not yet")

    handler = Recorder(handle)
    with service.subscriber(handler, retry=retrying(5, BRIEF), **BROKER):
        service.publish()
        (failed,) = service.wait_for_failed()

    assert [attempt.retries for attempt in handler.attempts] == [0, 1, 2, 3, 4, 5]
    assert failed.retries == 5


def test_messages_that_wait_hold_up_none_behind_them(service: Service) -> None:
    if not holds_back(service):
        return

    def handle(message: Message) -> None:
        if message.body == b"0":
            raise RuntimeError("not now")

    recorder = Recorder(handle)
    with service.subscriber(recorder, retry=retrying(1, timedelta(minutes=10)), **BROKER):
        ids = service.publish_numbered(20)
        recorder.wait_for_handled(ids[1:])

    assert recorder.tried[ids[0]] == 1


def test_what_was_delivered_and_not_begun_comes_back_at_once_and_uncounted_after_a_stop(
    service: Service,
) -> None:
    if not holds_back(service):
        return
    never = retrying(3, timedelta(minutes=10))
    service.declare(retry=never, **BROKER)
    ids = service.publish_numbered(400)  # four seconds, in whose middle it is stopped
    first = Recorder(lambda message: time.sleep(0.01))
    with service.subscriber(first, retry=never, **BROKER) as stopping:
        first.wait_for_attempts(5)
        stopping.stop()
        assert stopping.stopped(DEADLINE)
    second = Recorder()
    with service.subscriber(second, retry=never, **BROKER):
        wait_until(
            lambda: first.handled.keys() | second.handled.keys() >= set(ids), "all are handled"
        )

    assert {attempt.retries for attempt in second.attempts} == {0}
    assert not first.handled.keys() & second.handled.keys()


def test_what_outlasts_the_grace_and_what_waits_behind_it_is_returned_uncounted(
    service: Service,
) -> None:
    if not holds_back(service):
        return
    never = retrying(3, timedelta(minutes=10))
    service.declare(retry=never, **BROKER)
    ids = service.publish_numbered(20)
    over = threading.Event()
    first = Recorder(lambda message: over.wait(DEADLINE if message.body == b"5" else 0))
    with service.subscriber(first, retry=never, grace=0.1, **BROKER) as stopping:
        try:
            first.wait_for_attempts(6)
            stopping.stop()
            assert stopping.stopped(DEADLINE)
        finally:
            over.set()
    second = Recorder()
    with service.subscriber(second, retry=never, **BROKER):
        second.wait_for_handled(ids[5:])

    assert {attempt.retries for attempt in second.attempts} == {0}


def test_a_failed_message_that_is_requeued_has_its_whole_budget_again(service: Service) -> None:
    if not holds_back(service):
        return
    handler = Recorder(always_fails)
    with service.subscriber(handler, retry=retrying(2, BRIEF), **BROKER):
        service.publish()
        service.wait_for_failed()
        assert service.failed_queue.requeue().requeued == 1
        handler.wait_for_attempts(6)
        service.wait_for_failed()

    assert [attempt.retries for attempt in handler.attempts] == [0, 1, 2, 0, 1, 2]


def test_what_another_library_rejects_for_good_is_kept_in_the_failed_queue(
    service: Service,
) -> None:
    if not holds_back(service):
        return
    service.declare(**BROKER)
    message_id = service.publish()
    with pika.BlockingConnection(pika.URLParameters(service.url)) as connection:
        channel = connection.channel()
        method, _, _ = channel.basic_get(service.queue)
        assert method is not None
        channel.basic_nack(method.delivery_tag, requeue=False)
    (failed,) = service.wait_for_failed()

    assert failed.message_id == message_id


def test_a_message_that_kills_its_worker_each_time_ends_in_the_failed_queue(
    service: Service,
) -> None:
    if not holds_back(service):
        return
    retry = retrying(1, BRIEF, max_crashes=2)
    service.declare(retry=retry, **BROKER)
    message_id = service.publish()
    for _ in range(3):
        with pika.BlockingConnection(pika.URLParameters(service.url)) as connection:
            taken = next(connection.channel().consume(service.queue, inactivity_timeout=DEADLINE))
            assert taken[0] is not None
    handler = Recorder()
    with service.subscriber(handler, retry=retry, **BROKER):
        (failed,) = service.wait_for_failed()

    assert (failed.message_id, failed.reason) == (message_id, "crashed")
    assert handler.attempts == []
