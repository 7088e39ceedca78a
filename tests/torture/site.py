"""The broker of a torture run, one node or a cluster, with a wire before each node that can be
broken."""

import contextlib
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Self, cast
from urllib.parse import quote

import pika

from cluster.faults import mend
from cluster.stuck_queues import release
from journey import let_the_broker_remember, release_what_is_stuck
from redrive import RedriveError
from redrive.testing import Broker, Cluster, Proxy, private_broker, private_cluster
from torture.checker import Remains
from torture.lanes import UNROUTED, Lane, lanes_on

VIRTUAL_HOST = "torture"
_HEARTBEAT_SECONDS = 6
_COUNTED = ("messages", "messages_ready", "messages_unacknowledged", "messages_dlx")
_IMAGES = "redrive-rabbitmq"


class Site:
    """A private broker, started and with all wires in place for as long as the block.

    Args:
        nodes: how many nodes it has.
        version: of the image that is made for it, such as `4.3`; what there is where it is empty.
    """

    def __init__(self, nodes: int, version: str = "") -> None:
        image = f"{_IMAGES}:{version}" if version else None
        self.cluster: Cluster | None = private_cluster(image, size=nodes) if nodes > 1 else None
        self.nodes: Sequence[Broker] = (
            self.cluster.nodes if self.cluster else [private_broker(image)]
        )
        self.proxies: list[Proxy] = []
        self._cut_off: set[int] = set()
        self._open = contextlib.ExitStack()
        self.direct_url = self.nodes[0].address.on(VIRTUAL_HOST).url

    def __enter__(self) -> Self:
        with contextlib.ExitStack() as opening:
            broker = self.cluster or self.nodes[0]
            opening.enter_context(broker)
            broker.create_virtual_host(VIRTUAL_HOST)
            self.proxies = [opening.enter_context(Proxy(node.url)) for node in self.nodes]
            self._open = opening.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._open.close()

    @property
    def origin(self) -> str:
        """What it is, in a few words."""
        return str(self.cluster or self.nodes[0])

    @property
    def version(self) -> str:
        """What RabbitMQ it is."""
        return self.nodes[0].version

    @property
    def lanes(self) -> Sequence[Lane]:
        """The lanes that it has."""
        return lanes_on(self.version)

    @property
    def url(self) -> str:
        """The address by the wires."""
        hosts = ",".join(proxy.url.rpartition("@")[2].partition("/")[0] for proxy in self.proxies)
        return f"amqp://guest:guest@{hosts}/{VIRTUAL_HOST}?heartbeat={_HEARTBEAT_SECONDS}"

    @property
    def log(self) -> str:
        """What all nodes have logged."""
        return "\n\n".join(f"=== {node.node_name}\n{node.log()}" for node in self.nodes)

    def save_data(self, folder: Path) -> None:
        """Stops all nodes, and writes what each has on disk to a file."""
        for place, node in enumerate(self.nodes):
            node.stop()
            node.save_data(folder / f"node-{place}.tar")

    def let_it_remember(self) -> None:
        """Restarts a node alone, so that the queues that were just declared outlive a kill. In a
        cluster the others remember."""
        if self.cluster is None:
            let_the_broker_remember(self.nodes[0])

    def cut_off(self, place: int) -> None:
        """Cuts a node off from all others."""
        assert self.cluster is not None
        self._cut_off.add(place)
        self.cluster.cut_off(place)

    def move_leader(self, lane: Lane, by: int) -> None:
        """Makes another node the leader of a lane's queue."""
        assert self.cluster is not None
        leader = self.cluster.leader(VIRTUAL_HOST, lane.name)
        self.cluster.move_leader(VIRTUAL_HOST, lane.name, (leader + by) % len(self.nodes))

    def heal(self) -> None:
        """Ends every fault of nodes and wires."""
        for proxy in self.proxies:
            proxy.thaw()
        for node in self.nodes:
            node.start()
        if self.cluster is not None:
            for place in sorted(self._cut_off):
                self.cluster.heal(place)
            self._cut_off.clear()
            mend(self.cluster)

    def release(self) -> bool:
        """Sets free what RabbitMQ 3.10 holds back for good; returns whether there was anything."""
        if self.cluster is not None:
            return release(self.cluster, self.direct_url)
        return release_what_is_stuck(self.nodes[0], self.direct_url)

    def depths(self) -> Mapping[str, Mapping[str, int]]:
        """What the management API counts in each queue that is to be empty in the end."""
        path = f"queues/{quote(VIRTUAL_HOST, safe='')}"
        broker = self.cluster or self.nodes[0]
        queues = cast("list[dict[str, object]]", broker.management(path))
        return {
            str(queue["name"]): {
                name: count for name in _COUNTED if isinstance(count := queue.get(name), int)
            }
            for queue in queues
            if not str(queue["name"]).endswith("@failed") and queue["name"] != UNROUTED
        }

    def holds_messages(self) -> bool:
        """Whether a queue holds messages that are to leave it. RabbitMQ 3.10 counts those that it
        is to dead-letter again as ready at times, and not in `messages_dlx`."""
        try:
            return any(any(counts.values()) for counts in self.depths().values())
        except RedriveError:
            return True  # nobody knows

    def remains(self) -> Remains:
        """What is in the failed queues and in `master.unrouted`, read without redrive."""
        failed: Counter[str] = Counter()
        for lane in self.lanes:
            failed += self._ids_in(f"{lane.name}@failed")
        return Remains(failed, self._ids_in(UNROUTED), self.depths())

    def _ids_in(self, queue: str) -> Counter[str]:
        connection = pika.BlockingConnection(pika.URLParameters(self.direct_url))
        ids: Counter[str] = Counter()
        try:
            channel = connection.channel()
            while True:
                method, _, body = channel.basic_get(queue)
                if method is None or body is None:
                    return ids
                ids[_id_of(body)] += 1
        finally:
            connection.close()


def _id_of(body: bytes) -> str:
    return body.partition(b'"id": "')[2].partition(b'"')[0].decode()
