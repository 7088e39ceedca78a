"""The management API does not count a queue whose only node is down: nobody says that it is
empty."""

import pytest

from cli_support import redrive
from cluster.faults import virtual_host_of
from contract.support import Service
from redrive.pubsub.admin.broker_watch import BrokerWatch
from redrive.pubsub.admin.queue_metrics import MESSAGES, samples_of
from redrive.pubsub.url import BrokerURL
from redrive.testing import Cluster
from redrive.topology.durations import duration_of
from waiting import wait_until

pytestmark = pytest.mark.timeout(600)

COUNT = 5


def failed_in_top(url: str, management_url: str) -> int | None:
    top = redrive("top", "--output", "json", "--management-url", management_url, url=url)
    assert top.code == 0, top
    (one,) = top.json()["subscriptions"]
    failed: int | None = one["failed"]
    return failed


def test_a_queue_whose_node_is_down_is_not_empty(cluster: Cluster, cluster_url: str) -> None:
    service = Service(cluster_url, queue_type="classic")
    service.set_aside(COUNT)
    home = cluster.leader(virtual_host_of(cluster_url), f"{service.queue}@failed")
    other = str(cluster.nodes[(home + 1) % 3].management_url)
    wait_until(lambda: failed_in_top(cluster_url, other) == COUNT, "it is counted")
    cluster.nodes[home].kill()

    wait_until(lambda: failed_in_top(cluster_url, other) is None, "its node is missed")
    watch = BrokerWatch(BrokerURL.parse(cluster_url), other, duration_of("1h"))
    try:
        watch.start()
        told = watch.now()
    finally:
        watch.stop()
    counted = [
        sample.value
        for role, count in told.queues
        if role.queue == f"{service.queue}@failed"
        for sample in samples_of(role, count, 0)
        if sample.gauge is MESSAGES
    ]
    assert set(counted) <= {COUNT}
