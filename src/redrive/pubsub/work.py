"""A delivery on its way through a subscriber, the options for consuming, and the interface of
workers."""

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Protocol

from redrive.amqp.frames import Received
from redrive.pubsub.attempt import AsyncMiddleware, GiveUpHook, Middleware
from redrive.pubsub.body import NO_DECODERS, Decoder
from redrive.pubsub.confirms import Outgoing
from redrive.pubsub.consumer import Consumer
from redrive.pubsub.message import Message
from redrive.pubsub.order_key import ReadKey
from redrive.pubsub.verdict import Decider, OutageSeen
from redrive.redaction import in_one_line
from redrive.topology.broker_version import CONSUMER_TIMEOUT, BrokerVersion
from redrive.topology.headers import Delivery
from redrive.topology.model import Subscription
from redrive.topology.outage import Outage
from redrive.topology.policy import longest_wait_of

_A_MINUTE = 60
MAX_HUNG = 100
"""How many handlers may still be running after their timeout."""

Where = Callable[[Message], bool]
"""Decides whether a message is handled."""


class WorkItem:
    """A delivery, with the consumer and decider of its connection."""

    __slots__ = (
        "consumer",
        "decider",
        "delivery",
        "failed_by_outage",
        "held",
        "is_behind",
        "is_tried",
        "key",
        "outage",
        "outgoing",
        "place",
        "ran",
        "received",
        "resends",
        "settled",
        "step_began",
        "timed_out_after",
        "turn",
    )

    def __init__(self, consumer: Consumer, decider: Decider, received: Received) -> None:
        self.consumer = consumer
        self.decider = decider
        self.received = received
        self.delivery: Delivery | None = None
        self.key: str | None = ""
        """What it is ordered by; None if it has no key."""
        self.place = 0
        """Its place among the messages that are parked for its key; 0 if it has none."""
        self.is_behind = False
        """Whether it is set aside because its key is parked."""
        self.settled = False
        self.resends = 0
        self.outgoing: Outgoing | None = None
        """The publish that moves it, until the broker has answered."""
        self.timed_out_after: float | None = None
        """The time limit in seconds if its handler timed out; else None."""
        self.held = 0.0
        """Seconds for which its handler has blocked the event loop."""
        self.step_began = 0.0
        """When it last began to block the loop, by the monotonic clock."""
        self.ran = self.is_tried = self.failed_by_outage = False
        """Whether its handler was called, whether it tries whether an outage is over, and whether
        an outage has failed it."""
        self.turn: int
        """How many outages had begun when it was handed to the workers."""
        self.outage: OutageSeen
        """Set if an outage has failed it."""

    @property
    def name(self) -> str:
        """Its name in log lines."""
        if self.delivery is None:
            return f"delivery {self.received.delivery_tag}"
        return in_one_line(
            f"message {Message(self.delivery).message_id} ({self.delivery.original_routing_key})"
        )


@dataclass(frozen=True, slots=True)
class ConsumeOptions:
    """Options for consuming a queue.

    Args:
        concurrency: how many items the workers run at a time.
        prefetch: unsettled deliveries that the broker may send.
        declares: whether the topology is declared on connecting.
        handler_timeout: seconds after which a handler counts as failed; None for never.
        max_hung: how many handlers may still be running after that before no more messages are
            taken.
        where: decides whether a message is handled; declined ones are acked. None accepts all.
        order_by: returns the key of a message in an ordered queue; None for one key for all.
        grace: seconds that running handlers have to finish on stopping.
        patience: how long to wait at startup for a broker that does not answer.
        log_tracebacks: whether to log the traceback of each failed attempt.
        decoders: functions that read bodies, by content type.
        middleware: what runs around each attempt, the outermost first.
        on_give_up: called for each message that is being set aside.
        outages: errors that mean that something the handlers need is down.
        rate: the most messages that begin per second; None for no limit.
        clock: the time in seconds, by a clock that never goes back.
    """

    concurrency: int
    prefetch: int
    declares: bool = True
    handler_timeout: float | None = None
    max_hung: int = MAX_HUNG
    where: Where | None = None
    order_by: ReadKey | None = None
    grace: float = 30.0
    patience: timedelta = timedelta(seconds=30)
    log_tracebacks: bool = False
    decoders: Mapping[str, Decoder] = field(default_factory=lambda: NO_DECODERS)
    middleware: tuple[Middleware | AsyncMiddleware, ...] = ()
    on_give_up: tuple[GiveUpHook, ...] = ()
    outages: tuple[Outage, ...] = ()
    rate: float | None = None
    clock: Callable[[], float] = time.monotonic


def longest_stay(subscription: Subscription, options: ConsumeOptions, seconds: float) -> float:
    """Return how many seconds a message may stay unsettled if each handler takes `seconds`."""
    stay = seconds * options.prefetch / options.concurrency
    if subscription.ordered and options.prefetch == 1:  # held while it is handled, until its retry
        stay += longest_wait_of(subscription.retry).total_seconds()
    elif subscription.ordered:  # held while an earlier message of its key is tried again and again
        stay += subscription.retry.span[1].total_seconds()
    return stay


def consumer_timeout(
    subscription: Subscription, options: ConsumeOptions, broker: BrokerVersion
) -> int | None:
    """Return how many milliseconds to ask the broker to let a message stay unsettled; None if the
    broker's default is long enough, or can't be changed."""
    limit = options.handler_timeout
    if limit is None or not broker.has_a_consumer_timeout_for_each_consumer:
        return None
    if subscription.queue_type != "quorum" or subscription.broadcast:
        return None
    stay = longest_stay(subscription, options, limit)
    if stay <= CONSUMER_TIMEOUT.total_seconds() / 2:
        return None
    return int((2 * stay + _A_MINUTE) * 1000)


class LossCounter:
    """Counts messages that a subscriber declined or dropped, which are neither retried nor set
    aside, and those without the key that they are ordered by."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.declined = 0
        self.let_go = 0
        self.discarded = 0
        self.keyless = 0

    def miss_key(self) -> None:
        """Count a message that has no key; from any thread."""
        with self._lock:
            self.keyless += 1

    def decline(self) -> None:
        """Count a message that the predicate declined; from any thread."""
        with self._lock:
            self.declined += 1


class Workers(Protocol):
    """Runs items, a limited number at a time, in the order of arrival."""

    def put(self, item: WorkItem) -> None:
        """Run an item as soon as there is room."""

    def drop_waiting(self) -> list[WorkItem]:
        """Remove and return the items that have not begun."""

    def abandon_overdue(self, seconds: float, every: float) -> list[tuple[WorkItem, str]]:
        """Abandon items that have run for longer than `seconds`, and make room for others; return
        each with the stack where it hangs.

        Called `every` so many seconds, or later if a handler blocks the event loop: that time
        counts only against the handler that blocks it.
        """

    def stop(self) -> None:
        """Stop: no more items will come."""
