"""What is known about a virtual host, as far as it could be seen: the input of a diagnosis."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta

from redrive.topology.broker_version import BrokerVersion
from redrive.topology.model import Binding


@dataclass(frozen=True, slots=True)
class Consumers:
    """The consumers of a queue.

    Args:
        count: how many there are.
        foreign: how many of them are not redrive's; None if that can't be seen.
        tags: the visible tag expressions of redrive's subscribers; empty for a subscriber without
            tags.
        timeout: the shortest time, reported by the broker, for which one of them may keep a
            delivery; None if it reports none.
    """

    count: int = 0
    foreign: int | None = None
    timeout: timedelta | None = None
    tags: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class QueueFacts:
    """What is known about a queue.

    Args:
        name: its name.
        arguments: those that it was declared with, always including `x-queue-type`; None if this
            user may not see them.
        policy: the settings of its policy and its operator policy, by their names in a policy.
        policy_name: the policy's name; None if it has no policy.
        operator_policy_name: the operator policy's name; None if it has none.
        consumers: its consumers.
        members: how many nodes a quorum queue has copies on; None if that can't be seen.
        message_size: the average size of its messages' bodies, in bytes; None if it is empty, or
            that can't be seen.
        stuck: how many messages have been waiting to be dead-lettered for so long that they are
            stuck.
        holding_back: whether the broker reports that it holds failed messages back; None if that
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
        return self.argument("x-queue-type") == "quorum"

    def argument(self, name: str) -> object:
        """Return an argument; None if it is not set."""
        return (self.arguments or {}).get(name)

    def setting(self, name: str) -> object:
        """Return the value of its argument `x-<name>`, or else of its policies; None if neither
        sets it."""
        own = self.argument(f"x-{name}")
        return self.policy.get(name) if own is None else own

    def numbers(self, name: str) -> list[int]:
        """Return the numbers that its argument `x-<name>` and its policies set."""
        return [
            value
            for value in (self.argument(f"x-{name}"), self.policy.get(name))
            if isinstance(value, int)
        ]

    def least(self, name: str) -> int | None:
        """Return the smallest number that its argument `x-<name>` and its policies set: for most
        limits, it is the one that counts."""
        return min(self.numbers(name), default=None)

    @property
    def delay(self) -> timedelta | None:
        """How long a message waits in it; None if it has no TTL."""
        ttl = self.least("message-ttl")
        return None if ttl is None else timedelta(milliseconds=ttl)


@dataclass(frozen=True, slots=True)
class Access:
    """What a user may write to and read from in a virtual host.

    Args:
        user: its name.
        is_administrator: whether it may grant itself any missing right.
        write: the regular expression of the names that it may write to.
        topics: for each topic exchange with a topic permission, the regular expression of the
            routing keys that it may publish with.
        read: the regular expression of the names that it may read from.
        topics_read: for the same exchanges, the regular expression of the keys that it may bind
            with.
    """

    user: str
    is_administrator: bool
    write: str
    topics: Mapping[str, str] = field(default_factory=dict)
    read: str = ""
    topics_read: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Facts:
    """What is known about a virtual host.

    Args:
        version: the broker's version.
        virtual_host: its name.
        exchanges: the type of each exchange, by name; an empty type means that it can't be seen.
        queues: the queues, by name.
        bindings: all bindings except each queue's own to the default exchange; None if they can't
            be seen.
        complete: whether all exchanges and queues of the virtual host are included, not only the
            requested ones.
        nodes: how many nodes the cluster has; None if that can't be seen.
        access: what each user may write to and read from; None if that can't be seen.
        alarms: what each node with an alarm is short of, by the node's name.
        alternates: the alternate exchange of each exchange that has one.
        unknown: what could not be queried, and why; empty if everything could.
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
