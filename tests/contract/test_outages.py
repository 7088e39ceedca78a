"""While something that handlers need is down, messages stay in their queue, and lose nothing."""

import threading

import pytest

from contract.support import Recorder, Service, both_types, retrying
from redrive import DependencyDown, Exponential, Message, Outage
from waiting import DEADLINE, wait_until

WORKERS, CONCURRENCY, MESSAGES = 2, 4, 150
PROBE = Exponential("50ms", cap="300ms")
AT_ONCE = WORKERS * CONCURRENCY


class Dependency:
    """What the handlers call. It goes down while as many run as can."""

    def __init__(self, error: BaseException) -> None:
        self._error = error
        self._lock = threading.Lock()
        self._at_once = threading.Barrier(AT_ONCE)
        self._calls = self._running = 0
        self.failed = self.most = 0
        self.is_down = True

    def __call__(self, message: Message) -> None:
        with self._lock:
            self._calls += 1
            self._running += 1
            self.most = max(self.most, self._running)
            is_of_the_first = self._calls <= AT_ONCE
        try:
            if is_of_the_first:
                self._at_once.wait(DEADLINE)
            if self.is_down:
                with self._lock:
                    self.failed += 1
                raise self._error
        finally:
            with self._lock:
                self._running -= 1


@pytest.mark.versions("whether a message that goes back is counted")
@both_types
@pytest.mark.parametrize(
    ("error", "outage"),
    [
        pytest.param(
            ConnectionError("refused"), Outage(on=ConnectionError, probe=PROBE), id="an-exception"
        ),
        pytest.param(
            DependencyDown("503", "billing"), Outage(probe=PROBE, name="billing"), id="a-handler"
        ),
    ],
)
def test_an_outage_costs_the_first_failure_of_each_worker_and_one_attempt_for_each_try(
    service: Service, error: BaseException, outage: Outage
) -> None:
    dependency = Dependency(error)
    handler = Recorder(dependency)
    options = {"retry": retrying(3), "concurrency": CONCURRENCY, "outage": outage}
    with service.subscriber(handler, **options) as one, service.subscriber(handler, **options):
        with service.publisher() as publisher:
            report = publisher.publish_many((b"socks", "order.paid") for _ in range(MESSAGES))
        assert report.confirmed == MESSAGES
        wait_until(lambda: dependency.failed >= AT_ONCE + 8, "it is tried, and still down")
        assert one.ready
        dependency.is_down = False
        wait_until(lambda: len(handler.handled) == MESSAGES, "all messages are handled")
    assert service.failed_queue.depth() == 0
    counted = sum(
        max(n.retries for n in handler.attempts if n.message_id == id_) for id_ in handler.handled
    )
    assert counted <= WORKERS + dependency.failed - AT_ONCE
    assert dependency.most <= AT_ONCE


@pytest.mark.versions("whether a message that goes back is counted")
def test_a_deployment_in_the_middle_of_an_outage_sets_nothing_aside(service: Service) -> None:
    is_down = threading.Event()
    is_down.set()

    def handle(message: Message) -> None:
        if is_down.is_set():
            raise TimeoutError

    handler = Recorder(handle)
    outage = Outage(on=(TimeoutError,), probe=PROBE)
    service.declare(retry=retrying(3))
    ids = [service.publish() for _ in range(20)]
    for deployment in range(1, 6):
        with service.subscriber(handler, retry=retrying(3), outage=outage):
            handler.wait_for_attempts(2 * deployment)
    is_down.clear()
    with service.subscriber(handler, retry=retrying(3), outage=outage):
        handler.wait_for_handled(ids)
    assert service.failed_queue.depth() == 0
