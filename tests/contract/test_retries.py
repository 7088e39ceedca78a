"""A message that keeps failing is tried as often as its budget says, and is then set aside with the
reason."""

import itertools
import socket
from datetime import UTC, datetime, timedelta

import pytest

from contract.support import (
    OutOfStock,
    Recorder,
    Service,
    always_fails,
    both_types,
    fails_first,
    retrying,
)
from redrive import Message


@pytest.mark.versions("how the broker counts deaths")
@both_types
@pytest.mark.parametrize("max_retries", [0, 1, 3, 25])
def test_a_message_that_always_fails_is_tried_once_more_than_its_retries(
    service: Service, max_retries: int
) -> None:
    handler = Recorder(always_fails)
    with service.subscriber(handler, retry=retrying(max_retries, timedelta(milliseconds=20))):
        service.publish()
        service.wait_for_failed()

    assert [attempt.retries for attempt in handler.attempts] == list(range(max_retries + 1))
    assert service.failed()[0].retries == max_retries


@pytest.mark.versions("x-death")
@both_types
def test_a_message_that_was_set_aside_tells_what_happened(service: Service) -> None:
    before = datetime.now(UTC) - timedelta(seconds=1)
    with service.subscriber(always_fails):
        message_id = service.publish(b"socks", "order.paid", headers={"tenant": "acme"})
        (failed,) = service.wait_for_failed()

    assert failed.message_id == message_id
    assert failed.body == b"socks"
    assert failed.headers["tenant"] == "acme"
    assert failed.routing_key == "order.paid"
    assert failed.exchange == "master"
    assert failed.error_type == f"{OutOfStock.__module__}.OutOfStock"
    assert failed.error_message == f"no more socks for {message_id}"
    assert failed.traceback is not None
    assert "in always_fails" in failed.traceback
    assert failed.reason == "retries-exhausted"
    assert failed.retries == 3
    assert failed.host == socket.gethostname()
    assert failed.failure_id == failed.own_failure_id
    assert failed.first_failed_at is not None
    assert failed.failed_at is not None
    # RabbitMQ notes the first rejection to the second.
    assert (
        before.replace(microsecond=0)
        <= failed.first_failed_at
        <= failed.failed_at
        <= datetime.now(UTC)
    )


@both_types
def test_every_attempt_sees_the_message_as_it_was_published(service: Service) -> None:
    handler = Recorder(always_fails)
    with service.subscriber(handler):
        message_id = service.publish(
            b'{"item": "socks"}', "order.paid", headers={"tenant": "acme", "priority": 7}
        )
        service.wait_for_failed()

    assert len(handler.attempts) == 4
    for attempt in handler.attempts:
        assert attempt.message_id == message_id
        assert attempt.body == b'{"item": "socks"}'
        assert attempt.routing_key == "order.paid"
        assert attempt.headers["tenant"] == "acme"
        assert attempt.headers["priority"] == 7


@both_types
def test_a_message_that_recovers_is_handled_and_not_set_aside(service: Service) -> None:
    handler = Recorder(fails_first(2))
    with service.subscriber(handler):
        message_id = service.publish()
        handler.wait_for_handled([message_id])

    assert [attempt.retries for attempt in handler.attempts] == [0, 1, 2]
    assert service.failed() == []


@both_types
def test_a_message_waits_for_its_delay_before_each_retry(service: Service) -> None:
    moments: list[datetime] = []

    def handler(message: Message) -> None:
        moments.append(datetime.now(UTC))
        raise OutOfStock

    with service.subscriber(handler, retry=retrying(2, timedelta(milliseconds=300))):
        service.publish()
        service.wait_for_failed()

    waits = [later - earlier for earlier, later in itertools.pairwise(moments)]
    assert len(waits) == 2
    assert all(wait >= timedelta(milliseconds=290) for wait in waits)


@both_types
def test_messages_that_fail_do_not_hold_up_those_behind_them(service: Service) -> None:
    def handle(message: Message) -> None:
        if recorder.attempts[-1].body == b"0":
            raise OutOfStock

    recorder = Recorder(handle)
    with service.subscriber(recorder, retry=retrying(1, timedelta(minutes=10))):
        ids = service.publish_numbered(10)
        recorder.wait_for_handled(ids[1:])

    assert recorder.tried[ids[0]] == 1
