"""A classic queue is on one node of a cluster, and that node is down."""

import re

import pytest

from cli_support import redrive
from cluster.faults import mend, virtual_host_of
from contract.shells import Shell
from contract.support import Recorder, Service, both_shells
from redrive import BrokerUnavailable
from redrive.testing import Cluster

pytestmark = pytest.mark.timeout(600)

_SAYS_WHERE_TO_LOOK = "only copy|a classic queue is on only one"
"""3.10.8 knows at once that the node is down; 4.3.6 says nothing for minutes."""


@both_shells
def test_a_queue_whose_node_is_down_is_waited_for_and_not_taken_for_a_missing_one(
    cluster: Cluster, cluster_url: str, shell: Shell
) -> None:
    service = Service(cluster_url, shell=shell, queue_type="classic")
    ids = service.set_aside(5)
    home = cluster.nodes[cluster.leader(virtual_host_of(cluster_url), service.queue)]
    home.kill()
    with pytest.raises(BrokerUnavailable, match=_SAYS_WHERE_TO_LOOK):
        service.failed_queue.depth()
    plan = redrive("status", service.queue, url=cluster_url)
    assert plan.code == 2
    assert re.search(_SAYS_WHERE_TO_LOOK, plan.err)

    recorder = Recorder()
    with shell.subscriber(
        recorder,
        service.url,
        service.queue,
        routing_keys=service.routing_keys,
        retry=service.retry,
        queue_type="classic",
        patience=300,
    ):
        home.start()
        mend(cluster)
        recorder.wait_for_handled([service.publish("socks")])
    assert sorted(service.failed_ids()) == sorted(ids)
