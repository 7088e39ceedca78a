"""A requeue that is stopped or cut off in its middle loses nothing, and says what it did."""

import contextlib
import re
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pytest

from contract.plain import drain, plain_channel
from contract.support import Service, both_types
from effort import nightly
from journey import let_the_broker_remember
from redrive import BrokerUnavailable, FailedMessage, FailedQueue, RequeueProgress, RequeueReport
from redrive.testing import Broker, Proxy
from redrive.topology.model import QueueType
from waiting import DEADLINE, wait_until

pytestmark = pytest.mark.versions("what becomes of what was not settled")

COUNT = 5000
"""So many that whatever is done to a requeue finds it under way."""


@dataclass
class Once:
    """Does something once so many messages were requeued: given to a requeue as its `progress`."""

    act: Callable[[], object]
    after: int = 1
    done: bool = False

    def __call__(self, progress: RequeueProgress) -> None:
        if progress.requeued >= self.after and not self.done:
            self.done = True
            self.act()


@contextlib.contextmanager
def long_wire(url: str) -> Iterator[Proxy]:
    """A proxy whose wire is so long that a requeue is still on its way when its progress is
    told."""
    with Proxy(url) as proxy:
        proxy.delay(0.03)
        yield proxy


def requeued(service: Service) -> Counter[str]:
    """How often each message is in the main queue, by its id."""
    return Counter(
        str(properties.message_id) for properties, _ in drain(service.url, service.queue)
    )


@both_types
def test_a_requeue_that_is_cancelled_leaves_the_rest_where_it_is(
    rabbitmq_url: str, queue_type: QueueType
) -> None:
    service = Service(rabbitmq_url, queue_type=queue_type)
    ids = service.set_aside(COUNT)
    cancel = threading.Event()
    once = Once(cancel.set)
    with long_wire(rabbitmq_url) as proxy:
        report = FailedQueue(proxy.url, service.queue).requeue(on_progress=once, cancel=cancel)
    main, failed = requeued(service), service.failed_ids()

    assert once.done
    assert report.cancelled
    assert 0 < report.requeued < COUNT
    assert main == dict.fromkeys(ids[: report.requeued], 1)
    assert sorted(failed) == sorted(ids[report.requeued :])


@both_types
def test_a_requeue_whose_wire_is_cut_requeues_all_and_tells_of_possible_duplicates(
    rabbitmq_url: str, queue_type: QueueType
) -> None:
    service = Service(rabbitmq_url, queue_type=queue_type)
    ids = service.set_aside(COUNT)
    with long_wire(rabbitmq_url) as proxy:
        once = Once(proxy.cut)
        report = FailedQueue(proxy.url, service.queue).requeue(on_progress=once)
    main, failed = requeued(service), service.failed_ids()

    assert once.done
    assert main.keys() | set(failed) == set(ids)
    assert_all_are_back(report, main, ids)
    assert failed == []


def test_a_requeue_of_some_whose_wire_is_cut_requeues_those_and_leaves_the_others(
    rabbitmq_url: str,
) -> None:
    service = Service(rabbitmq_url)
    ids = service.set_aside(COUNT)
    wanted = set(ids[::2])

    def where(message: FailedMessage) -> bool:
        return message.message_id in wanted

    with long_wire(rabbitmq_url) as proxy:
        once = Once(proxy.cut)
        report = FailedQueue(proxy.url, service.queue).requeue(where, on_progress=once)
    main, failed = requeued(service), service.failed_ids()

    assert once.done
    assert main.keys() | set(failed) == set(ids)
    assert_all_are_back(report, main, wanted)
    assert sorted(failed) == sorted(set(ids) - wanted)


def test_progress_is_told_while_the_last_confirms_are_waited_for(rabbitmq_url: str) -> None:
    service = Service(rabbitmq_url)
    service.set_aside(1)
    told: list[RequeueProgress] = []
    with Proxy(rabbitmq_url) as proxy:

        def where(_: FailedMessage) -> bool:
            proxy.freeze()
            return True

        def on_progress(progress: RequeueProgress) -> None:
            told.append(progress)
            if len(told) == 3:
                proxy.thaw()

        report = FailedQueue(proxy.url, service.queue).requeue(where, on_progress=on_progress)

    assert report.requeued == 1
    assert [progress.requeued for progress in told[:3]] == [0, 0, 0]


@pytest.mark.nightly("its wire is cut each time")
def test_a_requeue_during_which_the_broker_is_killed_loses_nothing(
    rabbitmq_broker: Broker, rabbitmq_url: str
) -> None:
    service = Service(rabbitmq_url)
    service.declare()
    let_the_broker_remember(rabbitmq_broker)
    ids = service.set_aside(COUNT)

    def kill_and_start() -> None:
        rabbitmq_broker.kill()
        rabbitmq_broker.start()

    once = Once(kill_and_start)
    with long_wire(rabbitmq_url) as proxy:
        failed_queue = FailedQueue(proxy.url, service.queue, timeout=2 * DEADLINE)
        report = failed_queue.requeue(on_progress=once)
    main, failed = requeued(service), service.failed_ids()

    assert once.done
    assert main.keys() | set(failed) == set(ids)
    assert_all_are_back(report, main, ids)
    assert failed == []


def test_a_requeue_whose_broker_does_not_come_back_is_an_error_and_loses_nothing(
    rabbitmq_url: str,
) -> None:
    service = Service(rabbitmq_url)
    ids = service.set_aside(COUNT)
    with long_wire(rabbitmq_url) as proxy:

        def hang_up() -> None:
            proxy.refuse()
            proxy.cut()

        once = Once(hang_up)
        with pytest.raises(BrokerUnavailable):
            FailedQueue(proxy.url, service.queue, timeout=15).requeue(on_progress=once)
    main, failed = requeued(service), service.failed_ids()

    assert once.done
    assert main.keys() | set(failed) == set(ids)
    assert set(main.values()) == {1}


@pytest.mark.parametrize("limit", [nightly(COUNT, why="a part is tried each time"), COUNT // 2 + 1])
@pytest.mark.nightly("its wire is cut each time")
def test_a_requeue_into_a_queue_that_was_deleted_meanwhile_ends_soon_and_leaves_the_rest(
    rabbitmq_broker: Broker, rabbitmq_url: str, limit: int
) -> None:
    service = Service(rabbitmq_url)
    ids = service.set_aside(COUNT)

    def delete() -> None:
        with plain_channel(rabbitmq_url) as channel:
            channel.queue_delete(service.queue)

    once = Once(delete)
    with long_wire(rabbitmq_url) as proxy:
        began = time.monotonic()
        try:
            report = FailedQueue(proxy.url, service.queue, timeout=DEADLINE / 2).requeue(
                limit=limit, on_progress=once
            )
        except BrokerUnavailable as error:
            # Under load RabbitMQ 3.10 may never answer for what it was handing to a queue as that
            # was deleted.
            told = re.search(r"(\d+) messages were requeued", str(error))
            assert told is not None
            confirmed = int(told[1])
            # What its stuck channel held then is unacknowledged until the broker is started again:
            # nothing of it is lost.
            rabbitmq_broker.kill()
            rabbitmq_broker.start()
            wait_until(
                lambda: len(set(service.failed_ids()) & set(ids)) >= COUNT - confirmed,
                "the others are set aside again",
            )
            return

    assert time.monotonic() - began < 2 * DEADLINE
    assert once.done
    assert report.requeued + len(report.failed) + report.not_tried == limit
    assert report.skipped == 0
    # Not by their order: a queue that is deleted confirms some, and refuses others before them.
    assert len(set(service.failed_ids()) & set(ids)) >= COUNT - report.requeued


def assert_all_are_back(
    report: RequeueReport, main: Counter[str], ids: set[str] | list[str]
) -> None:
    """Each of `ids` is in the main queue, and those that are there twice were told of."""
    assert main.keys() == set(ids)
    assert main.total() - len(main) <= report.possible_duplicates
    assert report.requeued == len(ids)
    assert report.failed == []
    assert not report.cancelled
