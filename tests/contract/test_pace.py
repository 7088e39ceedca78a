"""Requeueing no faster than the queue that messages go to is emptied."""

import re
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor

import pytest

from contract.administration import Administration
from contract.plain import depth, plain_channel
from contract.shells import KeepsFailed, Shell
from contract.support import Recorder, Service, both_types
from dead_letters import DeadLetters
from redrive import ConfigurationError, RequeueProgress, RequeueReport
from redrive.topology.broker_version import BrokerVersion
from waiting import DEADLINE, wait_until

PACE = 5
STEADY = 10
"""So often progress must be told with nothing more sent, to say that a run waits."""


class Run:
    """A requeue on another thread."""

    def __init__(self, pool: ThreadPoolExecutor, failed: KeepsFailed) -> None:
        self._told: list[int] = []
        self._cancel = threading.Event()
        self._report: Future[RequeueReport] = pool.submit(
            failed.requeue,
            pace_by_depth=PACE,
            unchecked=True,
            on_progress=self._tell,
            cancel=self._cancel,
        )

    def _tell(self, progress: RequeueProgress) -> None:
        self._told.append(progress.requeued)

    def wait_until_it_waits(self, sent: int) -> None:
        """Waits until so many were sent, and nothing more is for a while."""
        wait_until(
            lambda: self._report.done() or self._told[-STEADY:] == [sent] * STEADY,
            f"{sent} are sent, and the next one waits",
        )
        assert not self._report.done()

    def cancel(self) -> RequeueReport:
        """Ends it, and returns its report."""
        self._cancel.set()
        return self._report.result(DEADLINE)

    def report(self) -> RequeueReport:
        """Its report, once it is over."""
        return self._report.result(DEADLINE)

    def end(self) -> None:
        """Has it leave its thread."""
        self._cancel.set()


@pytest.fixture
def run() -> Iterator[Callable[[KeepsFailed], Run]]:
    """Begins a requeue at the pace; it is over after the test."""
    runs: list[Run] = []
    with ThreadPoolExecutor(1) as pool:

        def begin(failed: KeepsFailed) -> Run:
            runs.append(Run(pool, failed))
            return runs[-1]

        yield begin
        for one in runs:
            one.end()


def take(url: str, queue: str, count: int) -> list[str]:
    """Takes the oldest messages of a queue, as a consumer does, and returns their ids."""
    taken: list[str] = []

    with plain_channel(url) as channel:

        def took_one() -> bool:
            method, properties, _ = channel.basic_get(queue, auto_ack=True)
            if method is None or properties is None:
                return False
            taken.append(properties.message_id or "")
            return True

        for _ in range(count):
            wait_until(took_one, "there is one")
    return taken


@both_types
def test_without_a_consumer_as_many_are_sent_as_there_is_room_for(
    service: Service, run: Callable[[KeepsFailed], Run]
) -> None:
    ids = service.set_aside(20)
    going = run(service.failed_queue)
    going.wait_until_it_waits(PACE)
    assert depth(service.url, service.queue) == PACE

    assert take(service.url, service.queue, 3) == ids[:3]
    going.wait_until_it_waits(PACE + 3)
    assert depth(service.url, service.queue) == PACE
    report = going.cancel()

    assert (report.requeued, report.cancelled) == (PACE + 3, True)
    assert take(service.url, service.queue, PACE) == ids[3 : PACE + 3]
    assert service.failed_ids() == ids[PACE + 3 :]


@pytest.mark.versions("what the management API says of a queue's depth")
@both_types
def test_it_keeps_up_with_a_consumer_and_each_is_handled_once(
    service: Service, run: Callable[[KeepsFailed], Run]
) -> None:
    ids = service.set_aside(40)
    going = run(service.failed_queue)
    going.wait_until_it_waits(PACE)
    recorder = Recorder()
    with service.subscriber(recorder):
        assert going.report().requeued == 40
        recorder.wait_for_handled(ids)

    assert recorder.handled == Counter(ids)
    assert service.failed_ids() == []


@both_types
def test_a_message_of_another_dead_letter_queue_waits_for_the_queue_it_failed_in(
    rabbitmq_url: str, queue_type: str, shell: Shell, run: Callable[[KeepsFailed], Run]
) -> None:
    dead = DeadLetters(rabbitmq_url, queue_type)
    dead.declare()
    ids = dead.fail(12)
    going = run(shell.failed_queue(dead.url, dead.place))
    going.wait_until_it_waits(PACE)
    assert dead.depth(dead.queue) == PACE

    assert take(dead.url, dead.queue, PACE) == ids[:PACE]
    going.wait_until_it_waits(2 * PACE)
    assert take(dead.url, dead.queue, PACE) == ids[PACE : 2 * PACE]
    assert going.report().requeued == 12
    assert [id_ for id_, _ in dead.drain()] == ids[2 * PACE :]


def test_a_queue_that_is_full_already_gets_nothing(
    service: Service, run: Callable[[KeepsFailed], Run]
) -> None:
    ids = service.set_aside(3)
    for _ in range(PACE):
        service.publish()
    going = run(service.failed_queue)
    going.wait_until_it_waits(0)

    assert going.cancel().requeued == 0
    assert service.failed_ids() == ids


def test_a_queue_that_is_not_there_is_told_as_ever(service: Service) -> None:
    ids = service.set_aside(3)
    with pytest.raises(ConfigurationError, match="there is no queue 'nowhere'"):
        service.failed_queue.requeue(to="nowhere", pace_by_depth=PACE)
    assert service.failed_ids() == ids


def test_the_queues_behind_an_exchange_have_no_depth(service: Service) -> None:
    ids = service.set_aside(3)
    with pytest.raises(ConfigurationError, match="first exchange"):
        service.failed_queue.requeue(via=True, pace_by_depth=PACE)
    assert service.failed_ids() == ids


def test_a_depth_that_may_not_be_seen_is_told_before_anything_is_sent(
    service: Service, rabbitmq_management_url: str, broker_version: BrokerVersion
) -> None:
    ids = service.set_aside(3)
    administration = Administration(rabbitmq_management_url, service.url)
    failed_alone = f"^({re.escape(service.queue)}@failed|redrive\\..*|amq\\..*)?$"
    with administration.user(
        administration.unique("reader"),
        configure=failed_alone,
        write=failed_alone,
        read=failed_alone,
    ) as url:
        failed = service.shell.failed_queue(url, service.queue)
        if broker_version < BrokerVersion(4, 3):
            # Everybody may look at every queue.
            assert failed.requeue(pace_by_depth=PACE).requeued == 3
            return
        with pytest.raises(ConfigurationError, match="may not see how many messages"):
            failed.requeue(pace_by_depth=PACE)
    assert service.failed_ids() == ids
