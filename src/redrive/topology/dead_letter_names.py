"""What frameworks call the queues that their failed messages end in."""

import re
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class DeadLetterName:
    """What the name of a queue says, if it is one that dead-letter queues have.

    Args:
        origin: the queue that the messages come from, by the same convention; None where the name
            does not contain it.
        dialects: the frameworks that use such a name and write into their messages what failed, as
            their dialects are called; empty for a name that anybody may use.
        may_name_an_event: whether a work queue may have such a name, after the event that it takes,
            such as `payment.failed`.
    """

    origin: str | None
    dialects: tuple[str, ...] = ()
    may_name_an_event: bool = False


_NAMES: dict[str, tuple[str, ...]] = {
    # Source: EasyNetQ, Conventions.cs, its ErrorQueueNamingConvention.
    "EasyNetQ_Default_Error_Queue": ("easynetq",),
    # Source: Wolverine's documentation of its dead letter queues for RabbitMQ.
    "wolverine-dead-letter-queue": ("wolverine",),
    # Source: NServiceBus, ErrorQueueSettings.cs; Rebus, RetryStrategySettings.cs: both call their
    # DefaultErrorQueueName so.
    "error": ("nservicebus", "rebus"),
    # Source: the failure transport of Symfony's documentation; an application may choose another.
    "failed": ("symfony",),
}
"""Whole names of queues that an application, or all of them, share."""

_OF_MOLECULER = re.compile(r"(?:.+\.)?FAILED_MESSAGES", re.DOTALL)
"""Source: @moleculer/channels, base.js, its default, which a namespace comes before."""

_OF_SERVICESTACK = re.compile(r"(?P<type>.*mq:.+)\.dlq", re.DOTALL)
"""Source: ServiceStack, QueueNames.cs: `mq:Order.dlq` has what failed in `mq:Order.inq`, or in
`mq:Order.priorityq`."""

_SUFFIXES: tuple[tuple[str, tuple[str, ...]], ...] = (
    # Source: dramatiq, common.py, its xq_name. `.DQ` beside it has what is delayed.
    (".XQ", ("dramatiq",)),
    # Source: MassTransit, DefaultErrorQueueNameFormatter and its counterpart for skipped messages.
    ("_error", ("masstransit",)),
    ("_skipped", ("masstransit",)),
    # Source: vyuldashev/laravel-queue-rabbitmq, getFailedRoutingKey in Queue/RabbitMQQueue.php.
    (".failed", ("laravel",)),
    # Source: `-error` is of sneakers, handlers/maxretry.rb, for Ruby; the others are habits.
    ("-error", ()),
    (".error", ()),
    ("-failed", ()),
    ("_failed", ()),
)
"""What stands behind the origin's name. None of them is longer than another that ends alike."""

_OF_EVENTS = ("failed", "error")

_ANYBODYS = re.compile(
    r"(?P<origin>.+[._:/-])?"
    r"(?:dlq|dlx|dead[._-]?letters?(?:[._-]?queue)?|parking[._-]?lot|poison)",
    re.IGNORECASE | re.DOTALL,
)
"""`orders.dlq` is Spring Cloud Stream's, too, and `orders.parkingLot` its manual's: what anybody
may use tells no framework."""

_PREFIX = re.compile(r"(?:dlq|dead[._-]?letters?)[._:-](?P<origin>.+)", re.IGNORECASE | re.DOTALL)
"""Source: dapr components-contrib, pubsub/rabbitmq/rabbitmq.go, writes `dlq-<queue>`."""


def read(queue: str) -> DeadLetterName | None:
    """What a queue's name says; None for one that dead-letter queues do not have."""
    if queue in _NAMES:
        return DeadLetterName(None, _NAMES[queue])
    if _OF_MOLECULER.fullmatch(queue):
        return DeadLetterName(None, ("moleculer",))
    found = _OF_SERVICESTACK.fullmatch(queue)
    if found is not None:
        return DeadLetterName(f"{found['type']}.inq", ("servicestack",))
    for suffix, dialects in _SUFFIXES:
        if queue.endswith(suffix) and queue != suffix:
            return DeadLetterName(queue.removesuffix(suffix), dialects, suffix.endswith(_OF_EVENTS))
    found = _ANYBODYS.fullmatch(queue)
    if found is not None:
        return DeadLetterName(found["origin"] and found["origin"][:-1])
    found = _PREFIX.fullmatch(queue)
    return None if found is None else DeadLetterName(found["origin"])
