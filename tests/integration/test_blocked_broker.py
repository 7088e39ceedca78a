"""A broker that is out of memory takes no messages for a while."""

import threading
from collections.abc import Iterator

import pytest

from contract.administration import Administration, Memory
from contract.shells import Shell
from contract.support import Recorder, Service, assert_it_helps, both_shells, retrying
from redrive import BrokerUnavailable, FailedQueue, Publisher, PublishTimeout
from redrive.testing import Broker
from waiting import DEADLINE

pytestmark = pytest.mark.every_broker


@pytest.fixture
def memory(
    rabbitmq_broker: Broker, rabbitmq_management_url: str, rabbitmq_url: str
) -> Iterator[Memory]:
    """The broker's memory; it is free again after the test."""
    memory = Memory(rabbitmq_broker, Administration(rabbitmq_management_url, rabbitmq_url))
    yield memory
    memory.wait_until_it_is_free()


@both_shells
def test_a_publish_that_a_blocked_broker_does_not_take_in_time_is_an_error_that_says_why(
    rabbitmq_url: str, memory: Memory, shell: Shell
) -> None:
    service = Service(rabbitmq_url, shell=shell)
    service.declare()
    with service.publisher() as publisher:
        publisher.publish("socks", "order.paid")
        memory.use_up()
        with pytest.raises(PublishTimeout) as told:
            publisher.publish("socks", "order.paid", timeout=2)

    assert_it_helps(told.value, "the broker takes no messages now", "within 2 s")


def test_a_publisher_goes_on_when_a_blocked_broker_takes_messages_again(
    rabbitmq_url: str, memory: Memory
) -> None:
    recorder = Recorder()
    published: list[str] = []
    with (
        Service(rabbitmq_url).subscriber(recorder),
        Publisher(rabbitmq_url, timeout=2 * DEADLINE) as publisher,
    ):
        publisher.publish("socks", "order.paid")
        memory.use_up()
        thread = threading.Thread(
            target=lambda: published.extend(
                [publisher.publish("socks", "order.paid") for _ in range(20)]
            )
        )
        thread.start()
        thread.join(2)
        assert thread.is_alive()
        memory.free()
        thread.join(2 * DEADLINE)

        assert len(published) == 20
        recorder.wait_for_handled(published)


@both_shells
def test_publish_many_reports_what_a_blocked_broker_did_not_take(
    rabbitmq_url: str, memory: Memory, shell: Shell
) -> None:
    service = Service(rabbitmq_url, shell=shell)
    service.declare()
    with service.publisher() as publisher:
        memory.use_up()
        report = publisher.publish_many([("socks", "order.paid")] * 5000, timeout=2)

    assert report.confirmed + len(report.failed) == 5000
    assert len(report.failed) >= 1000
    assert all(
        isinstance(failed.error, PublishTimeout | BrokerUnavailable) for failed in report.failed
    )


def test_messages_are_handled_while_the_broker_takes_no_new_ones(
    rabbitmq_url: str, memory: Memory
) -> None:
    service = Service(rabbitmq_url)
    recorder = Recorder()
    service.declare()
    ids = service.publish_numbered(20)
    memory.use_up()
    with service.subscriber(recorder):
        recorder.wait_for_handled(ids)


@both_shells
def test_a_message_to_be_set_aside_waits_until_the_broker_takes_it(
    rabbitmq_url: str, memory: Memory, shell: Shell
) -> None:
    service = Service(rabbitmq_url, shell=shell)
    recorder = Recorder(lambda _: 1 / 0)
    service.declare()
    ids = service.publish_numbered(3)
    memory.use_up()
    with service.subscriber(recorder, retry=retrying(0)):
        recorder.wait_for_attempts(1)
        memory.free()
        service.wait_for_failed(3)

    assert sorted(service.failed_ids()) == sorted(ids)


def test_a_requeue_that_a_blocked_broker_stops_says_so_and_loses_nothing(
    rabbitmq_url: str, memory: Memory
) -> None:
    service = Service(rabbitmq_url)
    ids = service.fail(300)
    memory.use_up()
    with pytest.raises(BrokerUnavailable) as told:
        FailedQueue(rabbitmq_url, service.queue, timeout=2).requeue()
    memory.free()
    recorder = Recorder()
    with service.subscriber(recorder):
        FailedQueue(rabbitmq_url, service.queue).requeue()
        recorder.wait_for_handled(ids)

    assert_it_helps(told.value, "within 2 s")
