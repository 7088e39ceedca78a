"""The order of each key while the node that leads its queue, or another one, has a fault."""

import threading
from datetime import timedelta

import pytest

from cluster.faults import Fault, bystander_killed, cut_off, killed, paused
from contract.shells import ASYNC, BLOCKING, Shell
from contract.support import Service, retrying
from contract.test_order_by import BY_CUSTOMER, Handled, fails_each_third, numbers_of, publish_for
from effort import nightly
from redrive import Message
from redrive.testing import Cluster

pytestmark = pytest.mark.timeout(600)

CUSTOMERS, EACH = 50, 40
BRIEF = timedelta(milliseconds=50)


@pytest.mark.parametrize(
    ("shell", "fault"),
    [
        (BLOCKING, killed),
        nightly(ASYNC, bystander_killed, why="another node of the same", id="async-bystander"),
        nightly(ASYNC, cut_off, why="another fault of the same node", id="async-cut_off"),
        nightly(BLOCKING, paused, why="another fault of the same node", id="blocking-paused"),
    ],
    ids=lambda value: getattr(value, "name", getattr(value, "__name__", value)),
)
def test_each_key_keeps_its_order_and_none_is_lost(
    cluster: Cluster, cluster_url: str, shell: Shell, fault: Fault
) -> None:
    service = Service(cluster_url, shell=shell)
    is_under_way = threading.Event()

    def act(message: Message) -> None:
        if len(handler.bodies) > CUSTOMERS:
            is_under_way.set()
        threading.Event().wait(0.01)
        fails_each_third(message)

    def disturb() -> None:
        is_under_way.wait(120)
        fault(cluster, cluster_url, service.queue)

    handler = Handled(act)
    disturbing = threading.Thread(target=disturb)
    retry = retrying(20, BRIEF)
    options = {"order_by": BY_CUSTOMER, "concurrency": 4, "retry": retry}
    service.declare(ordered=True, retry=retry)
    publish_for(service, [f"c{number % CUSTOMERS}" for number in range(CUSTOMERS * EACH)])
    disturbing.start()
    with service.subscriber(handler, **options), service.subscriber(handler, **options):
        handler.wait_for(CUSTOMERS * EACH)
        disturbing.join(300)

    assert is_under_way.is_set()
    assert not disturbing.is_alive()
    expected = {f"c{number}": list(range(EACH)) for number in range(CUSTOMERS)}
    assert numbers_of(handler.bodies) == expected
    assert service.failed() == []
