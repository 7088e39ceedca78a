"""A subscription that somebody pauses takes no messages, wherever its workers run, until it is
resumed."""

import asyncio
import threading
import time

import pytest

from contract.support import Recorder, Service, retrying
from redrive import App, AsyncApp, Message
from redrive.pubsub.blocking import control
from redrive.pubsub.blocking.connection import Connector
from redrive.pubsub.blocking.declarer import declaring
from redrive.topology.names import ExchangeFamily
from waiting import DEADLINE, wait_until


@pytest.mark.versions("streams, and whether a message that goes back is counted")
def test_a_pause_lets_what_runs_end_and_gives_the_rest_back_uncounted_until_it_is_resumed(
    service: Service,
) -> None:
    begun, may_end = threading.Semaphore(0), threading.Event()

    def handle(message: Message) -> None:
        begun.release()
        assert may_end.wait(DEADLINE)

    handler = Recorder(handle)
    with (
        service.subscriber(handler) as one,
        service.subscriber(handler),
    ):
        ids = [service.publish() for _ in range(20)]
        for _ in range(2):
            assert begun.acquire(timeout=DEADLINE)
        order(service, "pause", reason="a migration")
        wait_until(lambda: ready_in(service) == 18, "what was not begun is back")
        may_end.set()
        wait_until(lambda: len(handler.handled) == 2, "what ran is handled")
        assert one.ready
        with service.subscriber(handler):  # one that starts later keeps to it
            assert ready_in(service) == 18
        found = control.read(Connector(service.url, "tests"), ExchangeFamily())[service.queue]
        assert (found.user, found.reason) == ("guest", "a migration")
        assert len(handler.attempts) == 2
        order(service, "resume")
        handler.wait_for_handled(ids)
    assert {attempt.retries for attempt in handler.attempts} == {0}
    assert set(handler.tried.values()) == {1}
    assert service.failed_queue.depth() == 0


@pytest.mark.versions("streams")
def test_a_pause_ends_by_itself_when_its_time_is_over(service: Service) -> None:
    handler = Recorder()
    service.declare()
    App(service.url).pause(service.queue, duration="2s")
    began = time.monotonic()
    with service.subscriber(handler):
        handler.wait_for_handled([service.publish()])
    assert time.monotonic() - began > 1


@pytest.mark.versions("streams")
def test_of_two_pauses_the_last_one_counts_and_what_can_not_be_read_costs_its_own_line(
    service: Service,
) -> None:
    app, handler = App(service.url), Recorder()
    service.declare()
    app.pause(service.queue, reason="first")
    app.pause(service.queue, reason="second", duration="1h")
    with declaring(Connector(service.url, "tests")) as declarer:
        for body in (b"\xff", b"{}", b"[" * 5000, b'{"format": 2, "queue": "shop@orders"}'):
            declarer.append("master.control", body, "")
    with service.subscriber(handler):
        service.publish()
        found = control.read(Connector(service.url, "tests"), ExchangeFamily())[service.queue]
        assert found.reason == "second"
        assert ready_in(service) == 1
        app.resume(service.queue)
        wait_until(lambda: handler.handled, "it goes on")


@pytest.mark.versions("a single active consumer")
def test_a_pause_of_an_ordered_queue_keeps_its_order(service: Service) -> None:
    handler = Recorder()
    options = {"ordered": True, "retry": retrying(3)}
    with (
        service.subscriber(handler, **options) as one,
        service.subscriber(handler, **options) as other,
    ):
        ids = [service.publish()]
        handler.wait_for_handled(ids)
        App(service.url).pause(service.queue)
        wait_until(lambda: one.paused and other.paused, "both know of it")
        ids += [service.publish() for _ in range(5)]
        assert len(handler.attempts) == 1
        App(service.url).resume(service.queue)
        handler.wait_for_handled(ids)
    assert handler.order == ids


def order(service: Service, action: str, **options: str) -> None:
    """Pauses or resumes, by an app of the service's shell."""
    if service.shell.name == "async":
        asyncio.run(getattr(AsyncApp(service.url), action)(service.queue, **options))
    else:
        getattr(App(service.url), action)(service.queue, **options)


def ready_in(service: Service) -> int:
    """How many messages are in the queue and in nobody's hands."""
    with declaring(Connector(service.url, "tests")) as declarer:
        depth = declarer.depth(service.queue)
    assert depth is not None
    return depth.messages


@pytest.mark.versions("how many consume a queue")
def test_a_rate_for_all_workers_is_divided_among_them_and_ends_when_it_is_resumed(
    service: Service,
) -> None:
    handler = Recorder()
    app = App(service.url)
    service.declare()
    app.pause(service.queue, rate=10)
    with service.subscriber(handler), service.subscriber(handler):
        with service.publisher() as publisher:
            publisher.publish_many((b"socks", "order.paid") for _ in range(200))
        handler.wait_for_attempts(25)  # by then both know that they are two
        began, before = time.monotonic(), len(handler.attempts)
        handler.wait_for_attempts(before + 30)
        assert time.monotonic() - began > 2.4
        app.resume(service.queue)
        wait_until(lambda: len(handler.handled) == 200, "all are handled at full rate")
        assert time.monotonic() - began < 15


def test_a_subscriber_has_a_rate_of_its_own(service: Service) -> None:
    handler = Recorder()
    with service.subscriber(handler, rate="20/s"):
        began = time.monotonic()
        ids = [service.publish() for _ in range(5)]
        with service.publisher() as publisher:
            publisher.publish_many((b"socks", "order.paid") for _ in range(35))
        handler.wait_for_handled(ids)
        handler.wait_for_attempts(40)
    assert time.monotonic() - began > 1.8
