"""A cluster of private brokers, and faults that it can be given."""

import secrets
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Self, cast
from urllib.parse import quote

from redrive.errors import BrokerUnavailable, ConfigurationError, PermissionDenied
from redrive.testing.broker import START_SECONDS, Broker
from redrive.testing.container_engine import create_network, remove_network
from redrive.testing.management_client import AnsweredWithAnError
from redrive.testing.membership import Membership
from redrive.testing.ports import free_ports
from redrive.topology.doctor.remedies import erlang_name

_BETWEEN_LOOKS = 0.1
_FORMING_SECONDS = 60.0
_ANSWER_SECONDS = 10.0
"""Seconds to wait for one node: a paused node never answers, but others may."""


class Cluster:
    """A cluster of RabbitMQ nodes, each of which can be killed, paused, restarted and cut off.

    with private_cluster() as cluster:
        connect(cluster.url)
        cluster.nodes[cluster.leader("/", "ucenter@user")].kill()
    """

    def __init__(
        self, size: int, made: Callable[[Membership], Broker], *, in_network: bool = False
    ) -> None:
        self._cookie = secrets.token_hex(16)
        self._network = f"redrive-{secrets.token_hex(4)}"
        self._in_network = in_network
        self._has_network = False
        (epmd_port,) = free_ports(1)
        self.nodes: Sequence[Broker] = [
            made(Membership(place, size, self._cookie, epmd_port, self._network))
            for place in range(1, size + 1)
        ]

    @property
    def url(self) -> str:
        """The AMQP URL of the virtual host `/`, with all nodes as its hosts."""
        return self._url(self.nodes[0].url)

    @property
    def version(self) -> str:
        """The version that the nodes report, such as `4.3.6`."""
        return self.nodes[0].version

    def start(self) -> None:
        """Start all nodes that are not running, and wait until they form one cluster."""
        if self._in_network and not self._has_network:
            create_network(self._network)
            self._has_network = True
        with ThreadPoolExecutor(len(self.nodes)) as pool:
            for started in [pool.submit(node.start) for node in self.nodes]:
                started.result()
        self.wait_until_whole()

    def wait_until_whole(self, seconds: float = START_SECONDS) -> None:
        """Wait until each node sees all the others running."""
        deadline = time.monotonic() + seconds
        while not all(map(self._sees_all, self.nodes)):
            if time.monotonic() > deadline:
                raise BrokerUnavailable(
                    self.nodes[0].address.label,
                    f"the {len(self.nodes)} nodes were not one cluster within {seconds:g} s",
                )
            time.sleep(_BETWEEN_LOOKS)

    def parted(self) -> Sequence[Broker]:
        """Return the nodes to restart so that the cluster is whole again: those that don't see all
        the others running, except the first one if none does."""
        parted = [node for node in self.nodes if not self._sees_all(node)]
        return parted[1:] if len(parted) == len(self.nodes) else parted

    def close(self) -> None:
        """Stop all nodes and delete their data. Closing twice is fine."""
        # The first one last: the others find each other through processes started with it.
        for node in reversed(self.nodes):
            node.close()
        if self._has_network:
            remove_network(self._network)
            self._has_network = False

    def create_virtual_host(self, name: str) -> str:
        """Create a virtual host, and return the AMQP URL with all nodes as its hosts.

        A newly formed cluster sometimes answers with 500, so the request is retried for up to a
        minute.
        """
        deadline = time.monotonic() + _FORMING_SECONDS
        urls = [_virtual_host_on(node, name, deadline) for node in self.nodes]
        return self._url(urls[0])

    def leader(self, virtual_host: str, queue: str, *, told_by: int | None = None) -> int:
        """Return the index in `nodes` of a quorum queue's leader, or of a classic queue's node."""
        path = f"queues/{quote(virtual_host, safe='')}/{quote(queue, safe='')}"
        found = cast("dict[str, object]", self.management(path, told_by=told_by))
        names = [node.node_name for node in self.nodes]
        leader = found.get("leader") or found.get("node")
        if leader not in names:
            raise ConfigurationError(f"the queue {queue!r} has no leader now: {leader!r}")
        return names.index(str(leader))

    def move_leader(self, virtual_host: str, queue: str, to: int) -> None:
        """Make another node the leader of a quorum queue."""
        self.nodes[to].control(
            "eval",
            f"{{ok, Q}} = rabbit_amqqueue:lookup({erlang_name(virtual_host, queue)}), "
            "rabbit_quorum_queue:transfer_leadership(Q, node()).",
        )

    def cut_off(self, place: int) -> None:
        """Cut a node off from all others; clients still reach it. `heal` reverts this."""
        self._with_cookie(place, secrets.token_hex(16), "erlang:disconnect_node(Node)")

    def heal(self, place: int) -> None:
        """Reconnect a node after `cut_off`."""
        self._with_cookie(place, self._cookie, "net_kernel:connect_node(Node)")

    def management(self, path: str, *, told_by: int | None = None) -> object:
        """Return the management API's answer for a path below `/api/`, from the given node, or from
        the first one that answers."""
        reasons: list[str] = []
        for node in self.nodes if told_by is None else [self.nodes[told_by]]:
            try:
                return node.management(path, _ANSWER_SECONDS)
            except BrokerUnavailable as error:
                reasons.append(str(error).partition("\n")[0])
        raise BrokerUnavailable(self.nodes[0].address.label, "; ".join(reasons))

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __str__(self) -> str:
        return f"{len(self.nodes)} nodes of {self.nodes[0]}"

    def _url(self, of_one: str) -> str:
        own = self.nodes[0].address.label
        return of_one.replace(own, ",".join(node.address.label for node in self.nodes), 1)

    def _sees_all(self, node: Broker) -> bool:
        try:
            found = cast("list[dict[str, object]]", node.management("nodes", _ANSWER_SECONDS))
        except (BrokerUnavailable, PermissionDenied):
            return False
        running = {one.get("name") for one in found if one.get("running")}
        return running >= {one.node_name for one in self.nodes}

    def _with_cookie(self, place: int, cookie: str, then: str) -> None:
        others = [node.node_name for at, node in enumerate(self.nodes) if at != place]
        nodes = ", ".join(f"'{name}'" for name in others)
        self.nodes[place].control(
            "eval",
            f"[begin erlang:set_cookie(Node, '{cookie}'), {then} end || Node <- [{nodes}]].",
        )


def _virtual_host_on(node: Broker, name: str, deadline: float) -> str:
    """Create the virtual host through this node, unless it exists, and return its AMQP URL
    there."""
    while True:
        try:
            return node.create_virtual_host(name)
        except AnsweredWithAnError:
            if time.monotonic() >= deadline:
                raise
            time.sleep(_BETWEEN_LOOKS)
