"""What peers without redrive do among themselves: why a kit that only counts `x-death` is not
enough."""

from contract.plain import depth
from interop.peer import Peer
from redrive.topology.broker_version import BrokerVersion

QUEUE = "ucenter@user"
PATTERN = "user.*"


def test_a_peer_alone_ends_its_retries_only_where_the_broker_goes_on_counting(
    broker_version: BrokerVersion, rabbitmq_url: str, peer: Peer
) -> None:
    counts = broker_version.continues_client_x_death
    peer.declare(QUEUE, PATTERN)
    peer.publish("user.create", {"id": 121})

    seen = peer.consume(QUEUE, PATTERN, attempts=4, fails=True)

    assert [one.retries for one in seen] == ([0, 1, 2, 3] if counts else [0, 1, 1, 1])
    assert [one.then for one in seen] == [
        "retry",
        "retry",
        "retry",
        "failed" if counts else "retry",
    ]
    assert {one.routing_key for one in seen} == {"user.create"}
    assert depth(rabbitmq_url, f"{QUEUE}@failed") == (1 if counts else 0)
