"""Carry out a migration: the queues of a live subscription get new arguments, without losing
messages.

`redrive.topology.migration` decides the next step from the state of the broker; this module
executes it. A run may die at any moment, and the next run continues.
"""

import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import assert_never

from redrive.amqp.properties import Properties
from redrive.errors import BrokerUnavailable, ConfigurationError, RedriveError, TopologyMismatch
from redrive.pubsub.admin.management_api import ManagementAPI
from redrive.pubsub.blocking.connection import Connector
from redrive.pubsub.blocking.declarer import Declarer, declaring
from redrive.pubsub.confirms import Outgoing
from redrive.pubsub.in_flight import ThreadInFlight
from redrive.pubsub.lifecycle import ANSWER_TIMEOUT
from redrive.pubsub.transfer.queue_reader import Held, QueueReader
from redrive.topology.headers import Delivery
from redrive.topology.migration import Step, identity_of, moved, next_step, transit_queue
from redrive.topology.model import Subscription

_BEFORE_ALL_OTHERS = 1_000_000
_BATCH = 200
_SETTLING = 2.0
"""How long to wait for messages that were being routed while bindings changed, in seconds. On a
broker with a load of 15, half a second was once too short."""
_BETWEEN_LOOKS = 0.5
_STATISTICS_ARE_LATE = 12.0
"""Seconds until the management API reliably counts messages held by consumers.

Source: a queue reports every 5 s, and reports are collected every 5 s
(collect_statistics_interval); measured on 3.10.8: up to 10.0 s.
"""
_MOST_RACES = 5
_MOST_IN_FLIGHT = 1000
"""Maximum number of sent but unconfirmed messages."""
_MOST_TWICE = 2 * _MOST_IN_FLIGHT
"""Those, plus as many whose acks are in transit: the most messages that may exist twice when a run
dies."""

Progress = Callable[[str], None]


@dataclass(slots=True)
class MigrationReport:
    """The result of a migration.

    Args:
        steps: number of steps.
        moved: number of moves; a message counts each time it was moved.
        twins: removed copies of messages that had reached both queues while bindings changed.
        possible_duplicates: messages that may exist twice because their move was not seen to be
            confirmed, including those of a run that died.
    """

    steps: int = 0
    moved: int = 0
    twins: int = 0
    possible_duplicates: int = 0


class Migration:
    """One run of a migration."""

    def __init__(
        self,
        connector: Connector,
        management: ManagementAPI,
        subscription: Subscription,
        on_progress: Progress,
    ) -> None:
        self._connector = connector
        self._management = management
        self._subscription = subscription
        self._on_progress = on_progress
        self._report = MigrationReport()
        self._quiet: set[str] = set()
        self._twins: dict[str, Counter[str]] = {}
        self._races = 0
        self._is_held_back = False

    def run(self) -> MigrationReport:
        """Carry out the remaining steps."""
        self._declare_exchanges()
        while True:
            observed = self._management.observe()
            self._is_held_back = "x-delayed-retry-type" in observed.queues.get(
                self._subscription.queue, {}
            )
            step = next_step(self._subscription, observed, frozenset(self._quiet))
            if step is None:
                return self._report
            self._on_progress(str(step))
            if not self._report.steps:
                self._tell_of_a_run_that_died()
            self._do(step)
            self._report.steps += 1

    def _declare_exchanges(self) -> None:
        """Declare the exchanges: a new mechanism may need one that does not exist yet, and a newer
        broker."""
        with declaring(self._connector) as declarer:
            self._subscription.check_broker(declarer.version)
            for exchange in self._subscription.topology().exchanges:
                declarer.declare(exchange)

    def _do(self, step: Step) -> None:
        match step.kind:
            case "divert":
                self._divert(step)
            case "drain":
                self._drain(step)
            case "replace":
                self._replace(step)
            case "restore":
                self._restore(step)
            case "return" | "release":
                self._return(step)
            case "remove":
                self._remove(step)
            case _:
                assert_never(step.kind)

    def _divert(self, step: Step) -> None:
        """Redirect the bindings to the transit queue and start draining.

        Draining starts before the switch, so that no other consumer gets a message that also has a
        copy in the transit queue.
        """
        self._quiet.discard(step.queue.name)
        with declaring(self._connector) as declarer:
            declarer.declare(step.transit)
        self._move(step, step.queue.name, lambda: self._diverted(step))

    def _diverted(self, step: Step) -> Counter[str]:
        with declaring(self._connector) as declarer:
            _switch(declarer, step, step.transit.name, step.queue.name)
        time.sleep(_SETTLING)
        found = self._identities_in(step.transit.name)
        if self._races:
            # The subscriber has bound the queue as well, and may have handled copies of these.
            self._report.possible_duplicates += found.total()
        return found

    def _drain(self, step: Step) -> None:
        self._move(step, step.queue.name, lambda: self._identities_in(step.transit.name))
        while not self._is_quiet(step):
            self._on_progress(f"{step.queue.name}: waiting for messages held by its consumers")
            self._move(step, step.queue.name, Counter)
        self._quiet.add(step.queue.name)

    def _is_quiet(self, step: Step) -> bool:
        """Return whether the queue is empty, including held messages, and stays so for as long as
        statistics are late.

        A consumer that is leaving a main queue may still hold messages when it is no longer
        counted. Nobody processes the messages of the other queues.
        """
        queue = step.queue.name
        deadline = time.monotonic() + _STATISTICS_ARE_LATE
        with declaring(self._connector) as declarer:
            depth = declarer.depth(queue)
            if step.place != "main" and (depth is None or not (depth.messages or depth.consumers)):
                return True
            uncounted = False
            while time.monotonic() < deadline:
                depth = declarer.depth(queue)
                count = self._management.message_count(queue)
                uncounted = count is None
                if (depth is not None and depth.messages) or count:
                    time.sleep(_BETWEEN_LOOKS)
                    return False
                time.sleep(_BETWEEN_LOOKS)
        if uncounted:
            raise ConfigurationError(
                f"the management API does not show how many messages of {queue!r} are unacked",
                "Enable the broker's statistics (management.disable_stats, "
                "management_agent.disable_metrics_collector), then run this again.",
            )
        return True

    def _replace(self, step: Step) -> None:
        with declaring(self._connector) as declarer:
            depth = declarer.depth(step.queue.name)
            if depth is not None and depth.messages:
                self._quiet.discard(step.queue.name)  # something was requeued to it in the meantime
                return
            try:
                declarer.replace(step.queue)
            except TopologyMismatch:
                # A subscriber that still declares the old arguments was faster. The queue is empty,
                # so start over.
                self._races += 1
                if self._races > _MOST_RACES:
                    raise ConfigurationError(
                        f"a subscriber keeps declaring {step.queue.name!r} with its old arguments",
                        "Stop it, or give it the new arguments, then run this again.",
                    ) from None

    def _remove(self, step: Step) -> None:
        """Delete the empty retry queue, and unbind its transit queue."""
        with declaring(self._connector) as declarer:
            depth = declarer.depth(step.queue.name)
            if depth is not None and depth.messages:
                self._quiet.discard(step.queue.name)  # an old subscriber has put something into it
                return
            declarer.delete(step.queue)
            for binding in step.bindings:
                declarer.unbind(replace(binding, destination=step.transit.name))

    def _restore(self, step: Step) -> None:
        """Bind the new queue. Messages that reach both queues in the meantime are held here, so
        that copies are recognised before a consumer gets them."""
        with (
            QueueReader(
                self._connector,
                step.queue.name,
                prefetch=0,
                comes_back=False,
                priority=_BEFORE_ALL_OTHERS,
                held_back=self._holds_back(step.queue.name),
            ) as holder,
            declaring(self._connector) as declarer,
        ):
            _wait_until_consuming(holder, self._connector)
            _switch(declarer, step, step.queue.name, step.transit.name)
            self._twins[step.queue.name] = self._identities_of(
                holder, step.queue.name, None, time.monotonic() + _SETTLING
            )

    def _tell_of_a_run_that_died(self) -> None:
        """Report that messages which an earlier run was moving are in both queues, or have been
        handled since."""
        queues = (
            self._subscription.queue,
            self._subscription.retry_queue,
            self._subscription.failed_queue,
        )
        with declaring(self._connector) as declarer:
            found = map(declarer.depth, map(transit_queue, queues))
            count = min(_MOST_TWICE, sum(depth.messages for depth in found if depth is not None))
        if count:
            self._report.possible_duplicates += count
            # Now rather than at the end: this run may die, too.
            self._on_progress(
                f"an earlier run was interrupted; up to {count} messages of "
                f"{self._subscription.queue} may exist twice"
            )

    def _return(self, step: Step) -> None:
        self._move(
            step,
            step.transit.name,
            lambda: self._twins.pop(step.queue.name, Counter()),
            _MOST_IN_FLIGHT,
        )
        with declaring(self._connector) as declarer:
            depth = declarer.depth(step.transit.name)
            # A consumer that is still there belongs to a run that died: the messages it holds are
            # not counted, and would be deleted with the queue.
            if depth is not None and not (depth.messages or depth.consumers):
                declarer.delete(step.transit)

    def _identities_in(self, queue: str) -> Counter[str]:
        """Return the identities of the messages in a queue; all of them stay there."""
        with declaring(self._connector) as declarer:
            depth = declarer.depth(queue)
        if depth is None or not depth.messages:
            return Counter()
        count = depth.messages
        with QueueReader(
            self._connector, queue, prefetch=None, most=count, comes_back=False
        ) as holder:
            return self._identities_of(holder, queue, count, time.monotonic() + ANSWER_TIMEOUT)

    def _identities_of(
        self, holder: QueueReader, queue: str, most: int | None, deadline: float
    ) -> Counter[str]:
        """Return the identities of the next `most` messages, or of those that come until the
        deadline."""
        found: Counter[str] = Counter()
        taken_in_all = 0
        while most is None or taken_in_all < most:
            taken = holder.next(
                ANSWER_TIMEOUT, empty=lambda: False, stop=lambda: time.monotonic() > deadline
            )
            if taken is None:
                break
            taken_in_all += 1
            identity = identity_of(self._delivery(taken, queue))
            if identity is not None:
                found[identity] += 1
        return found

    def _delivery(self, taken: Held, source: str) -> Delivery:
        received = taken.received
        main = self._subscription.exchanges.main
        # With interop retries, messages come back from the retry queue through the main exchange.
        way_back = (
            main
            if received.exchange == main and received.routing_key == self._subscription.queue
            else ""
        )
        return Delivery(
            self._subscription.queue,
            received.exchange,
            received.routing_key,
            Properties.parse(received.properties),
            received.body,
            received.redelivered,
            way_back,
            # Messages that went back to a transit queue have not failed.
            held_back=self._is_held_back and source == self._subscription.queue,
        )

    def _holds_back(self, queue: str) -> bool:
        """Return whether the broker holds back messages of this queue as failed when a channel
        closes."""
        return queue == self._subscription.queue and (
            self._is_held_back or self._subscription.retry_via == "broker"
        )

    def _move(
        self,
        step: Step,
        source: str,
        look_for_twins: Callable[[], Counter[str]],
        most_in_flight: int = 0,
    ) -> None:
        """Move the messages of a queue, removing those of which the other queue has a copy.

        `look_for_twins` is called once all of the queue's messages come here, that is, when other
        consumers get nothing any more.
        """
        moving = _Moving(step, source, self._report)
        with (
            declaring(self._connector) as declarer,
            QueueReader(
                self._connector,
                source,
                prefetch=most_in_flight,
                comes_back=False,
                priority=_BEFORE_ALL_OTHERS,
                held_back=self._holds_back(source),
            ) as taking,
        ):
            _wait_until_consuming(taking, self._connector)
            twins = look_for_twins()

            def is_empty() -> bool:
                depth = declarer.depth(source)
                return depth is None or not depth.messages

            while (
                taken := taking.next(ANSWER_TIMEOUT, empty=is_empty, stop=moving.has_failed)
            ) is not None:
                delivery = self._delivery(taken, source)
                identity = identity_of(delivery)
                if identity is not None and twins[identity] > 0:
                    twins[identity] -= 1
                    self._report.twins += 1
                    taking.ack(taken)
                else:
                    moving.add(taking, taken, delivery)
                if moving.is_full or not taking.has_more:
                    moving.send(taking)
                    self._on_progress(f"{source}: {self._report.moved} moved")
            moving.send(taking)
            moving.wait(taking)


class _Moving:
    """Messages being moved between queues: each is acked when the other queue has it."""

    def __init__(self, step: Step, source: str, report: MigrationReport) -> None:
        self._step = step
        self._source = source
        self._report = report
        self._in_flight = ThreadInFlight()
        self._failure: RedriveError | None = None
        self._batch: list[tuple[Held, Outgoing]] = []

    @property
    def is_full(self) -> bool:
        """Whether a batch is complete."""
        return len(self._batch) >= _BATCH

    def has_failed(self) -> bool:
        """Return whether a message could not be moved."""
        return self._failure is not None

    def add(self, taking: QueueReader, taken: Held, delivery: Delivery) -> None:
        """Add a message to the batch."""
        publish = moved(self._step, delivery, self._source, frame_max=taking.frame_max)
        self._in_flight.add(1)
        self._batch.append(
            (
                taken,
                Outgoing(
                    publish.exchange,
                    publish.routing_key,
                    publish.properties.encode(),
                    publish.body,
                    publish.properties.message_id or "",
                    lambda outgoing, error: self._settled(taking, taken, outgoing, error),
                ),
            )
        )

    def send(self, taking: QueueReader) -> None:
        """Send the batch, and wait while too many messages are unconfirmed."""
        if self._batch:
            taking.publish(self._batch)
            self._batch = []
            self._wait_until_below(_MOST_IN_FLIGHT + 1)

    def _settled(
        self, taking: QueueReader, taken: Held, outgoing: Outgoing, error: RedriveError | None
    ) -> None:
        with self._in_flight.lock:
            self._report.possible_duplicates += outgoing.in_doubt
            if error is None:
                self._report.moved += 1
                taking.settled(taken)
            else:
                self._failure = self._failure or error
            self._in_flight.settle()

    def wait(self, taking: QueueReader) -> None:
        """Wait until all messages are settled; raise the first error."""
        taking.drain()
        self._wait_until_below(1)
        if self._failure is not None:
            raise self._failure

    def _wait_until_below(self, count: int) -> None:
        if not self._in_flight.wait_until_below(count, ANSWER_TIMEOUT):
            raise BrokerUnavailable(
                self._source,
                f"{self._in_flight.count} moved messages were not confirmed in time",
                "Run this again to continue.",
            )


def _wait_until_consuming(taking: QueueReader, connector: Connector) -> None:
    deadline = time.monotonic() + ANSWER_TIMEOUT
    while not taking.consuming:
        if time.monotonic() > deadline:
            raise BrokerUnavailable(
                connector.url.address,
                "consuming did not start in time",
                "Run this again to continue.",
            )
        time.sleep(0.01)


def _switch(declarer: Declarer, step: Step, to: str, of: str) -> None:
    """Bind one queue in place of another. The new bindings are added before the old ones are
    removed, so that no message is missed."""
    for binding in step.bindings:
        declarer.declare(replace(binding, destination=to))
    for binding in step.bindings:
        declarer.unbind(replace(binding, destination=of))
