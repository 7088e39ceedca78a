"""Recognize dead-letter queues by the names that frameworks give them."""

import re
from dataclasses import dataclass

from redrive.topology import names


@dataclass(frozen=True, slots=True)
class DeadLetterName:
    """What the name of a dead-letter queue tells about it.

    Args:
        origin: the queue that the messages come from, by the same convention; None if the name does
            not contain it.
        dialects: the names of the dialects of the frameworks that use such a name and write failure
            details into their messages; empty if the name is not specific to a framework.
        may_name_an_event: whether a work queue may also have such a name, after the event that it
            handles, such as `payment.failed`.
    """

    origin: str | None
    dialects: tuple[str, ...] = ()
    may_name_an_event: bool = False


_NAMES: dict[str, tuple[str, ...]] = {
    # Source: EasyNetQ, Conventions.cs, its ErrorQueueNamingConvention.
    "EasyNetQ_Default_Error_Queue": ("easynetq",),
    # Source: Wolverine's documentation of its dead letter queues for RabbitMQ.
    "wolverine-dead-letter-queue": ("wolverine",),
    # Source: NServiceBus, ErrorQueueSettings.cs; Rebus, RetryStrategySettings.cs: it is the
    # DefaultErrorQueueName of both.
    "error": ("nservicebus", "rebus"),
    # Source: the failure transport in Symfony's documentation; an application may choose another.
    "failed": ("symfony",),
}
"""Complete names of queues that one application or all applications share."""

_OF_MOLECULER = re.compile(r"(?:.+\.)?FAILED_MESSAGES", re.DOTALL)
"""Source: @moleculer/channels, base.js, its default, which a namespace may precede."""

_OF_SERVICESTACK = re.compile(r"(?P<type>.*mq:.+)\.dlq", re.DOTALL)
"""Source: ServiceStack, QueueNames.cs: `mq:Order.dlq` holds messages that failed in `mq:Order.inq`
or in `mq:Order.priorityq`."""

_SUFFIXES: tuple[tuple[str, tuple[str, ...]], ...] = (
    # Source: dramatiq, common.py, its xq_name. Its `.DQ` queue holds delayed messages.
    (".XQ", ("dramatiq",)),
    # Source: MassTransit, DefaultErrorQueueNameFormatter and its counterpart for skipped messages.
    ("_error", ("masstransit",)),
    ("_skipped", ("masstransit",)),
    # Source: vyuldashev/laravel-queue-rabbitmq, getFailedRoutingKey in Queue/RabbitMQQueue.php.
    (".failed", ("laravel",)),
    # Source: `-error` comes from sneakers for Ruby, handlers/maxretry.rb; the others are common
    # habits.
    ("-error", ()),
    (".error", ()),
    ("-failed", ()),
    ("_failed", ()),
)
"""Suffixes of the origin's name. None of them is the end of a longer one."""

_OF_EVENTS = ("failed", "error")

_ANYBODYS = re.compile(
    r"(?P<origin>.+[._:/-])?"
    r"(?:dlq|dlx|dead[._-]?letters?(?:[._-]?queue)?|parking[._-]?lot|poison)",
    re.IGNORECASE | re.DOTALL,
)
"""Names that anybody may use, so they identify no framework: Spring Cloud Stream also uses
`orders.dlq`, and its manual uses `orders.parkingLot`."""

_PREFIX = re.compile(r"(?:dlq|dead[._-]?letters?)[._:-](?P<origin>.+)", re.IGNORECASE | re.DOTALL)
"""Source: dapr components-contrib, pubsub/rabbitmq/rabbitmq.go, writes `dlq-<queue>`."""


def read(queue: str) -> DeadLetterName | None:
    """Return what a queue's name tells about it; None if it is not a usual name of a dead-letter
    queue."""
    if (main := names.queue_of_failed_kind(queue)) is not None:
        return DeadLetterName(main, ("redrive",))
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
