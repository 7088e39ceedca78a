"""Where a failed message is sent back to, checked against the broker's topology.

What a message says about its own way is a claim by whoever wrote it: `x-death`, a framework's
header, or the name of its queue. A `Judge` believes a claim only if the topology leads there.
"""

import json
from collections.abc import Callable, Iterator, Mapping
from enum import StrEnum
from functools import lru_cache
from typing import NamedTuple

from redrive.amqp.field_table import FieldValue
from redrive.failures.message.dialects.failure_notes import FailureNotes
from redrive.redaction import text_of
from redrive.topology import dead_letter_names, headers
from redrive.topology.dead_letter_queues import DeadLetterGraph
from redrive.topology.dead_letter_routes import DeadLettering, Routes
from redrive.topology.headers import Delivery
from redrive.topology.names import queue_of_failed_kind

_WAY_BACK_FAILED = ("rejected", "delivery_limit")
"""Reasons for a death that are caused by a consumer: the message failed in the queue of that death.
Other deaths happen in queues that a message only waits in."""
_NAMED_AFTER = {
    "masstransit": ("_error", "_skipped"),
    "dramatiq": (".XQ",),
    "sneakers": ("-error",),
}
"""Suffixes that frameworks add to a queue's name for its failed messages. Source: MassTransit
8.5.8, KebabCaseEndpointNameFormatter and the default error transport; dramatiq 2.0, xq_name;
sneakers, maxretry.rb."""


class WayBack(NamedTuple):
    """An exchange and a routing key to publish a message with.

    Args:
        exchange: the exchange; empty for the default exchange, which routes to one queue.
        routing_key: the routing key.
    """

    exchange: str
    routing_key: str

    @property
    def queue(self) -> str | None:
        """The one queue that gets the message; None if an exchange decides, which may copy it to
        others."""
        return None if self.exchange else self.routing_key

    def __str__(self) -> str:
        if not self.exchange:
            return self.routing_key
        return f"exchange {self.exchange} with {self.routing_key or 'an empty key'}"


def way_back_of(delivery: Delivery, notes: FailureNotes) -> WayBack | None:
    """Return the way to the queue that a message failed in, else its first way; None if unknown."""
    if not delivery.dead_letter_queue:
        return WayBack("", delivery.queue)
    origin = origin_of(delivery, notes)
    return _published(notes) if origin is None else WayBack("", origin)


def first_way_of(delivery: Delivery, notes: FailureNotes) -> WayBack | None:
    """Return the way by which a message was first published; None if unknown.

    Every queue bound there gets the message again.
    """
    published = _published(notes)
    if published is not None:
        return published
    death = headers.earliest_death(delivery.deaths, delivery.queue)
    exchange, keys = death.get("exchange"), death.get("routing-keys")
    key = keys[0] if isinstance(keys, list) and keys else None
    if isinstance(exchange, str) and isinstance(key, str):
        return WayBack(exchange, key)
    return None


def origin_of(delivery: Delivery, notes: FailureNotes) -> str | None:
    """Return the queue in which a message of a dead-letter queue failed.

    Returns None if nothing tells, or if it is the dead-letter queue itself.
    """
    place = delivery.dead_letter_queue
    for queue in (notes.queue, _named_after(place, notes.dialect), _died_in(delivery, notes)):
        if queue and queue != place:
            return queue
    return None


def _published(notes: FailureNotes) -> WayBack | None:
    if notes.exchange is None or notes.routing_key is None:
        return None
    return WayBack(notes.exchange, notes.routing_key)


def _named_after(place: str, dialect: str) -> str | None:
    if dialect == "redrive":
        return queue_of_failed_kind(place)
    for suffix in _NAMED_AFTER.get(dialect, ()):
        if place.endswith(suffix):
            return place.removesuffix(suffix)
    return None


def _died_in(delivery: Delivery, notes: FailureNotes) -> str | None:
    """Return the queue of the last death caused by a consumer, else of the last death."""
    deaths = [
        death
        for death in delivery.deaths.entries
        if death.get("queue") != delivery.dead_letter_queue
    ]
    published = _published(notes)
    if published is not None:
        # A framework that publishes failed messages itself keeps the deaths from the message's
        # earlier life.
        deaths = [death for death in deaths if published in _ways_into(death)]
    failed = (death for death in deaths if death.get("reason") in _WAY_BACK_FAILED)
    death = next(failed, deaths[0] if deaths else {})
    return headers.text(death.get("queue"))


def _ways_into(death: Mapping[str, FieldValue]) -> Iterator[WayBack]:
    exchange, keys = death.get("exchange"), death.get("routing-keys")
    if isinstance(exchange, str) and isinstance(keys, list):
        yield from (WayBack(exchange, key) for key in keys if isinstance(key, str))


_MOST_DEATHS = 16
"""Maximum number of deaths read per message: a broker writes one for each queue and reason."""
_FAILED = ("rejected", "delivery_limit")
"""Reasons for a death that are caused by a consumer."""
_MOST_NAMED = 3
_REMEMBERED = 4096


class Verdict(StrEnum):
    """How reliable a way back is."""

    CONFIRMED = "confirmed"
    """The topology leads from the destination to where the message is, or doesn't contradict the
    message."""
    UNCHECKED = "unchecked"
    """The broker could not be asked, or the topology neither confirms nor contradicts the message.
    """
    CONTRADICTED = "contradicted"
    """The topology contradicts the message, or two claims disagree."""
    UNKNOWN = "unknown"
    """Nothing tells where the message failed."""


class Death(NamedTuple):
    """An entry of `x-death`: the queue, the reason to leave it, and the message's keys there."""

    queue: str
    reason: str
    keys: tuple[str, ...]


class Claims(NamedTuple):
    """Claims about a message's way. Messages with equal claims are judged once.

    Args:
        place: the dead-letter queue that it is in; empty for a subscription's failed queue.
        exchange: the exchange that it arrived by, according to the broker.
        routing_key: the key that it arrived with, according to the broker.
        way: where it goes if its claims are believed; None if it makes none.
        queue: the queue that it failed in, according to its framework.
        published: the exchange and the key that it was first published with, according to its
            framework.
        deaths: its deaths, the latest first.
    """

    place: str
    exchange: str = ""
    routing_key: str = ""
    way: WayBack | None = None
    queue: str | None = None
    published: WayBack | None = None
    deaths: tuple[Death, ...] = ()


class Route(NamedTuple):
    """Where a message is sent, how reliable that is, and why.

    Args:
        way: the destination; None if nothing tells it.
        verdict: how reliable it is.
        reason: why, as a part of a sentence; empty if there is nothing to say.
    """

    way: WayBack | None
    verdict: Verdict
    reason: str = ""


NO_WAY = Route(None, Verdict.UNKNOWN, "nothing says which queue it failed in")


def claims_of(delivery: Delivery, notes: FailureNotes) -> Claims:
    """Return the claims that a message makes about its way."""
    if not delivery.dead_letter_queue or _is_own(delivery.dead_letter_queue, notes):
        return Claims("", way=way_back_of(delivery, notes))
    published = (
        None
        if notes.exchange is None or notes.routing_key is None
        else WayBack(notes.exchange, notes.routing_key)
    )
    return Claims(
        delivery.dead_letter_queue,
        delivery.exchange,
        delivery.routing_key,
        way_back_of(delivery, notes),
        notes.queue or None,
        published,
        tuple(_deaths_of(delivery)),
    )


def _is_own(place: str, notes: FailureNotes) -> bool:
    """Return whether redrive has set a message aside in a failed queue for a kind of error, whose
    name says where it failed as surely as that of `QUEUE@failed`."""
    return notes.dialect == "redrive" and queue_of_failed_kind(place) is not None


def claims_from(text: object) -> Claims:
    """Return claims that were stored as JSON."""
    place, exchange, key, way, queue, published, deaths = json.loads(str(text))
    return Claims(
        place,
        exchange,
        key,
        None if way is None else WayBack(*way),
        queue,
        None if published is None else WayBack(*published),
        tuple(Death(name, reason, tuple(keys)) for name, reason, keys in deaths),
    )


def _deaths_of(delivery: Delivery) -> Iterator[Death]:
    for entry in delivery.deaths.entries[:_MOST_DEATHS]:
        queue, keys = entry.get("queue"), entry.get("routing-keys")
        if isinstance(queue, str):
            listed = keys if isinstance(keys, list) else []
            texts = tuple(key for key in listed if isinstance(key, str))
            yield Death(queue, str(entry.get("reason", "")), texts)


class Judge:
    """Decides from claims where a message is sent."""

    def __init__(
        self,
        routes: Routes | None,
        problem: str = "",
        exists: Callable[[str], bool] = lambda _: True,
    ) -> None:
        self._routes, self._problem = routes, problem
        self._exists = lru_cache(_REMEMBERED)(exists)
        self._graph = None if routes is None else DeadLetterGraph(routes)
        self.route = lru_cache(_REMEMBERED)(self._route)

    def __reduce__(self) -> tuple[type["Judge"], tuple[Routes | None, str]]:
        """Pickle the topology for another process, without the connection."""
        return Judge, (self._routes, self._problem)

    def _route(self, claims: Claims) -> Route:
        """Return where a message with these claims is sent."""
        if not claims.place:
            return Route(claims.way, Verdict.CONFIRMED)
        if self._graph is None:
            return self._unasked(claims)
        return _Case(self._graph, claims).route()

    def onward(self, queue: str) -> str:
        """Return what happens to messages in a queue without consumers, as a part of a sentence.

        Empty if they stay there, or if it is unknown.
        """
        if self._graph is None:
            return ""
        if self._graph.drops(queue):
            return "messages left there are dropped when they expire"
        if not self._graph.is_wait(queue, [queue]):
            return ""
        ends = sorted(self._graph.ends_of_wait(queue, [queue]))
        if not ends:
            return "messages left there are dropped when they expire: no queue gets them"
        return f"messages left there go on to {_names(ends)}"

    def _unasked(self, claims: Claims) -> Route:
        way = claims.way
        if way is None:
            return NO_WAY
        if way.queue is not None and not self._exists(way.queue):
            return _contradicted(way, f"there is no queue {text_of(way.queue)}")
        return Route(way, Verdict.UNCHECKED, self._problem)


WITHOUT_TOPOLOGY = Judge(None)
"""For messages with a given destination, and for subscriptions' failed queues: nothing needs to be
asked."""


class _Case:
    """The claims of one message, compared with what the broker knows."""

    def __init__(self, graph: DeadLetterGraph, claims: Claims) -> None:
        self._graph = graph
        self._claims = claims
        into = graph.into.get(claims.place, ())
        self._origins = sorted({one.source for one in into if graph.works(one.source)})
        self._brought_by = {one.source for one in into if self._may_have_brought(one)}
        named = dead_letter_names.read(claims.place)
        self._named = (
            named.origin
            if named is not None and named.origin is not None and graph.works(named.origin)
            else None
        )

    def _may_have_brought(self, one: DeadLettering) -> bool:
        """Check whether the broker may have brought the message this way.

        The broker itself writes the exchange and the key of a dead letter.
        """
        claims = self._claims
        return one.exchange == claims.exchange and one.routing_key in (None, claims.routing_key)

    def route(self) -> Route:
        """Return where the message is sent."""
        return self._dead_lettered() or self._told() or self._guessed()

    def _dead_lettered(self) -> Route | None:
        """Decide by the latest death that may have brought the message here.

        Deaths in other dead-letter queues are skipped. Returns None if no death fits: a broker
        writes one whenever it dead-letters.
        """
        claims, sources = self._claims, self._brought_by
        place = claims.place
        for index, death in enumerate(claims.deaths):
            if death.queue not in sources:
                return None
            if self._graph.is_dead_letter_queue(death.queue):
                place = death.queue
                sources = {one.source for one in self._graph.into.get(place, ())}
                continue
            if self._is_wait(death):
                return self._followed(death, claims.deaths[index + 1 :])
            why = f"{_name(death.queue)} has dead-lettered it to {_name(place)}"
            if not claims.exchange and self._named not in (None, death.queue):
                # Anybody may publish like this, and the death may be from an earlier life of the
                # message.
                return self._disagree(why)
            return self._to(death.queue, why)
        return None

    def _told(self) -> Route | None:
        """Decide by the notes of the framework that has published the message to its dead-letter
        queue."""
        claims = self._claims
        if claims.queue is not None and claims.queue != claims.place:
            return self._told_queue(claims.queue)
        if claims.published is None:
            return None
        reached = sorted(filter(self._works, self._graph.reached_from(*claims.published)))
        of_place = {*self._origins, *filter(None, [self._named])}
        narrowed = [queue for queue in reached if queue in of_place or not of_place]
        what = f"gets what is published to {_way(claims.published)}"
        if len(narrowed) == 1:
            (queue,) = narrowed
            which = "only " if len(reached) == 1 else "of those whose failures come here, only "
            return self._to(queue, f"{which}{_name(queue)} {what}")
        if not reached:
            return None
        if not narrowed:
            return self._not_of(f"{_names(reached)} {what}")
        why = f"each of {_names(narrowed)} {what}, and nothing says which failed"
        return Route(claims.published, Verdict.UNCHECKED, why)

    def _told_queue(self, queue: str) -> Route:
        said = f"its framework says that it failed in {_name(queue)}"
        if not self._graph.has(queue):
            return _contradicted(WayBack("", queue), f"{said}, and there is no such queue")
        if self._graph.is_wait(queue, [queue]):
            waited = next((one for one in self._claims.deaths if one.queue == queue), None)
            return self._followed(waited or Death(queue, "", ()), ())
        if self._named not in (None, queue):
            return self._disagree(said)
        if self._brought_by and queue not in self._brought_by:
            return self._not_of(said)
        return self._to(queue, said)

    def _guessed(self) -> Route:
        """Decide by the name of the dead-letter queue, and by deaths of unknown age."""
        last = self._last_death()
        if last is None or last.way is None:
            return self._without_deaths(last)
        queue = last.way.routing_key
        if self._named is not None and self._named != queue:
            if self._fails_elsewhere(queue):
                return self._without_deaths(None)
            return self._disagree(last.reason)
        if last.verdict is not Verdict.CONFIRMED:
            return last
        if self._named is not None:
            return last._replace(reason=f"{last.reason}, after which this queue is named")
        if self._graph.workers == {queue}:
            return last
        if self._origins and queue not in self._origins:
            return self._not_of(last.reason)
        why = f"{last.reason}, but has come here by another way, perhaps long after"
        return Route(last.way, Verdict.UNCHECKED, why)

    def _without_deaths(self, last: Route | None) -> Route:
        if self._named is not None:
            return self._to(self._named, f"this queue is named after {_name(self._named)}")
        if last is not None:
            return last
        if len(self._graph.workers) == 1:
            (only,) = self._graph.workers
            why = f"only {_name(only)} is a work queue here, but nothing says that it failed there"
            return Route(WayBack("", only), Verdict.UNCHECKED, why)
        if len(self._origins) == 1:
            (only,) = self._origins
            why = f"only {_name(only)} dead-letters here, but something else has brought it"
            return Route(WayBack("", only), Verdict.UNCHECKED, why)
        if self._origins:
            why = f"{_names(self._origins)} dead-letter here, and nothing says which it was"
            return Route(None, Verdict.UNKNOWN, why)
        return NO_WAY

    def _fails_elsewhere(self, queue: str) -> bool:
        """Check whether a queue dead-letters only to other queues than this one."""
        targets = {one.target for one in self._graph.out.get(queue, ())}
        return bool(targets) and self._claims.place not in targets

    def _last_death(self) -> Route | None:
        """Return where its latest death outside of dead-letter queues leads; None without one."""
        deaths = self._claims.deaths
        for index, death in enumerate(deaths):
            if death.queue == self._claims.place or self._graph.is_dead_letter_queue(death.queue):
                continue
            if self._is_wait(death):
                return self._followed(death, deaths[index + 1 :])
            return self._to(death.queue, f"it was dead-lettered by {_name(death.queue)}")
        return None

    def _is_wait(self, death: Death) -> bool:
        """Check whether the message only waited in that queue: consumers reject messages they work
        on."""
        return death.reason not in _FAILED and self._graph.is_wait(death.queue, death.keys)

    def _followed(self, wait: Death, before: tuple[Death, ...]) -> Route:
        """Return where messages that have waited in a queue go on to."""
        ends = self._graph.ends_of_wait(wait.queue, wait.keys)
        said = f"it waited in {_name(wait.queue)}"
        if len(ends) == 1:
            (end,) = ends
            return self._to(end, f"{said}, which leads to {_name(end)}")
        sources = {one.source for one in self._graph.into.get(wait.queue, ())}
        for death in before:
            if death.queue in sources and self._works(death.queue):
                return self._to(death.queue, f"{said} for {_name(death.queue)}")
        where = (
            f"which leads to {_names(sorted(ends))}" if ends else "which leads nowhere from here"
        )
        return Route(None, Verdict.UNKNOWN, f"{said}, {where}")

    def _to(self, queue: str, reason: str) -> Route:
        """Return the route to a queue suggested by `reason`, if messages are worked on there."""
        way = WayBack("", queue)
        if not self._graph.has(queue):
            return _contradicted(way, f"{reason}, and there is no queue {_name(queue)}")
        if self._graph.is_dead_letter_queue(queue):
            return _contradicted(way, f"{reason}, and {_name(queue)} is a dead-letter queue")
        if self._graph.drops(queue):
            why = f"{reason}, but nobody consumes {_name(queue)}: messages left there are dropped"
            return Route(way, Verdict.UNCHECKED, why)
        return Route(way, Verdict.CONFIRMED, reason)

    def _disagree(self, said: str) -> Route:
        return _contradicted(
            self._claims.way, f"{said}, but this queue is named after {_name(self._named)}"
        )

    def _not_of(self, said: str) -> Route:
        origins = self._origins or sorted(self._brought_by)
        verb = "dead-letters" if len(origins) == 1 else "dead-letter"
        return _contradicted(self._claims.way, f"{said}, but {_names(origins)} {verb} here")

    def _works(self, queue: str) -> bool:
        return queue != self._claims.place and self._graph.works(queue)


def _contradicted(way: WayBack | None, reason: str) -> Route:
    return Route(way, Verdict.CONTRADICTED, reason)


def _name(queue: str | None) -> str:
    return text_of(queue or "")


def _names(queues: list[str]) -> str:
    shown = [_name(queue) for queue in queues[:_MOST_NAMED]]
    more = len(queues) - len(shown)
    if more:
        return f"{', '.join(shown)} and {more:,} more"
    return " and ".join(filter(None, (", ".join(shown[:-1]), shown[-1])))


def _way(way: WayBack) -> str:
    exchange, key = _name(way.exchange), _name(way.routing_key)
    return f"{exchange or 'the default exchange'} with {key or 'an empty key'}"
