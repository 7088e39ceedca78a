"""What is known of a virtual host, as far as it could be seen: what a diagnosis is made of."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta

from redrive.topology.broker_version import BrokerVersion
from redrive.topology.model import Binding


@dataclass(frozen=True, slots=True)
class Consumers:
    """Who consumes a queue.

    Args:
        count: how many there are.
        foreign: how many of them are not redrive's; None where that can't be seen.
        tags: the tag expressions of redrive's subscribers among them, one that asks for none as the
            empty one; as far as they can be seen.
        timeout: the shortest time that the broker says one of them may keep a delivery; None where
            it says none.
    """

    count: int = 0
    foreign: int | None = None
    timeout: timedelta | None = None
    tags: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class QueueFacts:
    """What is known of a queue.

    Args:
        name: its name.
        arguments: those that it was declared with, `x-queue-type` always among them; None where
            this user may not see them.
        policy: what its policy and its operator policy set, by the names that they have there.
        policy_name: the policy's name; None where it has none.
        operator_policy_name: the operator policy's.
        consumers: who consumes it.
        members: how many nodes a quorum queue has copies on; None where that can't be seen.
        message_size: the average size of its messages' bodies, in bytes; None where it has none, or
            that can't be seen.
        stuck: how many messages it has been dead-lettering for so long that they are stuck.
        holding_back: whether the broker says that it holds failed messages back; None where that
            can't be seen.
    """

    name: str
    arguments: Mapping[str, object] | None
    policy: Mapping[str, object] = field(default_factory=dict)
    policy_name: str | None = None
    operator_policy_name: str | None = None
    consumers: Consumers = field(default_factory=Consumers)
    members: int | None = None
    message_size: int | None = None
    stuck: int = 0
    holding_back: bool | None = None

    @property
    def is_quorum(self) -> bool:
        """Whether it is a quorum queue."""
        return self.argument("x-queue-type") == "quorum"

    def argument(self, name: str) -> object:
        """An argument; None where it has none of this name."""
        return (self.arguments or {}).get(name)

    def setting(self, name: str) -> object:
        """What its argument `x-<name>` or else its policies set; None where neither does."""
        own = self.argument(f"x-{name}")
        return self.policy.get(name) if own is None else own

    def numbers(self, name: str) -> list[int]:
        """The numbers that its argument `x-<name>` and its policies set."""
        return [
            value
            for value in (self.argument(f"x-{name}"), self.policy.get(name))
            if isinstance(value, int)
        ]

    def least(self, name: str) -> int | None:
        """The smaller one of the numbers that its argument `x-<name>` and its policies set: for
        most limits, that one counts."""
        return min(self.numbers(name), default=None)

    @property
    def delay(self) -> timedelta | None:
        """How long a message waits in it; None where it has no TTL."""
        ttl = self.least("message-ttl")
        return None if ttl is None else timedelta(milliseconds=ttl)


@dataclass(frozen=True, slots=True)
class Access:
    """What a user may write and read in a virtual host.

    Args:
        user: its name.
        is_administrator: whether it may grant itself whatever it lacks.
        write: the regular expression of the names that it may write to.
        topics: of each topic exchange that it has a topic permission on, the regular expression of
            the routing keys that it may publish there with.
        read: the regular expression of the names that it may read from.
        topics_read: of the same exchanges, that of the keys that it may bind there with.
    """

    user: str
    is_administrator: bool
    write: str
    topics: Mapping[str, str] = field(default_factory=dict)
    read: str = ""
    topics_read: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Facts:
    """What is known of a virtual host.

    Args:
        version: the broker's.
        virtual_host: its name.
        exchanges: the type of each exchange that is there, by its name; an empty type is one that
            can't be seen.
        queues: the queues, by their names.
        bindings: all but each queue's own to the default exchange; None where they can't be seen.
        complete: whether all exchanges and queues of the virtual host are here, not only those that
            were asked for.
        nodes: how many nodes the cluster has; None where that can't be seen.
        access: what each user may write; None where that can't be seen.
        alarms: what each node with an alarm is short of, by its name.
        alternates: the alternate exchange of each exchange that has one.
        unknown: what could not be asked, and why; empty where all could.
    """

    version: BrokerVersion
    virtual_host: str
    exchanges: Mapping[str, str]
    queues: Mapping[str, QueueFacts]
    bindings: frozenset[Binding] | None = None
    complete: bool = False
    nodes: int | None = None
    access: tuple[Access, ...] | None = None
    alarms: Mapping[str, str] = field(default_factory=dict)
    alternates: Mapping[str, str] = field(default_factory=dict)
    unknown: str = ""
