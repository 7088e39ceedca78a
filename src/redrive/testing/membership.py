"""What a broker has to know to be one of a cluster's nodes."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Membership:
    """A node's place in a cluster, and what all of its nodes share.

    Args:
        place: which node it is, from 1.
        size: how many nodes there are.
        cookie: the secret by which nodes know each other.
        epmd_port: the port where nodes that are processes of one machine find each other.
        network: the container engine's network where nodes that are containers do.
    """

    place: int
    size: int
    cookie: str
    epmd_port: int
    network: str

    @property
    def is_first(self) -> bool:
        """Whether it is the node that what all share is started with."""
        return self.place == 1

    def config(self, pattern: str) -> Mapping[str, str]:
        """The lines of `rabbitmq.conf` that make the nodes a cluster when they start.

        The pattern is that of their names, with `{place}` where these differ.

        A node that is cut off pauses where the version knows partitions that heal by a loser's
        restart; later versions take these lines and have no such partitions. Source: tried on
        RabbitMQ 3.10.8, 4.0.5 and 4.3.6.
        """
        return dict(self._config(pattern))

    def _config(self, pattern: str) -> Iterator[tuple[str, str]]:
        yield "cluster_formation.peer_discovery_backend", "classic_config"
        for place in range(1, self.size + 1):
            yield f"cluster_formation.classic_config.nodes.{place}", pattern.format(place=place)
        yield "cluster_partition_handling", "pause_minority"
        yield "net_ticktime", "8"
