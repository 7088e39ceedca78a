"""What a broker needs to know to be a node of a cluster."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Membership:
    """A node's place in a cluster, and the settings that all nodes share.

    Args:
        place: the number of the node, from 1.
        size: the number of nodes.
        cookie: the shared secret of the nodes.
        epmd_port: the port through which nodes that are processes on one machine find each other.
        network: the container engine's network through which nodes in containers find each other.
    """

    place: int
    size: int
    cookie: str
    epmd_port: int
    network: str

    @property
    def is_first(self) -> bool:
        """Whether this is the node that starts what all nodes share."""
        return self.place == 1

    def config(self, pattern: str) -> Mapping[str, str]:
        """Return the lines of `rabbitmq.conf` that make the nodes form a cluster when they start.

        `pattern` is the pattern of the node names, with `{place}` where they differ.

        A node that is cut off pauses, on versions whose partitions would otherwise be healed by
        restarting the losing side; later versions accept these lines and have no such partitions.
        Source: tried on RabbitMQ 3.10.8, 4.0.5 and 4.3.6.
        """
        return dict(self._config(pattern))

    def _config(self, pattern: str) -> Iterator[tuple[str, str]]:
        yield "cluster_formation.peer_discovery_backend", "classic_config"
        for place in range(1, self.size + 1):
            yield f"cluster_formation.classic_config.nodes.{place}", pattern.format(place=place)
        yield "cluster_partition_handling", "pause_minority"
        yield "net_ticktime", "8"
