"""A subscriber at work: who runs at the same time, who takes over, who shares."""

import threading
import time

import pytest

from contract.administration import Administration
from contract.plain import plain_channel, wait_for_consumers
from contract.support import Recorder, Service, always_fails, assert_it_helps, both_types, retrying
from redrive import ConfigurationError, Message
from waiting import DEADLINE, wait_until


@both_types
def test_as_many_handlers_run_at_the_same_time_as_asked_for(service: Service) -> None:
    lock, released = threading.Lock(), threading.Event()
    running = most = 0

    def handler(message: Message) -> None:
        nonlocal running, most
        with lock:
            running += 1
            most = max(most, running)
        released.wait(DEADLINE)
        with lock:
            running -= 1

    recorder = Recorder(handler)
    with service.subscriber(recorder, concurrency=4):
        ids = service.publish_numbered(8)
        wait_until(lambda: running >= 4, "four of them run")
        released.set()
        recorder.wait_for_handled(ids)

    assert most == 4
    assert set(recorder.tried.values()) == {1}


def test_one_handler_at_a_time_gets_messages_in_their_order(service: Service) -> None:
    recorder = Recorder()
    with service.subscriber(recorder):
        ids = service.publish_numbered(100)
        recorder.wait_for_handled(ids)

    assert recorder.order == ids


def test_two_workers_share_a_queue(service: Service) -> None:
    one, other = Recorder(lambda _: time.sleep(0.02)), Recorder(lambda _: time.sleep(0.02))
    with service.subscriber(one, prefetch=1), service.subscriber(other, prefetch=1):
        wait_for_consumers(service.url, service.queue, 2)
        ids = service.publish_numbered(40)
        wait_until(
            lambda: set(ids) <= (one.handled.keys() | other.handled.keys()), "all are handled"
        )

    assert one.handled
    assert other.handled
    assert one.handled + other.handled == dict.fromkeys(ids, 1)


@both_types
def test_a_handler_that_takes_too_long_is_a_failed_attempt_and_another_thread_takes_over(
    service: Service,
) -> None:
    released = threading.Event()

    def handler(message: Message) -> None:
        if message.body == b"hangs":
            released.wait(DEADLINE)

    recorder = Recorder(handler)
    try:
        with service.subscriber(recorder, handler_timeout=3, retry=retrying(1)):
            service.publish("hangs")
            good = service.publish("good")
            recorder.wait_for_handled([good])
            (failed,) = service.wait_for_failed()
            released.set()
    finally:
        released.set()

    assert failed.body == b"hangs"
    assert failed.retries == 1
    assert failed.error_type == "redrive.errors.HandlerTimeout"
    assert failed.traceback is not None
    assert service.shell.hangs_in in failed.traceback


def test_what_a_handler_returns_after_its_time_is_dropped(service: Service) -> None:
    released = threading.Event()
    recorder = Recorder(lambda _: released.wait(DEADLINE))
    try:
        with service.subscriber(recorder, handler_timeout=3, retry=retrying(0)) as subscriber:
            message_id = service.publish()
            (failed,) = service.wait_for_failed()
            released.set()
            wait_until(lambda: subscriber.hung == 0, "none is counted as hung any more")
            recorder.wait_for_handled([message_id])
            after = service.publish()
            recorder.wait_for_handled([after])
    finally:
        released.set()

    assert service.failed_ids() == [failed.message_id] == [message_id]


def test_a_subscriber_that_stops_finishes_what_runs_and_gives_the_rest_back(
    service: Service,
) -> None:
    begun, released = threading.Event(), threading.Event()

    def handler(message: Message) -> None:
        begun.set()
        released.wait(DEADLINE)

    first, second = Recorder(handler), Recorder()
    with service.subscriber(first) as running:
        ids = service.publish_numbered(5)
        assert begun.wait(DEADLINE)
        running.stop()
        released.set()
        assert running.stopped(DEADLINE)
    with service.subscriber(second):
        second.wait_for_handled(ids[1:])

    assert first.order == ids[:1]
    assert second.order == ids[1:]


@pytest.mark.parametrize("declare", [True, False])
def test_a_subscriber_can_be_stopped_at_any_moment_of_its_start(
    service: Service, declare: bool
) -> None:
    service.declare()
    for milliseconds in range(0, 40, 2):
        with service.shell.subscriber(
            Recorder(), service.url, service.queue, declare=declare, retry=service.retry
        ) as running:
            time.sleep(milliseconds / 1000)
            running.stop()


def test_a_subscriber_that_must_not_declare_uses_what_is_there(service: Service) -> None:
    service.declare()
    recorder = Recorder()
    with service.subscriber(recorder, declare=False):
        message_id = service.publish()
        recorder.wait_for_handled([message_id])


def test_a_subscriber_that_must_not_declare_says_what_is_missing(service: Service) -> None:
    with (
        pytest.raises(ConfigurationError) as told,
        service.shell.subscriber(Recorder(), service.url, service.queue, declare=False) as running,
    ):
        assert running.stopped(DEADLINE)

    assert_it_helps(told.value, "no queue 'shop@orders'")


def test_declaring_twice_changes_nothing(service: Service) -> None:
    service.declare()
    service.publish()
    service.declare()

    recorder = Recorder()
    with service.subscriber(recorder):
        recorder.wait_for_attempts(1)


def test_a_queue_bound_to_several_patterns_gets_a_message_once(service: Service) -> None:
    recorder = Recorder()
    with service.subscriber(recorder, routing_keys=("order.*", "order.paid", "#")):
        message_id = service.publish()
        last = service.publish(routing_key="user.created")
        recorder.wait_for_handled([message_id, last])

    assert set(recorder.tried.values()) == {1}


def test_the_broker_shows_the_name_that_a_connection_was_given(
    service: Service, rabbitmq_management_url: str
) -> None:
    administration = Administration(rabbitmq_management_url, service.url)
    with (
        service.subscriber(Recorder(), connection_name="orders of the shop"),
        service.publisher(connection_name="the till"),
    ):
        administration.wait_for_connection("orders of the shop")
        administration.wait_for_connection("the till")


def test_a_connection_without_a_name_tells_what_it_is_for(
    service: Service, rabbitmq_management_url: str
) -> None:
    administration = Administration(rabbitmq_management_url, service.url)
    with service.subscriber(Recorder()):
        wait_until(
            lambda: any(
                name.startswith("redrive subscriber shop@orders on ")
                for name in administration.connection_names()
            ),
            "the subscriber is listed",
        )


@both_types
@pytest.mark.parametrize("what", ["exchange", "queue"])
def test_a_message_is_not_lost_when_the_place_for_failed_ones_was_deleted(
    service: Service, what: str
) -> None:
    with service.subscriber(always_fails, retry=retrying(1)):
        service.publish()
        service.wait_for_failed()
        with plain_channel(service.url) as channel:
            channel.exchange_delete(
                "master.failed"
            ) if what == "exchange" else channel.queue_delete("shop@orders@failed")
        message_id = service.publish()
        wait_until(
            lambda: _is_there(service) and message_id in service.failed_ids(),
            "the message is set aside",
        )


def _is_there(service: Service) -> bool:
    try:
        service.failed_queue.depth()
    except ConfigurationError:
        return False
    return True
