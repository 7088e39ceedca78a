"""The cluster that tests of services get, too."""

import pika

from cluster.faults import virtual_host_of
from redrive.testing import Cluster
from waiting import wait_until


def test_the_url_of_a_virtual_host_names_every_node(cluster: Cluster, cluster_url: str) -> None:
    hosts = cluster_url.rpartition("@")[2].partition("/")[0].split(",")
    assert hosts == [node.address.label for node in cluster.nodes]
    for node in cluster.nodes:
        url = f"{node.url.rpartition('/')[0]}/{cluster_url.rpartition('/')[2]}"
        pika.BlockingConnection(pika.URLParameters(url)).close()


def test_the_leader_of_a_queue_can_be_moved(cluster: Cluster, cluster_url: str) -> None:
    url = f"{cluster.nodes[0].url.rpartition('/')[0]}/{cluster_url.rpartition('/')[2]}"
    connection = pika.BlockingConnection(pika.URLParameters(url))
    connection.channel().queue_declare("q", durable=True, arguments={"x-queue-type": "quorum"})
    connection.close()
    host = virtual_host_of(cluster_url)
    other = (cluster.leader(host, "q") + 1) % len(cluster.nodes)
    cluster.move_leader(host, "q", other)
    wait_until(lambda: cluster.leader(host, "q") == other, "the other node leads")


def test_a_node_that_is_cut_off_is_missed_until_it_is_healed(cluster: Cluster) -> None:
    def running() -> set[str]:
        found = cluster.management("nodes", told_by=0)
        assert isinstance(found, list)
        return {node["name"] for node in found if node["running"]}

    away = cluster.nodes[2].node_name
    cluster.cut_off(2)
    wait_until(lambda: away not in running(), "the node is missed")
    cluster.heal(2)
    wait_until(lambda: away in running(), "the node is back", 120)
