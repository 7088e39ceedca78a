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
    """

    origin: str | None
    dialects: tuple[str, ...] = ()


_NAMES: dict[str, tuple[str, ...]] = {
    # Source: EasyNetQ 8.1.5, Conventions.cs.
    "EasyNetQ_Default_Error_Queue": ("easynetq",),
    # Source: Wolverine 6.29.2, RabbitMQ/DeadLetterQueue.cs.
    "wolverine-dead-letter-queue": ("wolverine",),
    # Source: NServiceBus 10.2.8, its endpoints by their documentation; Rebus 8.9.2,
    # Retry/Simple/RetryStrategySettings.cs.
    "error": ("nservicebus", "rebus"),
    # Source: symfony/messenger 7.1.5: the failure transport of its documentation.
    "failed": ("symfony",),
}
"""Whole names of queues that an application, or all of them, share."""

_SUFFIXES: tuple[tuple[str, tuple[str, ...]], ...] = (
    # Source: dramatiq 2.2.1, common.py. `.DQ` beside it has what is delayed, and nothing failed.
    (".XQ", ("dramatiq",)),
    # Source: MassTransit 8.5.8, DefaultEndpointNameFormatter.cs and RabbitMqReceiveEndpointContext.
    ("_error", ("masstransit",)),
    ("_skipped", ("masstransit",)),
    # Source: vyuldashev/laravel-queue-rabbitmq 14.5.3, Queue/RabbitMQQueue.php.
    (".failed", ("laravel",)),
    # Source: sneakers 2.12.0, handlers/maxretry.rb.
    ("-error", ()),
    (".error", ()),
    ("-failed", ()),
    ("_failed", ()),
)
"""What stands behind the origin's name. None of them is longer than another that ends alike."""

_ANYBODYS = re.compile(
    r"(?P<origin>.+[._:/-])?"
    r"(?:dlq|dlx|dead[._-]?letters?(?:[._-]?queue)?|parking[._-]?lot|poison)",
    re.IGNORECASE | re.DOTALL,
)
"""`orders.dlq` is Spring Cloud Stream's, too, and `orders.parkingLot` its manual's: what anybody
may use tells no framework."""

_PREFIX = re.compile(r"(?:dlq|dead[._-]?letters?)[._:-](?P<origin>.+)", re.IGNORECASE | re.DOTALL)
"""Source: dapr components-contrib 1.14, pubsub/rabbitmq/rabbitmq.go: `dlq-<queue>`."""


def read(queue: str) -> DeadLetterName | None:
    """What a queue's name says; None for one that dead-letter queues do not have."""
    if queue in _NAMES:
        return DeadLetterName(None, _NAMES[queue])
    for suffix, dialects in _SUFFIXES:
        if queue.endswith(suffix) and queue != suffix:
            return DeadLetterName(queue.removesuffix(suffix), dialects)
    found = _ANYBODYS.fullmatch(queue)
    if found is not None:
        return DeadLetterName(found["origin"] and found["origin"][:-1])
    found = _PREFIX.fullmatch(queue)
    return None if found is None else DeadLetterName(found["origin"])
