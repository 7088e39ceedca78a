"""What can happen to the node where a queue's leader is."""

import re
from collections.abc import Callable
from urllib.parse import unquote, urlsplit

from redrive.errors import BrokerUnavailable, RedriveError
from redrive.testing import Broker, Cluster
from waiting import wait_until

Fault = Callable[[Cluster, str, str], None]


def virtual_host_of(url: str) -> str:
    """The virtual host of a broker's URL."""
    return unquote(urlsplit(url).path[1:])


def killed(cluster: Cluster, url: str, queue: str) -> None:
    """Its node is killed, and starts again once another leads."""
    nodes = cluster.nodes
    _lose(cluster, url, queue, lambda at: nodes[at].kill(), lambda at: nodes[at].start())


def bystander_killed(cluster: Cluster, url: str, queue: str) -> None:
    """A node is killed that the queue is not on, or does not have its leader on."""
    leader = cluster.leader(virtual_host_of(url), queue)
    other = cluster.nodes[(leader + 1) % len(cluster.nodes)]
    other.kill()
    other.start()
    mend(cluster)


def paused(cluster: Cluster, url: str, queue: str) -> None:
    """Its node stands still until another leads."""
    nodes = cluster.nodes
    _lose(cluster, url, queue, lambda at: nodes[at].pause(), lambda at: nodes[at].resume())


def cut_off(cluster: Cluster, url: str, queue: str) -> None:
    """Its node loses the others until one of them leads."""
    _lose(cluster, url, queue, cluster.cut_off, cluster.heal)


def mend(cluster: Cluster) -> None:
    """Waits until the cluster is whole. RabbitMQ 3.10 at times stays parted after a pause, until
    the nodes that don't see the others are restarted, as its documentation on partitions says."""
    try:
        cluster.wait_until_whole(45)
    except BrokerUnavailable:
        for node in cluster.parted():
            node.restart()
        cluster.wait_until_whole()
    try:
        wait_until(lambda: not _without_coordinator(cluster), "all coordinate streams", 30)
    except AssertionError:
        for node in _without_coordinator(cluster):
            node.restart()
        cluster.wait_until_whole()


def _without_coordinator(cluster: Cluster) -> list[Broker]:
    """The nodes that have no part in the coordinator of streams, which others run.

    Source: RabbitMQ 4.0.5, found in a run of these tests: a node that had stood still came back
    without, and had none until it was restarted. Once another node was lost, no stream had a
    leader any more, as in two runs before.
    """
    told = cluster.nodes[0].control(
        "eval",
        "[{N, erpc:call(N, erlang, whereis, [rabbit_stream_coordinator])} "
        "|| N <- [node() | nodes()]].",
    )
    missing = set(re.findall(r"\{'?([^',{]+)'?,\s*undefined\}", told))
    none_runs = len(missing) == len(cluster.nodes)
    return [] if none_runs else [node for node in cluster.nodes if node.node_name in missing]


def moved(cluster: Cluster, url: str, queue: str) -> None:
    """Another node leads, and nothing else happens."""
    leader = cluster.leader(virtual_host_of(url), queue)
    cluster.move_leader(virtual_host_of(url), queue, (leader + 1) % len(cluster.nodes))
    _wait_for_another(cluster, url, queue, leader)


def _lose(
    cluster: Cluster,
    url: str,
    queue: str,
    lose: Callable[[int], object],
    regain: Callable[[int], object],
) -> None:
    leader = cluster.leader(virtual_host_of(url), queue)
    lose(leader)
    _wait_for_another(cluster, url, queue, leader)
    regain(leader)
    mend(cluster)


def _wait_for_another(cluster: Cluster, url: str, queue: str, leader: int) -> None:
    other = (leader + 1) % len(cluster.nodes)

    def leads() -> bool:
        try:
            return cluster.leader(virtual_host_of(url), queue, told_by=other) != leader
        except RedriveError:
            return False  # it is being elected

    wait_until(leads, f"another node leads {queue}", 120)
