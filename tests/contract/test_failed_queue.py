"""What else can be done with a failed queue: deleting, restoring, editing, hearing of outcomes."""

from contract.support import Recorder, Service
from redrive import FailedMessage, FailedQueue
from waiting import wait_until


def is_even(message: FailedMessage) -> bool:
    return int(message.message_id or "") % 2 == 0


def test_what_a_function_picks_is_deleted_and_the_rest_keeps_its_order(service: Service) -> None:
    service.set_aside(10)
    report = service.failed_queue.discard(is_even)
    assert (report.discarded, report.skipped, report.cancelled) == (5, 5, False)
    assert service.failed_ids() == ["1", "3", "5", "7", "9"]


def test_the_oldest_are_deleted_up_to_a_limit(service: Service) -> None:
    service.set_aside(10)
    assert service.failed_queue.discard(limit=4).discarded == 4
    assert service.failed_ids() == ["4", "5", "6", "7", "8", "9"]


def test_what_was_deleted_is_restored_from_its_copy(service: Service) -> None:
    ids = service.set_aside(3)
    failed = service.failed_queue
    copies = [message.delivery for message in failed.browse()]
    assert failed.discard().discarded == 3
    assert failed.restore(copies).confirmed == 3
    assert service.failed_ids() == ids


def test_a_requeue_edits_bodies_and_sends_to_another_queue(service: Service) -> None:
    service.set_aside(2)
    Service(service.url, service.shell, queue="shop@others").declare()
    report = service.failed_queue.requeue(
        to="shop@others", edit=lambda message: b"edited", rate=100.0
    )
    assert report.requeued == 2
    recorder = Recorder()
    with Service(service.url, service.shell, queue="shop@others").subscriber(recorder):
        recorder.wait_for_handled(["0", "1"])
    assert {attempt.body for attempt in recorder.attempts} == {b"edited"}


def test_what_subscribers_tell_of_a_requeue_is_watched(service: Service) -> None:
    service.set_aside(3)
    failed, recorder = service.failed_queue, Recorder()
    with failed.watch("the job") as watch, service.subscriber(recorder):
        failed.requeue(job="the job")
        recorder.wait_for_handled(["0", "1", "2"])
        wait_until(lambda: watch.standing.succeeded == 3, "all outcomes are told")


def test_how_long_a_retry_waits_is_told(service: Service) -> None:
    service.declare()
    assert FailedQueue(service.url, service.queue)._retry_delay() == service.retry.delay
