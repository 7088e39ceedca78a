"""Failed messages of made-up services come back to where they failed, or stay and say why: none is
lost, none is sent elsewhere, none is there twice."""

import uuid
from collections import Counter, defaultdict

import pytest

from contract.administration import Administration
from contract.plain import plain_channel
from effort import effort
from redrive import FailedQueue
from redrive.failures.message.route import Verdict
from redrive.failures.queue.plan import Plan
from redrive.testing import Broker
from waiting import wait_until
from worlds import World

TENS = effort(1, nightly=30)
MOST_THAT_ASK = 2
"""Of ten worlds, those in which a queue has to be named though all that is there is of one."""


@pytest.fixture
def shared_broker(rabbitmq_url: str, _rabbitmq_broker_in_use: Broker) -> Broker:
    """The broker, which makes virtual hosts."""
    return _rabbitmq_broker_in_use


@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    "ten",
    [
        pytest.param(0, marks=pytest.mark.versions("x-death, and what policies set")),
        *range(1, TENS),
    ],
)
def test_in_worlds_that_a_seed_makes_up_all_comes_back_or_stays_and_says_why(
    ten: int, shared_broker: Broker
) -> None:
    asking = []
    for seed in range(ten * 10, ten * 10 + 10):
        name = f"world-{seed}-{uuid.uuid4().hex[:8]}"
        url = shared_broker.create_virtual_host(name)
        try:
            if asks_for_a_queue(seed, url, str(shared_broker.management_url)):
                asking.append(seed)
        finally:
            shared_broker.delete_virtual_host(name)
    assert len(asking) <= MOST_THAT_ASK, asking


def asks_for_a_queue(seed: int, url: str, management_url: str) -> bool:
    """Requeue all that has failed in a world, and see where it is then; whether some of it needed a
    queue to be named though it is all of one."""
    broker = Administration(management_url, url)
    with plain_channel(url) as channel:
        world = World(seed, channel, broker.set_queue_policy)
        world.build()
        wait_until(lambda: broker.has_policies(world.policies), "the API tells of all policies")
        world.drive()
        plans = {
            place: requeued(FailedQueue(url, place, management_url=management_url), count)
            for place, count in Counter(world.places.values()).items()
        }
        found = defaultdict(list)
        for queue, id_ in world.drained():
            found[id_].append(queue)
    for id_, origin in world.truth.items():
        assert found[id_] in ([origin], [world.places[id_]]), (seed, id_, plans)
    return any(
        len(world.origins_of(place)) == 1 and (plan.no_way_back or plan.contradicted)
        for place, plan in plans.items()
    )


def requeued(failed: FailedQueue, count: int) -> Plan:
    """Requeue what may go unasked; it is what the plan has said."""
    wait_until(lambda: failed.depth() == count, "all is in the dead-letter queue")
    plan = failed.plan()
    report = failed.requeue()
    assert report.requeued == plan.count
    assert {
        Verdict.UNKNOWN: report.no_way_back,
        Verdict.CONTRADICTED: report.contradicted,
        Verdict.UNCHECKED: report.unchecked,
    } == {verdict: plan.stay_for(verdict) for verdict in Verdict if verdict != Verdict.CONFIRMED}
    assert not any(way.exchange for way in plan.ways)
    return plan
