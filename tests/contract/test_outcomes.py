"""What subscribers of both shells tell of messages that a job has sent back."""

from collections import Counter

from contract.support import Service, wait_until
from redrive import FailedQueue, Message


def fails_for_odd_ones(message: Message) -> None:
    if int(message.body) % 2:
        raise ValueError("odd")


def test_a_subscriber_tells_what_became_of_messages_that_were_sent_back(service: Service) -> None:
    service.fail(10)
    failed = FailedQueue(service.url, service.queue)
    heard: Counter[str] = Counter()

    def listen() -> bool:
        for outcomes in failed.heard("after-the-fix"):
            assert outcomes.queue == service.queue
            heard.update(handled=outcomes.handled, failed=outcomes.failed)
        return heard.total() >= 10

    failed.listen("after-the-fix")
    with service.subscriber(fails_for_odd_ones):
        failed.requeue(job="after-the-fix")
        wait_until(listen, "all outcomes are told")
    assert heard == {"handled": 5, "failed": 5}


def test_without_anybody_who_listens_messages_are_handled_all_the_same(service: Service) -> None:
    service.fail(3)
    with service.subscriber(fails_for_odd_ones):
        FailedQueue(service.url, service.queue).requeue(job="nobody-listens")
        assert [message.body for message in service.wait_for_failed(1)] == [b"1"]
        assert FailedQueue(service.url, service.queue).heard("nobody-listens") == []
