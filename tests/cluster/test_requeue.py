"""A requeue with a filter while the node that leads the failed queue has a fault."""

import threading

import pytest

from cluster.faults import Fault, cut_off, killed, paused
from contract.shells import ASYNC, BLOCKING, Shell
from contract.support import Recorder, Service
from redrive import FailedMessage
from redrive.pubsub.reports import RequeueProgress
from redrive.testing import Cluster

pytestmark = pytest.mark.timeout(600)

COUNT = 3000


def is_even(message: FailedMessage) -> bool:
    """Which messages are requeued."""
    return int(message.message_id or "") % 2 == 0


@pytest.mark.parametrize(
    ("shell", "fault"),
    [(BLOCKING, killed), (ASYNC, cut_off), (BLOCKING, paused)],
    ids=lambda value: getattr(value, "name", getattr(value, "__name__", value)),
)
def test_each_message_is_requeued_or_left_and_none_is_lost(
    cluster: Cluster, cluster_url: str, shell: Shell, fault: Fault
) -> None:
    service = Service(cluster_url, shell=shell)
    ids = service.set_aside(COUNT)
    is_under_way = threading.Event()

    def tell(progress: RequeueProgress) -> None:
        if progress.requeued:
            is_under_way.set()

    def disturb() -> None:
        is_under_way.wait(120)
        fault(cluster, cluster_url, f"{service.queue}@failed")

    disturbing = threading.Thread(target=disturb)
    disturbing.start()
    report = service.failed_queue.requeue(is_even, on_progress=tell)
    disturbing.join(300)

    assert is_under_way.is_set()
    assert not disturbing.is_alive()
    assert report.failed == []
    even = {id_ for id_ in ids if int(id_) % 2 == 0}
    recorder = Recorder()
    with service.subscriber(recorder, prefetch=200):
        recorder.wait_for_handled(even, 120)
    assert recorder.handled.keys() == even
    assert recorder.handled.total() - len(even) <= report.possible_duplicates
    assert set(service.failed_ids()) == set(ids) - even
