"""Requeueing failed messages: which, in what order, and as what."""

import pika
import pytest

from contract.plain import depth, plain_channel
from contract.support import Recorder, Service, always_fails, assert_it_helps, both_types, retrying
from effort import effort
from redrive import ConfigurationError, FailedMessage, Filter, Message, RequeueProgress
from redrive.topology import headers


@both_types
def test_all_are_requeued_and_handled(service: Service) -> None:
    ids = service.fail(10)
    recorder = Recorder()
    with service.subscriber(recorder):
        report = service.failed_queue.requeue()
        recorder.wait_for_handled(ids)

    assert (
        report.requeued,
        report.skipped,
        report.failed,
        report.possible_duplicates,
        report.cancelled,
    ) == (10, 0, [], 0, False)
    assert recorder.order == ids
    assert service.failed() == []


@both_types
def test_the_first_few_are_requeued_and_the_rest_keeps_its_order(service: Service) -> None:
    ids = service.fail(10)
    report = service.failed_queue.requeue(limit=3)

    assert report.requeued == 3
    assert service.failed_ids() == ids[3:]
    assert depth(service.url, service.queue) == 3


@both_types
def test_those_that_a_function_means_are_requeued_and_the_rest_keeps_its_order(
    service: Service,
) -> None:
    ids = service.fail(20)
    wanted = set(ids[::3])
    recorder = Recorder()
    report = service.failed_queue.requeue(lambda message: message.message_id in wanted)

    assert (report.requeued, report.skipped) == (7, 13)
    assert service.failed_ids() == [message_id for message_id in ids if message_id not in wanted]
    with service.subscriber(recorder):
        recorder.wait_for_handled(wanted)
    assert recorder.order == ids[::3]


@both_types
def test_the_first_few_that_a_function_means_are_requeued(service: Service) -> None:
    ids = service.fail(20)
    wanted = ids[1::2]
    report = service.failed_queue.requeue(lambda message: message.message_id in wanted, limit=4)

    assert report.requeued == 4
    assert service.failed_ids() == [
        message_id for message_id in ids if message_id not in wanted[:4]
    ]


def test_a_filter_may_be_an_expression_and_may_name_messages_besides(service: Service) -> None:
    ids = service.fail(4)
    queue = service.failed_queue
    first, second, *_ = queue.browse()
    named = Filter("size > 0", digests={first.digest, second.digest})

    assert queue.requeue("size > 1000000").skipped == 4
    assert queue.requeue(named).requeued == 2
    assert queue.discard(f"message_id = '{ids[2]}'").discarded == 1
    assert service.failed_ids() == ids[3:]


@both_types
def test_a_predicate_can_ask_for_anything_that_is_known_of_the_failure(service: Service) -> None:
    def handler(message: Message) -> None:
        if message.body == b"1":
            raise KeyError("size")
        raise ValueError("colour")

    service.declare()
    service.publish_numbered(3)
    with service.subscriber(handler, retry=retrying(0)):
        service.wait_for_failed(3)
    report = service.failed_queue.requeue(lambda message: message.error_type == "KeyError")

    assert report.requeued == 1
    assert [message.body for message in service.failed()] == [b"0", b"2"]


def test_a_predicate_that_raises_leaves_everything_where_it_is(service: Service) -> None:
    ids = service.fail(10)

    def where(message: FailedMessage) -> bool:
        raise LookupError("no such thing")

    with pytest.raises(LookupError):
        service.failed_queue.requeue(where)
    assert service.failed_ids() == ids


@both_types
def test_a_message_that_fails_again_meanwhile_stays_in_the_failed_queue(service: Service) -> None:
    ids = service.fail(30)
    with service.subscriber(always_fails, retry=retrying(0)):
        report = service.failed_queue.requeue()
        again = service.wait_for_failed(30)

    assert report.requeued == 30
    assert sorted(message.message_id or "" for message in again) == sorted(ids)
    assert {message.redrive_count for message in again} == {1}


@pytest.mark.versions("how the broker counts deaths")
@both_types
def test_a_message_that_is_requeued_has_a_fresh_budget(service: Service) -> None:
    first, second = Recorder(always_fails), Recorder(always_fails)
    with service.subscriber(first):
        service.publish()
        service.wait_for_failed()
    with service.subscriber(second):
        service.failed_queue.requeue()
        second.wait_for_attempts(4)
        (failed,) = service.wait_for_failed()

    assert [attempt.retries for attempt in second.attempts] == [0, 1, 2, 3]
    assert failed.retries == 3


@both_types
def test_what_was_said_of_the_failure_is_taken_off_and_the_rest_is_kept(service: Service) -> None:
    seen = Recorder()
    with service.subscriber(always_fails, retry=retrying(1)):
        service.publish(headers={"tenant": "acme"})
        (failed,) = service.wait_for_failed()
    with service.subscriber(seen):
        report = service.failed_queue.requeue(job="after-the-fix")
        seen.wait_for_handled([failed.message_id or ""])

    (attempt,) = seen.attempts
    assert attempt.headers == {
        "tenant": "acme",
        headers.ORIG_ROUTING_KEY: "order.paid",
        headers.FIRST_FAILED_AT: failed.headers[headers.FIRST_FAILED_AT],
        headers.COUNT: 1,
        headers.JOB: "after-the-fix",
        headers.ORIG_EXCHANGE: "master",
    }
    assert attempt.routing_key == "order.paid"
    assert report.job == "after-the-fix"


@both_types
def test_each_requeue_raises_the_count(service: Service) -> None:
    service.fail(1)
    for count in (1, 2, 3):
        recorder = Recorder(always_fails)
        with service.subscriber(recorder, retry=retrying(0)):
            service.failed_queue.requeue()
            recorder.wait_for_attempts(1)
            (failed,) = service.wait_for_failed()
        assert failed.redrive_count == count


@both_types
def test_each_failure_has_an_identity_of_its_own_and_one_beginning(service: Service) -> None:
    service.fail(1)
    (first,) = service.failed()
    recorder = Recorder(always_fails)
    with service.subscriber(recorder, retry=retrying(0)):
        service.failed_queue.requeue()
        recorder.wait_for_attempts(1)
        (second,) = service.wait_for_failed()

    assert first.failure_id != second.failure_id
    assert first.first_failed_at == second.first_failed_at
    assert first.failed_at is not None
    assert second.failed_at is not None
    assert first.failed_at < second.failed_at


@pytest.mark.versions("x-death")
@both_types
def test_messages_that_a_peer_set_aside_are_requeued_too(service: Service) -> None:
    service.declare()
    with plain_channel(service.url) as channel:
        for number in range(5):
            properties = pika.BasicProperties(delivery_mode=2)  # type: ignore[no-untyped-call]
            channel.basic_publish(
                "master.failed", service.queue, str(number).encode(), properties, mandatory=True
            )
    shown = service.failed()
    recorder = Recorder()
    with service.subscriber(recorder):
        report = service.failed_queue.requeue()
        recorder.wait_for_attempts(5)

    assert len({message.failure_id for message in shown}) == 5
    assert {message.own_failure_id for message in shown} == {None}
    assert report.requeued == 5
    assert [attempt.body for attempt in recorder.attempts] == [b"0", b"1", b"2", b"3", b"4"]
    assert service.failed() == []


def test_a_requeue_tells_how_far_it_is(service: Service) -> None:
    service.fail(10)
    told: list[RequeueProgress] = []
    service.failed_queue.requeue(on_progress=told.append)

    assert told
    assert told[-1] == RequeueProgress(total=10, looked_at=10, requeued=10)
    assert [progress.requeued for progress in told] == sorted(
        progress.requeued for progress in told
    )


def test_an_empty_failed_queue_is_nothing_to_requeue(service: Service) -> None:
    service.declare()
    report = service.failed_queue.requeue()

    assert (report.requeued, report.skipped, report.failed) == (0, 0, [])


def test_what_was_requeued_is_out_of_the_failed_queue_when_the_call_returns(
    service: Service,
) -> None:
    service.declare()
    count = effort(8, nightly=20)
    for number in range(count):
        with plain_channel(service.url) as channel:
            properties = pika.BasicProperties(delivery_mode=2, message_id=str(number))  # type: ignore[no-untyped-call]
            channel.basic_publish("master.failed", service.queue, b"", properties, mandatory=True)
        assert service.failed_queue.requeue().requeued == 1
        assert service.failed() == []
    assert depth(service.url, service.queue) == count


def test_a_main_queue_that_is_not_there_is_an_error_before_anything_is_taken(
    service: Service,
) -> None:
    ids = service.fail(3)
    with plain_channel(service.url) as channel:
        channel.queue_delete(service.queue)
    with pytest.raises(ConfigurationError) as told:
        service.failed_queue.requeue()

    assert_it_helps(told.value, "there is no queue 'shop@orders'")
    assert service.failed_ids() == ids


def test_what_was_requeued_too_often_stays_unless_it_is_forced(service: Service) -> None:
    service.set_aside(4)
    service.set_aside_declared(3, {"redrive-count": 5})
    service.set_aside_declared(2, {"redrive-count": 4})
    report = service.failed_queue.requeue()
    assert (report.requeued, report.skipped, report.too_often) == (6, 3, 3)
    assert [message.redrive_count for message in service.failed()] == [5, 5, 5]
    forced = service.failed_queue.requeue(force=True)
    assert (forced.requeued, forced.too_often) == (3, 0)


def test_what_was_requeued_too_often_is_in_the_way_of_none(service: Service) -> None:
    service.set_aside(0)
    service.set_aside_declared(5, {"redrive-count": 5})
    service.set_aside_declared(4)
    report = service.failed_queue.requeue(limit=3)
    assert (report.requeued, report.too_often) == (3, 5)
    assert depth(service.url, service.queue) == 3
    assert [message.redrive_count for message in service.failed()] == [5, 5, 5, 5, 5, 0]
