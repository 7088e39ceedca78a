"""Find out where the broker moves dead-lettered messages: through which exchange, to which queues,
and whether that is certain."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import TypeVar

from redrive.topology.binding_pattern import matches, overlap
from redrive.topology.doctor.facts import QueueFacts
from redrive.topology.model import Binding

_Group = TypeVar("_Group", str, tuple[str, str])

_ALL = ("all", "all-with-x")
"""Values of `x-match` that require all headers; without `x-match`, the first one applies."""


@dataclass(frozen=True)
class Routes:
    """The routing of a virtual host.

    Args:
        queues: the queues, by name.
        exchanges: the type of each exchange, by name.
        bindings: all bindings except each queue's own to the default exchange.
        alternates: the alternate exchange of each exchange that has one.
    """

    queues: Mapping[str, QueueFacts]
    exchanges: Mapping[str, str]
    bindings: tuple[Binding, ...] = ()
    alternates: Mapping[str, str] = field(default_factory=dict)

    @cached_property
    def by_source(self) -> Mapping[str, list[Binding]]:
        """The bindings from each exchange."""
        return _grouped((binding.source, binding) for binding in self.bindings)

    @cached_property
    def by_key(self) -> Mapping[tuple[str, str], list[Binding]]:
        """The bindings from each exchange with each key or pattern, so that an exchange shared by
        thousands of queues is not searched for each of them."""
        return _grouped(
            ((binding.source, binding.routing_key), binding) for binding in self.bindings
        )

    @cached_property
    def wild(self) -> Mapping[str, list[Binding]]:
        """The bindings from each exchange whose keys are patterns if it is a topic exchange."""
        return _grouped(
            (binding.source, binding) for binding in self.bindings if _is_wild(binding.routing_key)
        )

    @cached_property
    def to_queue(self) -> Mapping[str, list[Binding]]:
        """The bindings to each queue."""
        return _grouped(
            (binding.destination, binding) for binding in self.bindings if binding.to == "queue"
        )


def _grouped(pairs: Iterable[tuple[_Group, Binding]]) -> Mapping[_Group, list[Binding]]:
    found: dict[_Group, list[Binding]] = defaultdict(list)
    for group, binding in pairs:
        found[group].append(binding)
    return found


def _is_wild(key: str) -> bool:
    return not {"*", "#"}.isdisjoint(key.split("."))


@dataclass(frozen=True, slots=True)
class DeadLettering:
    """The fact that the broker dead-letters messages from one queue to another.

    Args:
        source: the queue that the messages come from.
        target: the queue that they go to.
        exchange: the source's dead-letter exchange.
        routing_key: the key that they get; None if each keeps its own.
        policy: the policy that sets the exchange; None if an argument does.
        certain: whether all of them go to the target; otherwise it depends on the key or the
            headers that a message was published with.
    """

    source: str
    target: str
    exchange: str
    routing_key: str | None
    policy: str | None
    certain: bool


@dataclass(frozen=True, slots=True)
class _Key:
    """A routing key, or a pattern that it matches."""

    text: str
    exact: bool = True


_ANY = _Key("#", exact=False)


def dead_letterings(routes: Routes) -> list[DeadLettering]:
    """Return where each queue of a virtual host dead-letters to.

    The exchange and the key can each come from an argument or a policy. Source: measured on
    RabbitMQ 3.10.8, 4.0.5 and 4.3.6, with the exchange by argument and the key by policy.

    A message that keeps its key may have any key that a binding of its queue lets through, or its
    queue's name. The actual keys are not known, so the targets include every queue that one of them
    may reach.
    """
    return [one for queue in routes.queues.values() for one in _of(routes, queue)]


def reached(routes: Routes, exchange: str, key: str) -> dict[str, bool]:
    """Return the queues to which an exchange routes a message with this key, each with whether that
    is certain: it may depend on the message's headers."""
    return _targets(routes, exchange, frozenset({_Key(key)}), known=True)


def _of(routes: Routes, queue: QueueFacts) -> Iterator[DeadLettering]:
    exchange, key = queue.setting("dead-letter-exchange"), queue.setting("dead-letter-routing-key")
    if not isinstance(exchange, str):
        return
    given = key if isinstance(key, str) else None
    keys = _keys_in(routes, queue.name) if given is None else frozenset({_Key(given)})
    by_argument = queue.argument("x-dead-letter-exchange") is not None
    policy = None if by_argument else (queue.policy_name or queue.operator_policy_name or "")
    for target, certain in _targets(routes, exchange, keys, known=given is not None).items():
        yield DeadLettering(queue.name, target, exchange, given, policy, certain)


def _keys_in(routes: Routes, queue: str) -> frozenset[_Key]:
    """Return the keys that messages in a queue may have."""
    found = {_Key(queue)}  # through the default exchange
    for binding in routes.to_queue.get(queue, ()):
        kind = routes.exchanges.get(binding.source)
        found.add(
            _Key(binding.routing_key, exact=not _is_wild(binding.routing_key))
            if kind == "topic"
            else _Key(binding.routing_key)
            if kind == "direct"
            else _ANY
        )
    return frozenset(found)


def _targets(
    routes: Routes, exchange: str, keys: frozenset[_Key], *, known: bool
) -> dict[str, bool]:
    """Return the queues to which an exchange routes messages with such keys, each with whether it
    gets all of them."""
    queues: dict[str, bool] = {}
    seen: dict[str, bool] = {}
    waiting = [(exchange, True)]
    while waiting:
        name, certain = waiting.pop()
        if name in seen and seen[name] >= certain:
            continue
        seen[name] = certain
        for destination, to, all_of_them in _next(routes, name, keys, known=known):
            sure = certain and all_of_them
            if to == "exchange":
                waiting.append((destination, sure))
            elif destination in routes.queues:
                queues[destination] = queues.get(destination, False) or sure
    return queues


def _next(
    routes: Routes, exchange: str, keys: frozenset[_Key], *, known: bool
) -> Iterator[tuple[str, str, bool]]:
    """Yield the queues and exchanges to which one exchange routes such messages, each with whether
    it gets all of them."""
    if exchange == "":
        # A key of which only a pattern is known could be the name of any queue, so those are left
        # out.
        yield from ((key.text, "queue", known) for key in keys if key.exact)
        return
    kind = routes.exchanges.get(exchange)
    if kind is None:
        return
    taken: bool | None = False  # None: perhaps by some of the messages
    for binding in _candidates(routes, exchange, kind, keys):
        passes = _passes(kind, binding, keys, known=known)
        if passes is not False:
            yield binding.destination, binding.to, passes is True
            taken = True if passes or taken else None
    if taken is not True and exchange in routes.alternates:
        yield routes.alternates[exchange], "exchange", taken is False


def _candidates(
    routes: Routes, exchange: str, kind: str, keys: frozenset[_Key]
) -> Iterable[Binding]:
    """Return the bindings of an exchange that may let such messages through."""
    if kind not in ("direct", "topic") or not all(key.exact for key in keys):
        return routes.by_source.get(exchange, ())
    found = [one for key in keys for one in routes.by_key.get((exchange, key.text), ())]
    return found + [
        one for one in routes.wild.get(exchange, ()) if kind == "topic" and one not in found
    ]


def _passes(kind: str, binding: Binding, keys: frozenset[_Key], *, known: bool) -> bool | None:
    """Return whether a binding lets messages with such keys through; None if it depends on the
    message."""
    if kind == "fanout":
        return True
    if kind == "direct":
        return _depends(known, any(_may_be(key, binding.routing_key) for key in keys))
    if kind == "topic":
        if set(binding.routing_key.split(".")) == {"#"}:
            return True
        return _depends(known, any(_may_match(key, binding.routing_key) for key in keys))
    if kind == "headers":
        arguments = dict(binding.arguments)
        wanted = [name for name in arguments if name != "x-match"]
        return True if not wanted and arguments.get("x-match", "all") in _ALL else None
    return None  # an exchange type from a plugin: its routing is not known


def _depends(known: bool, some: bool) -> bool | None:
    """Return True or False for messages with a known key, which all pass or all fail; None if some
    of the others may pass."""
    return (True if known else None) if some else False


def _may_be(key: _Key, wanted: str) -> bool:
    return key.text == wanted if key.exact else matches(key.text, wanted)


def _may_match(key: _Key, pattern: str) -> bool:
    return matches(pattern, key.text) if key.exact else overlap(key.text, pattern)
