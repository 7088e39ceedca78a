"""Migrate the queues of a live subscription to new arguments, which RabbitMQ itself can't change.

A queue gets new arguments by being replaced by another queue of the same name. Meanwhile a
*transit* queue, `name@…@migrating`, stands in for it:

    divert   the transit queue gets every binding of the queue, then the queue loses them
    drain    messages in the queue move to the transit queue, including those that consumers return
    replace  the empty queue is deleted and created again with the new arguments
    restore  the new queue gets the bindings, then the transit queue loses them
    return   messages in the transit queue move to the new queue, and the transit queue is deleted

If the broker is to hold failed messages back itself (`retry_via="broker"`), there is no retry queue
any more: the old one is diverted and drained as before, and then

    remove   the empty retry queue is deleted, and its transit queue loses its bindings
    release  waiting messages go to the main queue at once, and the transit queue is deleted

`next_step` chooses the next step from what is on the broker alone. No other state is kept, so a
migration that died at any moment continues where it was, and a finished one finds nothing to do.
Between two steps every message is in one of the two queues.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal, assert_never

from redrive.amqp.field_table import MAX_SHORT_STRING
from redrive.errors import ConfigurationError
from redrive.topology import headers, rewrite
from redrive.topology.decision import retries_made
from redrive.topology.delay_policy import delay_of
from redrive.topology.diff import Observed
from redrive.topology.headers import Delivery
from redrive.topology.model import DELIVERY_LIMIT, Binding, Queue, Subscription, Topology
from redrive.topology.names import check_name
from redrive.topology.rewrite import Publish

TRANSIT_SUFFIX = "@migrating"
Kind = Literal["divert", "drain", "replace", "restore", "return", "remove", "release"]
MetricsAddress = Literal["main", "retry", "failed"]


@dataclass(frozen=True, slots=True)
class Step:
    """One step of a migration.

    Args:
        kind: what is done.
        place: which of the subscription's queues it is about.
        queue: that queue, with its new arguments.
        transit: the queue that stands in for it.
        bindings: those that are moved to the transit queue (divert) or to the queue (restore), or
            that the transit queue loses (remove).
        due: the main queue that waiting messages go to (release).
    """

    kind: Kind
    place: MetricsAddress
    queue: Queue
    transit: Queue
    bindings: tuple[Binding, ...] = ()
    due: str = ""

    def __str__(self) -> str:
        return _SENTENCES[self.kind].format(
            queue=self.queue.name, transit=self.transit.name, due=self.due
        )


_SENTENCES: Mapping[Kind, str] = {
    "divert": "messages for {queue} go to {transit}",
    "drain": "messages in {queue} move to {transit}",
    "replace": "{queue}, now empty, is deleted and created again",
    "restore": "messages for {queue} go to it again",
    "return": "messages in {transit} move to {queue}, and {transit} is deleted",
    "remove": "{queue}, now empty, is deleted",
    "release": "messages in {transit} go to {due}, and {transit} is deleted",
}


def transit_queue(queue: str) -> str:
    """Return the name of the queue that stands in for `queue`."""
    name = queue + TRANSIT_SUFFIX
    check_name("transit queue", name, MAX_SHORT_STRING)
    return name


def next_step(subscription: Subscription, observed: Observed, quiet: frozenset[str]) -> Step | None:
    """Return the next step of a subscription's migration; None if its queues are as they should
    be."""
    return _Migration(subscription, observed, quiet).next_step()


def is_needed(subscription: Subscription, observed: Observed) -> bool:
    """Return whether a queue of the subscription has other arguments, or a migration of it is
    unfinished."""
    return next_step(subscription, observed, frozenset()) is not None


def into_failed(subscription: Subscription, observed: Observed) -> tuple[str, ...]:
    """Return the queues whose messages the migration moves into the new failed queue; none if that
    queue stays as it is."""
    failed = _Migration(subscription, observed, frozenset()).failed
    return (
        (failed.queue.name, failed.transit.name) if failed.is_old or failed.transit_is_there else ()
    )


def check_room(subscription: Subscription, failed: int) -> None:
    """Raise ConfigurationError if the new failed queue would refuse some of the `failed` messages
    that must move into it."""
    if subscription.max_failed is not None and failed > subscription.max_failed:
        raise ConfigurationError(
            f"{subscription.failed_queue!r} has {failed} messages, but may hold only "
            f"{subscription.max_failed} (max_failed): it would refuse "
            "the rest",
            f"Raise max_failed to {failed} or more, or make room: redrive failed requeue "
            f"{subscription.queue}, or redrive failed discard.",
        )


class _Migration:
    def __init__(
        self, subscription: Subscription, observed: Observed, quiet: frozenset[str]
    ) -> None:
        topology = subscription.topology()
        self.main = _Swap("main", _queue(topology, subscription.queue), topology, observed, quiet)
        self.wants_retry_queue = subscription.retry_via != "broker"
        self.retry = _Swap(
            "retry", _retry_queue(subscription, topology, observed), topology, observed, quiet
        )
        self.failed = _Swap(
            "failed", _queue(topology, subscription.failed_queue), topology, observed, quiet
        )

    def next_step(self) -> Step | None:
        """Return the next step of the failed queue, which is independent; then of the main queue,
        for which the retry queue must give way first, or of the retry queue alone."""
        step = self.failed.next_step()
        if step is not None:
            return step
        step = (self._made_first() or self._making_way()) if self.main.is_old else None
        if step is not None:
            return step
        return (
            self.main.until_restored()
            or (self.retry.next_step() if self.wants_retry_queue else self._without_retry_queue())
            or self.main.next_step()
        )

    def _made_first(self) -> Step | None:
        """Return the next step to create the retry queue that a main queue needs before it
        dead-letters: there is none if the broker has held messages back so far."""
        retry = self.retry
        if not self.wants_retry_queue or retry.transit_is_there:
            return None
        if not retry.is_there:
            return retry.step("replace")
        return None if retry.ways_in else retry.step("restore", retry.wanted)

    def _without_retry_queue(self) -> Step | None:
        """Return the next step to remove the retry queue once nothing is rejected into it."""
        retry = self.retry
        if retry.is_there:
            if not retry.is_diverted:
                return retry.step("divert", retry.ways_in)
            return retry.step("remove" if retry.is_quiet else "drain", retry.ways_to_transit)
        if not retry.transit_is_there:
            return None
        if retry.ways_to_transit:
            return retry.step("remove", retry.ways_to_transit)
        return replace(retry.step("release"), due=self.main.queue.name)

    def _making_way(self) -> Step | None:
        """Return the next step before the main queue is replaced: no message may come from the
        retry queue while the main queue does not exist.

        Once the main queue is quiet, nothing is rejected, and the retry queue can be replaced
        without a message on its way to it.
        """
        main, retry = self.main, self.retry
        if not (retry.is_there or retry.transit_is_there):
            # The broker holds messages back, both before and after.
            return main.way_out()
        if not main.is_diverted:
            if not retry.is_diverted:
                return retry.step("divert", retry.ways_in)
            return retry.step("drain") if not retry.is_quiet else main.step("divert", main.ways_in)
        if not main.is_quiet:
            return main.step("drain")
        if retry.is_diverted and not retry.is_quiet:
            return retry.step("drain")
        return retry.until_restored() if retry.transit_is_there and self.wants_retry_queue else None


class _Swap:
    """One queue to be replaced, and its state on the broker."""

    def __init__(
        self,
        place: MetricsAddress,
        queue: Queue,
        topology: Topology,
        observed: Observed,
        quiet: frozenset[str],
    ) -> None:
        self.place = place
        self.queue = queue
        self.transit = Queue(
            transit_queue(queue.name), {"x-queue-type": queue.type, **_kept_for_ever(queue)}
        )
        self.is_there = queue.name in observed.queues
        self.is_old = self.is_there and dict(observed.queues[queue.name]) != dict(queue.arguments)
        self.transit_is_there = self.transit.name in observed.queues
        self.ways_in = _bindings_to(queue.name, observed)
        self.ways_to_transit = _bindings_to(self.transit.name, observed)
        self.is_quiet = queue.name in quiet
        self.wanted = tuple(
            binding for binding in topology.bindings if binding.destination == queue.name
        )

    @property
    def is_diverted(self) -> bool:
        """Whether all messages for the queue go to the transit queue."""
        return self.transit_is_there and not self.ways_in

    def next_step(self) -> Step | None:
        """Return the next step to replace this queue on its own."""
        if self.is_old:
            return self.way_out() or self.step("replace")
        step = self.until_restored()
        if step is not None:
            return step
        return self.step("return") if self.transit_is_there else None

    def way_out(self) -> Step | None:
        """Return the next step until the queue is empty and gets no more messages."""
        if not self.is_diverted:
            return self.step("divert", self.ways_in)
        return None if self.is_quiet else self.step("drain")

    def until_restored(self) -> Step | None:
        """Return the next step until messages go to the new queue."""
        if self.is_old or (self.transit_is_there and not self.is_there):
            return self.step("replace")
        if self.ways_to_transit:
            moved = tuple(
                replace(binding, destination=self.queue.name) for binding in self.ways_to_transit
            )
            return self.step("restore", tuple(dict.fromkeys((*self.wanted, *moved))))
        return None

    def step(self, kind: Kind, bindings: tuple[Binding, ...] = ()) -> Step:
        """Return a step for this queue."""
        return Step(kind, self.place, self.queue, self.transit, bindings)


def _bindings_to(queue: str, observed: Observed) -> tuple[Binding, ...]:
    return tuple(
        sorted(
            binding
            for binding in observed.bindings
            if binding.to == "queue" and binding.destination == queue
        )
    )


def _kept_for_ever(queue: Queue) -> dict[str, int]:
    # Messages that are looked at, or held by a migration that dies, are returned again and again.
    return {"x-delivery-limit": DELIVERY_LIMIT} if queue.type == "quorum" else {}


def _queue(topology: Topology, name: str) -> Queue:
    return next(queue for queue in topology.queues if queue.name == name)


def _retry_queue(subscription: Subscription, topology: Topology, observed: Observed) -> Queue:
    """Return the wanted retry queue; if none is wanted, the existing one."""
    name = subscription.retry_queue
    if subscription.retry_via != "broker":
        return _queue(topology, name)
    arguments = observed.queues.get(name, observed.queues.get(name + TRANSIT_SUFFIX, {}))
    return Queue(
        name,
        {argument: value for argument, value in arguments.items() if isinstance(value, str | int)},
    )


def moved(step: Step, delivery: Delivery, source: str, *, frame_max: int) -> Publish:
    """Return the publish that moves a message from `source`, the queue or its transit queue, to the
    other one.

    A message that was moved before is only passed on.
    """
    destination = step.queue.name if source == step.transit.name else step.transit.name
    if step.kind == "release":
        return _released(step, delivery, frame_max=frame_max)
    if delivery.exchange == "" and delivery.routing_key == step.transit.name:
        return rewrite.pass_on(delivery, destination)
    match step.place:
        case "failed":
            return rewrite.relocate_failed(delivery, destination, frame_max=frame_max)
        case "main":
            return rewrite.relocate(
                delivery, destination, retries=retries_made(delivery), frame_max=frame_max
            )
        case "retry":
            waiting, retries = _waiting(delivery)
            return rewrite.relocate(waiting, destination, retries=retries, frame_max=frame_max)
        case _:
            assert_never(step.place)


def _waiting(delivery: Delivery) -> tuple[Delivery, int]:
    """Return a message of the retry queue as it would come back, and its retries before this trip:
    it got there from the main queue."""
    waiting = replace(delivery, exchange=delivery.way_back)
    noted = headers.counted(waiting.note(headers.RETRIES))
    return waiting, noted + headers.trips_before(waiting.deaths, waiting.queue)


def _released(step: Step, delivery: Delivery, *, frame_max: int) -> Publish:
    """Return the publish that sends a waiting message back to the main queue now: that is one more
    retry, which no broker counts."""
    waiting, retries = _waiting(
        replace(delivery, routing_key=delivery.queue)
        if delivery.routing_key == step.transit.name
        else delivery
    )
    return rewrite.relocate(waiting, step.due, retries=retries + 1, frame_max=frame_max)


def identity_of(delivery: Delivery) -> str | None:
    """Return what only copies of one published message have in common; None for a message without
    an id.

    While bindings change, one publish may reach both queues. Copies are recognized by their bytes
    and their message id. A message without an id may be one of several identical messages, none of
    which may be lost.
    """
    return (
        headers.fingerprint(delivery)
        if delivery.properties.message_id and delivery.exchange
        else None
    )


def pauses(subscription: Subscription, observed: Observed) -> tuple[str, ...]:
    """Return sentences about what stands still while the migration runs."""
    migration = _Migration(subscription, observed, frozenset())
    sentences: list[str] = []
    found = observed.queues.get(subscription.queue, {})
    if migration.main.is_old and "x-delayed-retry-type" in found:
        held = found.get("x-delayed-retry-max")
        if held is None and (policy := delay_of(subscription.queue, observed.policies)):
            held = policy.most
        sentences.append(
            f"it waits for messages that the broker holds back in {subscription.queue}"
            + (f", up to {held / 1000:g} s" if isinstance(held, int) else "")
        )
    if not migration.wants_retry_queue and (
        migration.retry.is_there or migration.retry.transit_is_there
    ):
        sentences.append(
            f"messages in {subscription.retry_queue} come back once the new queue is there, sooner "
            "or later than their delay"
        )
    if migration.main.is_old or migration.main.transit_is_there:
        sentences.append(
            f"consumers of {subscription.queue} finish what they hold and get nothing further "
            "until the new queue is there; their "
            "consumer is then cancelled, and they reconnect by themselves (a subscriber that still "
            "asks for the old arguments does not)"
        )
    if migration.wants_retry_queue and (
        migration.retry.is_old
        or migration.retry.transit_is_there
        or (migration.main.is_old and migration.retry.is_there)
    ):
        sentences.append(
            f"messages in {subscription.retry_queue} wait longer: their delay starts again "
            "afterwards"
        )
    if migration.failed.is_old or migration.failed.transit_is_there:
        sentences.append(f"{subscription.failed_queue} seems to have fewer messages than it has")
    return tuple(sentences)
