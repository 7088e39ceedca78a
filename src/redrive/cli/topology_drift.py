"""How a broker differs from a topology file, which the `redrive topology` commands check before
they do anything."""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from redrive.errors import RedriveError, TopologyMismatch
from redrive.pubsub.admin import topology_file
from redrive.pubsub.admin.management_api import ManagementAPI
from redrive.pubsub.blocking import declarer as broker
from redrive.pubsub.blocking.connection import Connector, default_name
from redrive.topology.broker_version import BrokerVersion
from redrive.topology.delay_policy import Policy, PolicyChange
from redrive.topology.diff import (
    Difference,
    Differs,
    Due,
    Missing,
    Retired,
    Stale,
    compare,
    merged,
)
from redrive.topology.file_schema import union_of
from redrive.topology.ladder import with_ladder
from redrive.topology.model import Binding, Exchange, Queue, Subscription, Topology

File = Annotated[
    Path, typer.Argument(metavar="FILE", help="The topology file.", show_default=False)
]


@dataclass(frozen=True, slots=True)
class Drift:
    """How a broker differs from what a file asks for.

    Args:
        subscriptions: what the file asks for.
        version: the broker's version.
        found: the differences.
        blind: why bindings could not be compared; empty if they were.
    """

    subscriptions: tuple[Subscription, ...]
    version: BrokerVersion
    found: tuple[Difference, ...]
    blind: str = ""

    @property
    def topology(self) -> Topology:
        """Everything that the file asks for."""
        return wanted_by(self.subscriptions)

    @property
    def missing(self) -> list[Exchange | Queue | Binding]:
        """Objects that would be created."""
        return [difference.what for difference in self.found if isinstance(difference, Missing)]

    @property
    def differs(self) -> list[Differs]:
        """Objects that exist and can't be declared as the file asks."""
        return [difference for difference in self.found if isinstance(difference, Differs)]

    @property
    def to_migrate(self) -> list[Differs]:
        """Differences that `migrate` resolves: arguments of the subscriptions' own queues."""
        own = {
            queue
            for one in self.subscriptions
            for queue in (one.queue, one.retry_queue, one.failed_queue)
        }
        found = [(differs, differs.mismatch) for differs in self.differs]
        return [
            differs
            for differs, mismatch in found
            if mismatch.name in own and _is_an_argument_of_a_queue(mismatch)
        ]

    @property
    def by_hand(self) -> list[Differs]:
        """Differences that no command resolves: exchanges, properties of queues other than
        arguments, and the delay ladder's queues."""
        migrated = self.to_migrate
        return [differs for differs in self.differs if differs not in migrated]

    @property
    def stale(self) -> list[Binding]:
        """Bindings that the file does not ask for."""
        return [difference.binding for difference in self.found if isinstance(difference, Stale)]

    @property
    def due(self) -> list[PolicyChange]:
        """Delays set by policy that `apply` changes."""
        return [difference.change for difference in self.found if isinstance(difference, Due)]

    @property
    def retired(self) -> list[Exchange | Binding | Policy]:
        """Leftovers of changed tags and of delays that were set by policy, which `apply`
        removes."""
        return [difference.what for difference in self.found if isinstance(difference, Retired)]


def _is_an_argument_of_a_queue(mismatch: TopologyMismatch) -> bool:
    return mismatch.kind == "queue" and mismatch.argument.startswith("x-")


def wanted_by(subscriptions: tuple[Subscription, ...]) -> Topology:
    """Return everything that these subscriptions need on the broker."""
    return union_of(with_ladder(subscription) for subscription in subscriptions)


def subscriptions_in(file: Path) -> tuple[Subscription, ...]:
    """Return the subscriptions of a topology file."""
    return topology_file.read(file).built()


def connector_for(url: str, verb: str, file: Path) -> Connector:
    """Return the connector for a command."""
    return Connector(url, default_name(f"topology {verb}", file.name))


def look(
    connector: Connector,
    subscriptions: tuple[Subscription, ...],
    management_url: str | None,
    *,
    blind: bool,
) -> Drift:
    """Return how the broker differs from the subscriptions. If `blind`, bindings need not be
    compared when the management API does not answer."""
    with broker.declaring(connector) as declarer:
        version = declarer.version
    for subscription in subscriptions:
        subscription.check_broker(version)
    topology = wanted_by(subscriptions)
    over_amqp = broker.differences(connector, topology)
    try:
        with ManagementAPI(connector.url, management_url) as management:
            observed = management.observe()
    except RedriveError as error:
        if not blind or topology.delay_policies:
            raise
        return Drift(
            subscriptions, version, tuple(over_amqp), str(error).partition("\n")[0].rstrip(".")
        )
    return Drift(subscriptions, version, tuple(merged(over_amqp, compare(topology, observed))))


def set_delays(
    connector: Connector, management_url: str | None, due: Iterable[PolicyChange]
) -> None:
    """Apply these changes to the policies that set delays; they take effect at once."""
    changes = list(due)
    if changes:
        with ManagementAPI(connector.url, management_url) as management:
            for change in changes:
                management.set_policy(change.policy)


def remove_policies(
    connector: Connector, management_url: str | None, retired: Iterable[object]
) -> None:
    """Delete the policies among the objects that nothing asks for any longer."""
    policies = [what for what in retired if isinstance(what, Policy)]
    if policies:
        with ManagementAPI(connector.url, management_url) as management:
            for policy in policies:
                management.remove_policy(policy)
