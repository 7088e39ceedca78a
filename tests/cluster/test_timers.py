"""Messages that wait on the delay ladder while the nodes that lead its levels die in turn."""

import time
from datetime import timedelta

import pytest

from cluster.stuck_queues import release
from contract.shells import Shell
from contract.support import Service, both_shells
from redrive import Message
from redrive.testing import Cluster

pytestmark = pytest.mark.timeout(600)

LATEST = 20


@both_shells
def test_no_scheduled_message_comes_early_or_is_lost(
    cluster: Cluster, cluster_url: str, shell: Shell, capsys: pytest.CaptureFixture[str]
) -> None:
    service = Service(cluster_url, shell=shell)
    service.declare()
    came: dict[str, float] = {}
    due: dict[str, float] = {}
    with service.publisher() as publisher:
        for half_seconds in range(2, 2 * LATEST):
            delay = timedelta(seconds=half_seconds / 2)
            before = time.time()
            id_ = publisher.publish("later", "order.paid", delay=delay, mandatory=True)
            due[id_] = before + delay.total_seconds()

    def handle(message: Message) -> None:
        came.setdefault(message.message_id or "", time.time())

    with service.subscriber(handle):
        for node in cluster.nodes:
            node.kill()
            node.start()
            cluster.wait_until_whole()
        whole = time.time()
        deadline = time.monotonic() + 120
        while came.keys() != due.keys():
            if time.monotonic() > deadline:
                assert release(cluster, cluster_url), f"{len(due) - len(came)} never came"
                deadline = time.monotonic() + 60
            time.sleep(0.1)

    early = {id_: due[id_] - came[id_] for id_ in due if came[id_] < due[id_]}
    assert early == {}
    late = max(came[id_] - max(due[id_], whole) for id_ in due)
    with capsys.disabled():
        print(
            f"\n{cluster}: the latest of {len(due)} scheduled messages came {late:.2f} s after it "
            "was due, or after the cluster was whole again"
        )
