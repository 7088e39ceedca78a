"""Find the dead-letter queues of a virtual host that redrive did not create, and where their
messages come from."""

from collections import defaultdict
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

from redrive.topology import dead_letter_names, names
from redrive.topology.dead_letter_routes import DeadLettering, Routes, dead_letterings, reached
from redrive.topology.migration import TRANSIT_SUFFIX

_OURS = "redrive."
"""Prefix of the names of redrive's locks and logs."""
_SEPARATORS = "._-:/@"
_MOST_WAITS = 8
"""Longest chain of wait queues to follow."""


@dataclass(frozen=True, slots=True)
class Origin:
    """A queue whose messages end up in a dead-letter queue.

    Args:
        queue: its name.
        known_by: the evidence: an argument or a policy of the queue, or only the dead-letter
            queue's name.
        certain: whether all its dead letters go there; otherwise it depends on the message, or was
            concluded from a name.
        exchange: the dead-letter exchange; None if known only by a name.
        routing_key: the key that its messages get; None if each keeps its own, or if known only by
            a name.
        policy: the policy's name; None if no policy is involved.
    """

    queue: str
    known_by: Literal["argument", "policy", "name"]
    certain: bool
    exchange: str | None = None
    routing_key: str | None = None
    policy: str | None = None


@dataclass(frozen=True, slots=True)
class DeadLetterQueue:
    """A dead-letter queue that redrive did not create.

    Args:
        name: its name.
        kind: its type: `classic`, `quorum` or `stream`; empty if unknown.
        origins: the queues that its messages come from, if known.
        dialects: the frameworks that use this name for dead-letter queues.
        shared: whether published messages may also reach it, not only dead-lettered ones.
    """

    name: str
    kind: str = ""
    origins: tuple[Origin, ...] = ()
    dialects: tuple[str, ...] = ()
    shared: bool = False

    @property
    def certain(self) -> bool:
        """Whether it is certainly a dead-letter queue: some queue sends all its dead letters to it,
        and no other messages are known to arrive."""
        return not self.shared and any(origin.certain for origin in self.origins)


def dead_letter_queues(routes: Routes) -> list[DeadLetterQueue]:
    """Return the dead-letter queues that redrive did not create, sorted by name.

    A queue in which messages wait for their next attempt is not included, although the broker
    dead-letters into it: it leads back.
    """
    ways = DeadLetterGraph(routes)
    found = (_judged(routes, ways, name) for name in sorted(routes.queues))
    return [one for one in found if one is not None]


def by_name(queue: str) -> DeadLetterQueue:
    """Describe a queue that the user says is a dead-letter queue, judging by its name only."""
    name = dead_letter_names.read(queue)
    if name is None:
        return DeadLetterQueue(queue)
    origin = [Origin(name.origin, "name", certain=False)] if name.origin else []
    return DeadLetterQueue(queue, origins=tuple(origin), dialects=name.dialects)


class DeadLetterGraph:
    """The graph of dead-lettering between queues, and what it reveals about each queue."""

    def __init__(self, routes: Routes) -> None:
        self._routes = routes
        self.own = frozenset(_own(routes))
        self.mains = frozenset(names.main_queues(routes.queues))
        self._later: dict[str, set[str]] = {}
        self._bound_to = {
            binding.destination for binding in routes.bindings if binding.to == "exchange"
        }
        self.out: dict[str, list[DeadLettering]] = defaultdict(list)
        self.into: dict[str, list[DeadLettering]] = defaultdict(list)
        for one in dead_letterings(routes):
            if one.source != one.target:
                self.out[one.source].append(one)
                self.into[one.target].append(one)
        reached = {queue: _reached(routes, one[0].exchange) for queue, one in self.out.items()}
        self._dead_lettered = frozenset().union(*reached.values())
        self._published = frozenset(
            binding.source
            for queue, exchanges in reached.items()
            if not self._is_in_dead_letter_cycle(queue)
            for binding in routes.to_queue.get(queue, ())
            if binding.source in exchanges
        )
        self.waiting = self.own | {queue for queue in self.out if self._waits(queue)}

    @cached_property
    def _dead_letter_queues(self) -> frozenset[str]:
        found = (_judged(self._routes, self, name) for name in self._routes.queues)
        return frozenset(
            one.name for one in found if one is not None and (one.certain or _named(one.name))
        )

    @cached_property
    def workers(self) -> frozenset[str]:
        """The queues in which messages are processed."""
        return frozenset(filter(self.works, self._routes.queues))

    def has(self, queue: str) -> bool:
        """Return whether the queue exists."""
        return queue in self._routes.queues

    def is_dead_letter_queue(self, queue: str) -> bool:
        """Return whether a queue certainly is a dead-letter queue, or has the name of one and is
        used as one."""
        return queue in self._dead_letter_queues

    def works(self, queue: str) -> bool:
        """Return whether a queue appears to be a work queue: it exists, and is neither a
        dead-letter queue nor one in which messages only wait."""
        return (
            self.has(queue)
            # with only the key of messages sent straight to it
            and not self.is_wait(queue, [queue])
            and not self.drops(queue)
            and not self.is_dead_letter_queue(queue)
        )

    def is_wait(self, queue: str, keys: Collection[str] = ()) -> bool:
        """Return whether messages with these keys only wait in a queue, or would if it had no
        consumers."""
        if queue in self.waiting:
            return True
        if not self.has(queue) or not self.only_expire(queue):
            return False
        targets = {one.target for one in self.out.get(queue, ())}
        for key in keys:
            targets |= {target for target, _ in self._after_wait(queue, key, known=True)}
        return any(not _named(target) for target in targets)

    def drops(self, queue: str) -> bool:
        """Return whether a queue has no consumers, and its messages are lost when they expire."""
        if not self.has(queue) or not self.only_expire(queue) or self.out.get(queue):
            return False
        facts = self._routes.queues[queue]
        keeps_keys = facts.setting("dead-letter-routing-key") is None
        # If messages keep their keys, a key might be the name of a queue, which is not known here.
        return not (keeps_keys and facts.setting("dead-letter-exchange") == "")

    def reached_from(self, exchange: str, key: str) -> set[str]:
        """Return the queues that a message published with this key may reach."""
        return set(reached(self._routes, exchange, key))

    def ends_of_wait(self, queue: str, keys: Collection[str]) -> set[str]:
        """Return the queues that messages with these keys reach after waiting in a queue, and in
        any wait queues after it."""
        ends: set[str] = set()
        here = {(queue, key) for key in keys or ("",)}
        for _ in range(_MOST_WAITS):
            here, before = set(), here
            for wait, key in before:
                for end, new in self._after_wait(wait, key, known=bool(keys)):
                    if self.is_wait(end, [new]):
                        here.add((end, new))
                    else:
                        ends.add(end)
        return ends

    def _after_wait(self, queue: str, key: str, *, known: bool) -> set[tuple[str, str]]:
        facts = self._routes.queues.get(queue)
        exchange = None if facts is None else facts.setting("dead-letter-exchange")
        if facts is None or not isinstance(exchange, str):
            return set()
        new = facts.setting("dead-letter-routing-key")
        if not isinstance(new, str) and not known:
            return {(one.target, key) for one in self.out.get(queue, ())}
        new = new if isinstance(new, str) else key
        return {(target, new) for target in reached(self._routes, exchange, new)}

    def leads_back(self, queue: str) -> bool:
        """Return whether messages dead-lettered from a queue may return to it through a work queue.

        If one policy applies to all queues, dead-letter queues lead to each other, and nothing
        comes back from there. Such a cycle gets its messages from outside, and nothing is published
        to it.
        """
        cycle = self._after(queue)
        if queue not in cycle:
            return False
        cycle = {one for one in cycle if queue in self._after(one)}
        has_waits = any(map(self._expires, cycle))
        is_work = any(
            self.is_published_to(one) or (has_waits and self._routes.queues[one].consumers.count)
            for one in cycle
        )
        sources = {way.source for one in cycle for way in self.into.get(one, ())}
        return is_work or sources <= cycle

    def _is_in_dead_letter_cycle(self, queue: str) -> bool:
        """Return whether a queue belongs to a cycle of dead-letter queues that only dead-letter to
        each other."""
        return queue in self._after(queue) and not self.leads_back(queue)

    def _after(self, queue: str) -> set[str]:
        """Return the queues that messages dead-lettered from a queue may reach."""
        if queue not in self._later:
            seen: set[str] = set()
            waiting = [queue]
            while waiting:
                further = {one.target for one in self.out.get(waiting.pop(), ())} - seen
                waiting += further
                seen |= further
            self._later[queue] = seen
        return self._later[queue]

    def is_published_to(self, queue: str) -> bool:
        """Return whether a queue is bound to an exchange that no queue dead-letters to."""
        sources = {binding.source for binding in self._routes.to_queue.get(queue, ())}
        return bool(sources - self._dead_lettered)

    def takes_events(self, queue: str) -> bool:
        """Return whether a queue is bound to an exchange that other queues also use, or that is not
        its own."""
        for binding in self._routes.to_queue.get(queue, ()):
            source = binding.source
            if source in self._dead_lettered:
                continue
            if source == queue and source not in self._bound_to:
                continue
            origin = (name := dead_letter_names.read(queue)) and name.origin
            shares = any(
                other.to == "queue" and not _named(other.destination)
                for other in self._routes.by_source.get(source, ())
            )
            if shares or origin not in self._routes.queues:
                return True
        return False

    def passes_a_published_exchange(self, one: DeadLettering) -> bool:
        """Return whether dead letters go to the exchange that feeds their own queue, so that every
        queue bound there gets a copy."""
        return one.exchange in self._published

    def only_expire(self, queue: str) -> bool:
        """Return whether messages seem to leave a queue only by expiring."""
        return self._expires(queue) and not self._routes.queues[queue].consumers.count

    def is_shared(self, queue: str) -> bool:
        """Return whether a queue is reached from an exchange that is published to: one that no
        queue dead-letters to, or one that both feeds a queue and takes its dead letters."""
        sources = {binding.source for binding in self._routes.to_queue.get(queue, ())}
        return self.is_published_to(queue) or bool(sources & self._published)

    def _waits(self, queue: str) -> bool:
        """Return whether messages wait in a queue and then go to a work queue: for the next
        attempt, or after a delay."""
        if self._is_in_dead_letter_cycle(queue):
            return False
        if self._expires(queue) and self.leads_back(queue):
            return True
        return any(self._waits_for(queue, one.target) for one in self.out[queue])

    def _waits_for(self, queue: str, target: str) -> bool:
        facts, of_target = self._routes.queues[queue], self._routes.queues[target]
        if facts.consumers.count or _named(target):
            return False
        if _is_derived(queue, target):
            return self._expires(queue) or not _named(queue)
        sources = {binding.source for binding in self._routes.to_queue.get(target, ())}
        works = of_target.consumers.count or target in self.out or sources - self._dead_lettered
        return self._expires(queue) and bool(works)

    def _expires(self, queue: str) -> bool:
        return self._routes.queues[queue].least("message-ttl") is not None


def _judged(routes: Routes, ways: DeadLetterGraph, name: str) -> DeadLetterQueue | None:
    """Return a queue as a dead-letter queue; None if it is not one, or is redrive's."""
    if name in ways.waiting or name in ways.mains:
        return None
    named = dead_letter_names.read(name)
    origins = [_origin(ways, one) for one in ways.into.get(name, ()) if _counts(ways, one)]
    if named is None and (not origins or ways.leads_back(name)):
        return None
    facts, shared = routes.queues[name], bool(origins) and ways.is_shared(name)
    if named is None and all(map(ways.passes_a_published_exchange, ways.into.get(name, ()))):
        return None  # it is a work queue for published messages
    if named is not None and named.may_name_an_event and not origins and ways.takes_events(name):
        return None  # a work queue for an event of that name
    if named is not None and named.origin is not None and named.origin in routes.queues:
        known = {origin.queue for origin in origins}
        origins += [Origin(named.origin, "name", certain=False)] * (named.origin not in known)
    return DeadLetterQueue(
        name,
        str(facts.argument("x-queue-type") or ""),
        tuple(sorted(origins, key=lambda origin: (not origin.certain, origin.queue))),
        named.dialects if named is not None else (),
        shared,
    )


def _counts(ways: DeadLetterGraph, one: DeadLettering) -> bool:
    """Return whether these dead letters have failed, and are not on the way to their next
    attempt."""
    if one.source in ways.mains and any(
        way.target == names.retry_queue(one.source) for way in ways.out[one.source]
    ):
        return False  # copies of redrive's retries
    return one.source not in ways.own and (_named(one.target) or one.source not in ways.waiting)


def _origin(ways: DeadLetterGraph, one: DeadLettering) -> Origin:
    # A queue without consumers but with a TTL may be a delay before a work queue.
    doubtful = ways.only_expire(one.source) and not _named(one.target)
    return Origin(
        one.source,
        "argument" if one.policy is None else "policy",
        one.certain and not doubtful,
        one.exchange,
        one.routing_key,
        one.policy,
    )


def _own(routes: Routes) -> Iterable[str]:
    """Yield the queues that redrive creates besides main queues."""
    for name in routes.queues:
        main = name.removesuffix(names.UNROUTED_SUFFIX)
        if (
            name.endswith((names.RETRY_SUFFIX, names.FAILED_SUFFIX, TRANSIT_SUFFIX))
            or name.startswith(_OURS)
            or (names.is_of_a_ladder(name) and name in routes.exchanges)
            or (main != name and main + names.DELIVER_SUFFIX in routes.exchanges)
        ):
            yield name


def _reached(routes: Routes, exchange: str) -> frozenset[str]:
    """Return the exchanges that a message given to this exchange may pass through."""
    seen, waiting = {exchange}, [exchange]
    while waiting:
        name = waiting.pop()
        further = {
            binding.destination
            for binding in routes.by_source.get(name, ())
            if binding.to == "exchange"
        }
        further |= {routes.alternates[name]} if name in routes.alternates else set()
        waiting += further - seen
        seen |= further
    return frozenset(seen)


def _named(queue: str) -> bool:
    return dead_letter_names.read(queue) is not None


def _is_derived(queue: str, target: str) -> bool:
    """Return whether a queue's name is the other's name plus a suffix, as in `orders.wait`."""
    return queue.startswith(target) and queue[len(target) : len(target) + 1] in tuple(_SEPARATORS)
