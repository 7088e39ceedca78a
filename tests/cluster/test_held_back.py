"""What the broker itself holds back while the node that leads its queue has a fault, and a queue
with a copy on a node that can hold nothing back."""

import json
from datetime import timedelta
from typing import cast
from urllib.parse import quote

import pytest

from cli_support import redrive
from cluster.faults import Fault, cut_off, killed, paused, virtual_host_of
from contract.shells import ASYNC, BLOCKING, Shell
from contract.support import Recorder, Service, always_fails, holds_back, retrying
from journey import MOST_DUPLICATES, Journey
from redrive.testing import Cluster
from waiting import wait_until

pytestmark = pytest.mark.timeout(600)

COUNT = 3000
DELAY = timedelta(seconds=5)
UPGRADE_SECONDS = 120.0
BEFORE_4_3 = """
{ok, {_, [{abstract_code, {_, Forms}}]}} =
    beam_lib:chunks(code:which(rabbit_fifo), [abstract_code]),
Older = [case Form of
             {function, L, version, 0, _} ->
                 {function, L, version, 0, [{clause, L, [], [], [{integer, L, 7}]}]};
             _ -> Form
         end || Form <- Forms],
{ok, rabbit_fifo, Code} = compile:forms(Older, []),
code:purge(rabbit_fifo),
{module, rabbit_fifo} = code:load_binary(rabbit_fifo, "older", Code),
rabbit_fifo:version().
"""
"""Has a node's quorum queues know the state machine of RabbitMQ 4.2, and nothing newer, until it is
restarted: what a cluster in the middle of an upgrade agrees on."""


@pytest.mark.parametrize(
    ("shell", "fault"),
    [
        (BLOCKING, killed),
        (BLOCKING, paused),
        (BLOCKING, cut_off),
        (ASYNC, killed),
        (ASYNC, paused),
    ],
    ids=lambda value: getattr(value, "name", getattr(value, "__name__", value)),
)
def test_no_message_that_the_broker_holds_back_is_lost_and_none_comes_too_often(
    cluster: Cluster, cluster_url: str, shell: Shell, fault: Fault
) -> None:
    service = Service(cluster_url, shell=shell, retry=retrying(delay=DELAY))
    if not holds_back(service):
        return

    def disturb() -> None:
        wait_until(lambda: _held_back(cluster, service) > 0, "some messages are held back")
        fault(cluster, cluster_url, service.queue)

    journey = Journey(service, disturb, count=COUNT, retry_via="broker")
    assert journey.unconfirmed == 0
    assert journey.lost == set()
    assert journey.duplicates <= MOST_DUPLICATES
    assert service.failed() == []


def test_doctor_finds_a_queue_with_a_copy_on_a_node_that_can_hold_nothing_back_yet(
    cluster: Cluster, cluster_url: str
) -> None:
    service = Service(cluster_url, retry=retrying(delay=timedelta(minutes=10)))
    if not holds_back(service):
        return
    older = cluster.nodes[-1]
    try:
        assert older.control("eval", BEFORE_4_3).strip() == "7"
        with service.subscriber(Recorder(always_fails), retry_via="broker"):
            service.publish()
            (failed,) = service.wait_for_failed()  # and not after three times ten minutes
        wait_until(
            lambda: any("runs a RabbitMQ before 4.3" in one for one in _found(cluster, service)),
            "doctor finds it",
        )
    finally:
        older.restart()
        cluster.wait_until_whole()
    wait_until(
        lambda: not _found(cluster, service), "it is held back after an upgrade", UPGRADE_SECONDS
    )

    assert (failed.reason, failed.retries) == ("retries-exhausted", 3)


def _held_back(cluster: Cluster, service: Service) -> int:
    """How many messages the broker says it holds back."""
    path = f"queues/{quote(virtual_host_of(service.url), safe='')}/{quote(service.queue, safe='')}"
    told = cast("dict[str, object]", cluster.management(path)).get("messages_delayed")
    return told if isinstance(told, int) else 0


def _found(cluster: Cluster, service: Service) -> list[str]:
    """What doctor has to say of a queue that holds nothing back."""
    address = cluster.nodes[0].management_url
    assert address is not None
    done = redrive(
        "doctor",
        service.queue,
        "--output",
        "json",
        "--management-url",
        address,
        url=service.url,
    )
    findings = json.loads(done.out)["findings"]
    return [one["problem"] for one in findings if one["kind"] == "not-held-back"]
