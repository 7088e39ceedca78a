"""Many messages requeued at a time, each followed by its id."""

from collections import Counter

from contract.plain import drain
from contract.support import Recorder, Service, both_types
from effort import effort
from redrive import FailedQueue
from redrive.topology.model import QueueType
from waiting import wait_until

MANY = effort(3_000, nightly=10_000)
"""Several windows of confirms."""


@both_types
def test_thousands_of_messages_are_requeued_and_handled_once_each(
    rabbitmq_url: str, queue_type: QueueType
) -> None:
    service = Service(rabbitmq_url, queue_type=queue_type)
    ids = service.set_aside(MANY)
    recorder = Recorder()
    with service.subscriber(recorder, prefetch=500):
        report = service.failed_queue.requeue()
        recorder.wait_for_handled(ids)

    assert report.requeued == MANY
    assert recorder.handled == dict.fromkeys(ids, 1)
    assert service.failed() == []


def test_a_hundredth_of_five_thousand_is_requeued_and_the_rest_keeps_its_order(
    rabbitmq_url: str,
) -> None:
    service = Service(rabbitmq_url)
    ids = service.set_aside(5000)
    wanted = ids[50::100]
    chosen = set(wanted)
    report = service.failed_queue.requeue(lambda message: message.message_id in chosen)

    assert (report.requeued, report.skipped, report.failed) == (50, 4950, [])
    wait_until(lambda: service.failed_queue.depth() == 4950, "those left are back")
    assert service.failed_ids() == [message_id for message_id in ids if message_id not in chosen]
    assert [properties.message_id for properties, _ in drain(service.url, service.queue)] == wanted


def test_large_messages_are_requeued_too(rabbitmq_url: str) -> None:
    service = Service(rabbitmq_url)
    body = b"x" * 2_000_000
    service.declare()
    with service.publisher(exchange="master") as publisher:
        ids = [publisher.publish(body, "order.paid", mandatory=True) for _ in range(40)]
    with service.subscriber(
        lambda _: 1 / 0, retry=service.retry.__class__(max_retries=0, delay=service.retry.delay)
    ):
        service.wait_for_failed(40)
    report = service.failed_queue.requeue(lambda message: message.message_id in ids[::2])
    recorder = Recorder()
    with service.subscriber(recorder):
        recorder.wait_for_handled(ids[::2])

    assert report.requeued == 20
    assert {len(attempt.body) for attempt in recorder.attempts} == {2_000_000}
    assert set(service.failed_ids()) == set(ids[1::2])


def test_what_is_picked_out_of_very_many_is_sent_once_and_the_rest_keeps_its_order(
    rabbitmq_url: str,
) -> None:
    count = effort(8_000, nightly=40_000)
    service = Service(rabbitmq_url)
    ids = service.set_aside(count)
    failed = FailedQueue(rabbitmq_url, service.queue)

    sent = failed.requeue(lambda message: int(message.failure_id) % 7 == 0)
    main = Counter(
        str(properties.message_id) for properties, _ in drain(rabbitmq_url, service.queue)
    )
    left = [message.message_id for message in failed.browse()]

    assert (sent.requeued, sent.skipped, sent.possible_duplicates) == (
        len(ids[::7]),
        count - len(ids[::7]),
        0,
    )
    assert main == Counter(ids[::7])
    assert left == [message_id for message_id in ids if int(message_id) % 7]


@both_types
def test_what_is_left_keeps_its_order_where_all_that_is_picked_came_last(
    rabbitmq_url: str, queue_type: QueueType
) -> None:
    # Each ack lets the broker send one more, and so makes room for what the first messages' return
    # puts into the queue.
    service = Service(rabbitmq_url, queue_type=queue_type)
    ids = service.set_aside(MANY)
    wanted = ids[MANY // 2 + 1 :: 2]
    chosen = set(wanted)
    failed = FailedQueue(rabbitmq_url, service.queue)
    sent = failed.requeue(lambda message: message.failure_id in chosen)

    assert (sent.requeued, sent.possible_duplicates) == (len(wanted), 0)
    assert [message.message_id for message in failed.browse()] == [
        message_id for message_id in ids if message_id not in chosen
    ]
