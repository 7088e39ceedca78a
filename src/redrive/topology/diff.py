"""Compare a topology with what is on the broker."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import assert_never

from redrive.errors import TopologyMismatch
from redrive.topology import delay_route, names
from redrive.topology.delay_policy import Policy, PolicyChange, change_for, queue_of
from redrive.topology.model import Binding, Exchange, Queue, Topology

_INEQUIVALENT = re.compile(
    r"inequivalent arg '(?P<argument>[^']+)' for (?P<kind>queue|exchange) '(?P<name>.+?)' "
    r"in vhost '.*?': "
    r"received (?P<wanted>.+?) but current is (?P<found>.+)$"
)
_VALUE = re.compile(r"^(?:the value )?'(?P<value>.*?)'(?: of type '[^']*')?$")


def mismatch_of(reply_text: str) -> TopologyMismatch | None:
    """Return the mismatch that a broker's 406 reply describes; None if it is about something
    else."""
    found = _INEQUIVALENT.search(reply_text)
    if found is None:
        return None
    return TopologyMismatch(
        found["kind"],
        found["name"],
        found["argument"],
        wanted=_value_in(found["wanted"]),
        found=_value_in(found["found"]),
    )


def _value_in(words: str) -> str:
    found = _VALUE.match(words)
    return found["value"] if found else words


@dataclass(frozen=True, slots=True)
class Observed:
    """The objects on a broker, as its management API lists them.

    Args:
        exchanges: each exchange's type, by name.
        queues: each queue's arguments, by name, always including `x-queue-type`.
        bindings: those from exchanges to queues.
        policies: those of the virtual host.
    """

    exchanges: Mapping[str, str]
    queues: Mapping[str, Mapping[str, object]]
    bindings: frozenset[Binding]
    policies: tuple[Policy, ...] = ()


@dataclass(frozen=True, slots=True)
class Missing:
    """A wanted object that is not on the broker."""

    what: Exchange | Queue | Binding

    def __str__(self) -> str:
        return f"missing: {sentence_of(self.what)}"


@dataclass(frozen=True, slots=True)
class Differs:
    """An object on the broker with another argument than the wanted one."""

    mismatch: TopologyMismatch

    def __str__(self) -> str:
        found = self.mismatch
        return (
            f"differs: {found.kind} {found.name} has {found.argument}={found.found}, expected "
            f"{found.argument}={found.wanted}"
        )


@dataclass(frozen=True, slots=True)
class Stale:
    """An unwanted binding that delivers to a queue of the topology."""

    binding: Binding

    def __str__(self) -> str:
        return f"stale: {sentence_of(self.binding)}"


@dataclass(frozen=True, slots=True)
class Retired:
    """A leftover of changed tags, or of a delay by policy, that is removed when the topology is
    applied.

    Args:
        what: a filter for other tags, the pointer to one, or a binding that bypasses the filter; or
            a policy for a delay that a policy no longer sets.
    """

    what: Exchange | Binding | Policy

    def __str__(self) -> str:
        return f"retired: {sentence_of(self.what)}"


@dataclass(frozen=True, slots=True)
class Due:
    """A policy that is missing, or sets another delay than the wanted one."""

    change: PolicyChange

    def __str__(self) -> str:
        return f"due: {self.change}"


Difference = Missing | Differs | Stale | Retired | Due


def sentence_of(what: Exchange | Queue | Binding | Policy) -> str:
    """Describe an object in one phrase."""
    match what:
        case Policy(name):
            return f"policy {name}"
        case Exchange(name, kind):
            return f"{kind} exchange {name}"
        case Queue(name):
            return f"{what.type} queue {name}"
        case Binding(source, destination, routing_key, arguments=()):
            return f"binding {source} → {destination} {_with(source, routing_key)}"
        case Binding(source, destination, _, _, arguments):
            return (
                f"binding {source} → {destination} with "
                f"{', '.join(f'{name}={value}' for name, value in arguments)}"
            )
        case _:
            assert_never(what)


def _with(source: str, routing_key: str) -> str:
    """Describe what a binding lets through; for a delay ladder in words, since its patterns have up
    to 28 stars."""
    delayed = delay_route.matches_of(routing_key) if names.is_of_a_ladder(source) else None
    return f"with {routing_key}" if delayed is None else f"for {delayed}"


def compare(topology: Topology, observed: Observed) -> list[Difference]:
    """Return the differences between a topology and the broker."""
    return [
        *_compare_exchanges((*topology.exchanges, *topology.pointers), observed.exchanges),
        *_compare_queues(topology.queues, observed.queues),
        *(Missing(binding) for binding in topology.bindings if binding not in observed.bindings),
        *(Stale(binding) for binding in stale_bindings(topology, observed.bindings)),
        *(Retired(binding) for binding in topology.unwanted if binding in observed.bindings),
        *(Retired(exchange) for exchange in retired_exchanges(topology, observed.exchanges)),
        *map(Due, delays_due(topology, observed.policies)),
        *(Retired(policy) for policy in retired_policies(topology, observed.policies)),
    ]


def merged(over_amqp: Iterable[Difference], listed: Iterable[Difference]) -> list[Difference]:
    """Merge what the management API lists with what only AMQP reveals: the first argument that the
    broker objects to, and which filter is named."""
    listed = list(listed)
    known = {
        (difference.mismatch.kind, difference.mismatch.name)
        for difference in listed
        if isinstance(difference, Differs)
    }

    def is_new(difference: Difference) -> bool:
        match difference:
            case Differs(mismatch):
                return (mismatch.kind, mismatch.name) not in known
            case Retired():
                return difference not in listed
            case _:
                return False

    return listed + [difference for difference in over_amqp if is_new(difference)]


def stale_bindings(topology: Topology, on_broker: Iterable[Binding]) -> list[Binding]:
    """Return the unwanted bindings from exchanges of the topology to its queues, sorted.

    A queue's own binding to the default exchange is not included, since it can't be removed; nor
    are bindings that are removed in any case.
    """
    exchanges = {exchange.name for exchange in topology.exchanges}
    queues = {queue.name for queue in topology.queues}
    known = frozenset((*topology.bindings, *topology.unwanted))

    def is_ours(binding: Binding) -> bool:
        return binding.source in exchanges and binding.destination in (
            queues if binding.to == "queue" else exchanges
        )

    return sorted(binding for binding in on_broker if is_ours(binding) and binding not in known)


def retired_exchanges(topology: Topology, on_broker: Mapping[str, str]) -> list[Exchange]:
    """Return the unwanted tag filters of the topology's queues, followed by the pointers to
    them."""
    queues = {queue.name for queue in topology.queues}
    wanted = {exchange.name for exchange in (*topology.exchanges, *topology.pointers)}
    others = {name: kind for name, kind in sorted(on_broker.items()) if name not in wanted}
    return [
        *(
            Exchange(name, kind)
            for name, kind in others.items()
            if kind == "headers" and names.queue_of_filter(name) in queues
        ),
        *(
            Exchange(name, kind)
            for name, kind in others.items()
            if kind == "fanout" and names.queue_of_pointer(name) in queues
        ),
    ]


def delays_due(topology: Topology, on_broker: Sequence[Policy]) -> list[PolicyChange]:
    """Return the policies that must be set for the delays of the topology."""
    changes = (change_for(delay, on_broker) for delay in topology.delay_policies)
    return [change for change in changes if change is not None]


def retired_policies(topology: Topology, on_broker: Iterable[Policy]) -> list[Policy]:
    """Return redrive's delay policies for queues whose delay the topology does not set by
    policy."""
    queues = {queue.name for queue in topology.queues}
    wanted = {delay.queue for delay in topology.delay_policies}
    return [policy for policy in on_broker if queue_of(policy) in queues - wanted]


def _compare_exchanges(
    wanted: Iterable[Exchange], found: Mapping[str, str]
) -> Iterator[Difference]:
    for exchange in wanted:
        kind = found.get(exchange.name)
        if kind is None:
            yield Missing(exchange)
        elif kind != exchange.type:
            yield Differs(
                TopologyMismatch(
                    "exchange", exchange.name, "type", wanted=exchange.type, found=kind
                )
            )


def _compare_queues(
    wanted: Iterable[Queue], found: Mapping[str, Mapping[str, object]]
) -> Iterator[Difference]:
    for queue in wanted:
        arguments = found.get(queue.name)
        if arguments is None:
            yield Missing(queue)
            continue
        for name in sorted({*queue.arguments, *arguments}):
            ours, theirs = queue.arguments.get(name, "none"), arguments.get(name, "none")
            if ours != theirs:
                yield Differs(
                    TopologyMismatch("queue", queue.name, name, wanted=str(ours), found=str(theirs))
                )
