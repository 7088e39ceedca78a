"""Which of several hosts a client uses."""

from collections import Counter
from contextlib import ExitStack
from urllib.parse import quote

import pytest

from cluster.faults import mend, virtual_host_of
from contract.shells import Shell
from contract.support import Recorder, Service, both_shells
from redrive import BrokerUnavailable
from redrive.testing import Cluster
from waiting import wait_until

pytestmark = pytest.mark.timeout(600)

PUBLISHERS = 12


def connections_of(cluster: Cluster, url: str, told_by: int = 0) -> Counter[str]:
    """How many connections to a virtual host each node has; none while nobody can tell."""
    host = quote(virtual_host_of(url), safe="")
    try:
        found = cluster.management(f"vhosts/{host}/connections?columns=node", told_by=told_by)
    except BrokerUnavailable:
        return Counter()  # it waits for a node that stands still
    assert isinstance(found, list)
    return Counter(str(one["node"]) for one in found)


@both_shells
def test_connections_are_spread_over_the_hosts(
    cluster: Cluster, cluster_url: str, shell: Shell
) -> None:
    service = Service(cluster_url, shell=shell)
    service.declare()
    with ExitStack() as stack:
        for _ in range(PUBLISHERS):
            stack.enter_context(service.publisher()).publish("x", "order.paid")
        wait_until(
            lambda: connections_of(cluster, cluster_url).total() >= PUBLISHERS, "all are listed"
        )
        # By chance all are on one node once in 3^11 runs.
        assert len(connections_of(cluster, cluster_url)) > 1


@both_shells
def test_a_node_that_stands_still_is_left_for_another(
    cluster: Cluster, cluster_url: str, shell: Shell
) -> None:
    service = Service(f"{cluster_url}?heartbeat=4", shell=shell)
    recorder = Recorder()
    with service.subscriber(recorder):
        (node,) = wait_until(
            lambda: connections_of(cluster, cluster_url), "the subscriber's connection is listed"
        )
        place = [one.node_name for one in cluster.nodes].index(node)
        cluster.nodes[place].pause()
        other = (place + 1) % len(cluster.nodes)
        wait_until(
            lambda: connections_of(cluster, cluster_url, told_by=other).keys() - {node},
            "the subscriber is connected to another node",
            120,
        )
        cluster.nodes[place].resume()
        mend(cluster)
        # A broker may take a minute to take from the old connection what it gave to it.
        recorder.wait_for_handled([service.publish()], 120)
