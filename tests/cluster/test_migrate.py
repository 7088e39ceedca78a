"""A live subscription that is migrated while the node that leads its queue has a fault."""

import threading
import time
from pathlib import Path

import pytest

from cluster.faults import Fault, killed, moved
from live_shop import EACH, NEW, OLD, Shop
from redrive.pubsub.blocking.connection import Connector
from redrive.pubsub.blocking.declarer import declaring
from redrive.testing import Cluster
from redrive.topology.migration import transit_queue
from redrive.topology.names import retry_queue
from waiting import wait_until

pytestmark = pytest.mark.timeout(600)

_LONGEST = 240.0


@pytest.mark.parametrize("fault", [killed, moved], ids=lambda fault: str(fault.__name__))
def test_a_migration_that_loses_its_leader_is_done_when_it_is_run_again(
    cluster: Cluster, cluster_url: str, tmp_path: Path, fault: Fault
) -> None:
    management_url = str(cluster.nodes[0].management_url)
    shop = Shop(
        cluster_url, management_url, tmp_path / "team.yaml", OLD["another delay"], patient=True
    )
    ended: list[int] = []

    def migrate() -> None:
        # As an operator does: once more, where it said that the broker was away.
        deadline = time.monotonic() + _LONGEST
        while 0 not in ended and time.monotonic() < deadline:
            ended.append(shop.migrate())

    with shop.consuming(shop.old):
        shop.publish(EACH)
        shop.wait_until_half_is_done()
        with shop.publishing():
            migrating = threading.Thread(target=migrate)
            migrating.start()
            wait_until(lambda: ended or _is_under_way(cluster_url), "the migration is under way")
            assert not ended
            fault(cluster, cluster_url, shop.old.queue)
            migrating.join(300)
    assert not migrating.is_alive()
    assert ended[-1] == 0
    with shop.consuming(NEW):
        shop.assert_nothing_is_lost(most_duplicates=len(shop.published))


def _is_under_way(url: str) -> bool:
    with declaring(Connector(url, "test")) as declarer:
        return declarer.depth(transit_queue(retry_queue(NEW.queue))) is not None
