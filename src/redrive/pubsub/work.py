"""A delivery on its way through a subscriber, what runs its handler, and the count of what is
neither retried nor set aside."""

import threading
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
from redrive.pubsub.verdict import Decider
from redrive.redaction import in_one_line
from redrive.topology.broker_version import CONSUMER_TIMEOUT, BrokerVersion
from redrive.topology.headers import Delivery
from redrive.topology.model import Subscription
from redrive.topology.policy import longest_wait_of

_A_MINUTE = 60
MAX_HUNG = 100
"""How many handlers that were given up on may run on."""

Where = Callable[[Message], bool]
"""Says of a message whether it is handled."""


class WorkItem:
    """A delivery, and the consumer and decider of the connection that it came on."""

    __slots__ = (
        "consumer",
        "decider",
        "delivery",
        "held",
        "outgoing",
        "received",
        "resends",
        "settled",
        "step_began",
        "timed_out_after",
    )

    def __init__(self, consumer: Consumer, decider: Decider, received: Received) -> None:
        self.consumer = consumer
        self.decider = decider
        self.received = received
        self.delivery: Delivery | None = None
        self.settled = False
        self.resends = 0
        self.outgoing: Outgoing | None = None
        """The publish that moves it, until the broker has answered."""
        self.timed_out_after: float | None = None
        """After how many seconds its handler was given up on; None where it was not."""
        self.held = 0.0
        """Seconds for which its handler has kept the event loop from running anything else."""
        self.step_began = 0.0
        """When it has begun to do so now, by the monotonic clock."""

    @property
    def name(self) -> str:
        """What a log line calls it."""
        if self.delivery is None:
            return f"delivery {self.received.delivery_tag}"
        return in_one_line(
            f"message {Message(self.delivery).message_id} ({self.delivery.original_routing_key})"
        )


@dataclass(frozen=True, slots=True)
class ConsumeOptions:
    """How a queue is consumed.

    Args:
        concurrency: how many items the workers run at a time.
        prefetch: unsettled deliveries that the broker may send.
        declares: whether the topology is declared when it connects.
        handler_timeout: after how many seconds a handler counts as failed; None for never.
        max_hung: at how many handlers that still run then no more messages are taken.
        where: says of a message whether it is handled; what it declines is acked. None takes all.
        grace: seconds that running handlers have to finish when it stops.
        patience: how long a broker that does not answer is waited for at the start.
        log_tracebacks: whether the log has the traceback of each failed attempt.
        decoders: what reads a body, by its content type.
        middleware: what runs around each attempt, the outermost first.
        on_give_up: told of each message that is being set aside.
    """

    concurrency: int
    prefetch: int
    declares: bool = True
    handler_timeout: float | None = None
    max_hung: int = MAX_HUNG
    where: Where | None = None
    grace: float = 30.0
    patience: timedelta = timedelta(seconds=30)
    log_tracebacks: bool = False
    decoders: Mapping[str, Decoder] = field(default_factory=lambda: NO_DECODERS)
    middleware: tuple[Middleware | AsyncMiddleware, ...] = ()
    on_give_up: tuple[GiveUpHook, ...] = ()


def longest_stay(subscription: Subscription, options: ConsumeOptions, seconds: float) -> float:
    """How many seconds a message may stay unsettled where each handler takes so many."""
    stay = seconds * options.prefetch / options.concurrency
    if subscription.ordered:  # held by its handler, and then for its retry
        stay += longest_wait_of(subscription.retry).total_seconds()
    return stay


def consumer_timeout(
    subscription: Subscription, options: ConsumeOptions, broker: BrokerVersion
) -> int | None:
    """For how many milliseconds the broker is to let a message stay unsettled, where handlers may
    take longer than it does by itself; None where its own time will do, or can't be changed."""
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
    """What a subscriber has neither retried nor set aside, since it was made."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.declined = 0
        self.let_go = 0

    def decline(self) -> None:
        """A predicate has declined a message; from any thread."""
        with self._lock:
            self.declined += 1


class Workers(Protocol):
    """Runs items, so many at a time, in the order in which they come."""

    def put(self, item: WorkItem) -> None:
        """Has an item done as soon as there is room."""

    def drop_waiting(self) -> list[WorkItem]:
        """Takes back the items that were not begun."""

    def abandon_overdue(self, seconds: float, every: float) -> list[tuple[WorkItem, str]]:
        """Abandons items that run for longer than `seconds`, and makes room for others; returns
        each with the stack that it hangs in. It is asked `every` so many seconds, or later where
        an event loop is kept from running: that time counts for none but whoever keeps it."""

    def stop(self) -> None:
        """No item comes any more."""
