"""A broker that is out of memory takes no messages for a while."""

import threading
import time
from collections.abc import Iterator

import pytest

from contract.administration import Administration, Memory
from contract.apps import APPS, DrivenApp
from contract.plain import depth
from contract.shells import ASYNC, BLOCKING, Shell
from contract.support import (
    Recorder,
    Service,
    always_fails,
    assert_it_helps,
    both_shells,
    mostly,
    retrying,
)
from effort import nightly
from redrive import BrokerUnavailable, FailedQueue, Message, Publisher, PublishTimeout
from redrive.testing import Broker
from waiting import DEADLINE, wait_until

pytestmark = pytest.mark.versions("how the broker blocks whoever publishes")


@pytest.fixture
def memory(
    rabbitmq_broker: Broker, rabbitmq_management_url: str, rabbitmq_url: str
) -> Iterator[Memory]:
    """The broker's memory; it is free again after the test."""
    memory = Memory(rabbitmq_broker, Administration(rabbitmq_management_url, rabbitmq_url))
    yield memory
    memory.free()


@mostly(ASYNC)
def test_a_publish_that_a_blocked_broker_does_not_take_in_time_is_an_error_that_says_why(
    rabbitmq_url: str, memory: Memory, shell: Shell
) -> None:
    service = Service(rabbitmq_url, shell=shell)
    service.declare()
    with service.publisher() as publisher:
        publisher.publish("socks", "order.paid")
        memory.use_up()
        with pytest.raises(PublishTimeout) as told:
            wait_until(
                lambda: not publisher.publish("socks", "order.paid", timeout=5),
                "the publisher is blocked",
            )

    assert_it_helps(told.value, "the broker takes no messages now", "within 5 s")


def test_a_publisher_goes_on_when_a_blocked_broker_takes_messages_again(
    rabbitmq_url: str, memory: Memory
) -> None:
    recorder = Recorder()
    published: list[str] = []
    freed = threading.Event()

    def publish() -> None:
        while not freed.is_set() or len(published) < 20:
            published.append(publisher.publish("socks", "order.paid"))

    def nothing_moves() -> bool:
        before = len(published)
        time.sleep(1)
        return len(published) == before

    with (
        Service(rabbitmq_url).subscriber(recorder),
        Publisher(rabbitmq_url, timeout=2 * DEADLINE) as publisher,
    ):
        publisher.publish("socks", "order.paid")
        memory.use_up()
        thread = threading.Thread(target=publish)
        thread.start()
        # A connection hears a moment later that it is blocked.
        wait_until(nothing_moves, "the publisher waits")
        assert thread.is_alive()
        memory.free()
        freed.set()
        thread.join(2 * DEADLINE)

        assert len(published) >= 20
        recorder.wait_for_handled(published)


@mostly(BLOCKING)
@pytest.mark.nightly("another blocked publisher is tried each time")
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


@pytest.mark.nightly("an app is tried each time, with three subscribers")
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


@pytest.mark.nightly("another blocked publisher is tried each time")
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


@pytest.mark.parametrize(
    "driven",
    [APPS[0], *(nightly(app, why="the other shell") for app in APPS[1:])],
    ids=lambda one: one.name,
)
def test_while_what_fails_waits_to_be_moved_an_app_handles_and_acks_the_rest(
    rabbitmq_url: str,
    memory: Memory,
    driven: type[DrivenApp],
    caplog: pytest.LogCaptureFixture,
) -> None:
    names = ["orders", "users", "bills"]
    begun = threading.Semaphore(0)
    go_on, held_up = threading.Event(), threading.Event()
    rest = Recorder(lambda _: held_up.wait(DEADLINE))

    def fail(message: Message) -> None:
        begun.release()
        assert go_on.wait(DEADLINE)
        always_fails(message)

    with driven(rabbitmq_url, retry=retrying(0)) as app:
        recorders = [Recorder(fail) for _ in names]
        for name, recorder in zip(names, recorders, strict=True):
            app.subscriber(app.app, recorder, f"shop@{name}", name)
        app.subscriber(app.app, rest, "shop@rest", "rest", prefetch=1)
        with app.running():
            ids = [app.publisher.publish("socks", "rest") for _ in range(20)]
            for name in names:
                app.publisher.publish("socks", name)
            for _ in names:
                assert begun.acquire(timeout=DEADLINE)
            memory.use_up()
            go_on.set()
            wait_until(
                lambda: "the broker takes no messages" in caplog.text, "the app's moves are held up"
            )
            held_up.set()
            rest.wait_for_handled(ids)  # with a prefetch of 1 each comes once the last is acked
            memory.free()
            wait_until(
                lambda: all(depth(rabbitmq_url, f"shop@{name}@failed") == 1 for name in names),
                "all are set aside",
            )

    assert [len(recorder.attempts) for recorder in recorders] == [1, 1, 1]
    assert caplog.text.count("the broker takes no messages") == 1
