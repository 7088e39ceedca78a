"""Messages on their way while the node that leads their queue has a fault."""

from datetime import timedelta

import pytest

from cluster.faults import Fault, bystander_killed, cut_off, killed, moved, paused
from cluster.stuck_queues import release
from contract.shells import ASYNC, BLOCKING, Shell
from contract.support import Service, retrying
from journey import MOST_DUPLICATES, Journey
from redrive import RetryPolicy
from redrive.testing import Cluster

pytestmark = pytest.mark.timeout(600)

COUNT = 3000
LADDER = RetryPolicy(backoff=[timedelta(seconds=1), timedelta(seconds=2), timedelta(seconds=3)])


@pytest.mark.parametrize(
    ("shell", "mechanism", "fault"),
    [
        (BLOCKING, "dead-letter", killed),
        (BLOCKING, "dead-letter", paused),
        (BLOCKING, "republish", bystander_killed),
        (BLOCKING, "ladder", cut_off),
        (ASYNC, "dead-letter", cut_off),
        (ASYNC, "republish", bystander_killed),
        (ASYNC, "dead-letter", killed),
        (ASYNC, "ladder", paused),
        (ASYNC, "dead-letter", moved),
    ],
    ids=lambda value: getattr(value, "name", getattr(value, "__name__", value)),
)
def test_no_message_is_lost_and_none_comes_too_often(
    cluster: Cluster, cluster_url: str, shell: Shell, mechanism: str, fault: Fault
) -> None:
    # What is republished is for classic queues, each of which is on one node.
    options = {"retry_via": "republish"} if mechanism == "republish" else {}
    service = Service(
        cluster_url,
        shell=shell,
        retry=LADDER if mechanism == "ladder" else retrying(),
        queue_type="classic" if options else "quorum",
    )
    queue = service.queue if mechanism == "ladder" else f"{service.queue}@retry"
    journey = Journey(
        service,
        lambda: fault(cluster, cluster_url, queue),
        lambda: release(cluster, cluster_url),
        count=COUNT,
        **options,
    )
    assert journey.unconfirmed == 0
    assert journey.lost == set()
    assert journey.duplicates <= MOST_DUPLICATES
