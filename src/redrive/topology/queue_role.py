"""Find the roles of a virtual host's queues by their names."""

from collections.abc import Collection, Iterator
from typing import Literal, NamedTuple

from redrive.topology import names

Role = Literal["main", "retry", "failed", "delay", "unrouted", "dead-letter"]


class QueueRole(NamedTuple):
    """The role of a queue.

    Args:
        queue: its name.
        role: the `main`, `retry` or `failed` queue of a subscription; a level of a `delay` ladder,
            or the queue for a ladder's `unrouted` messages; a `dead-letter` queue that redrive did
            not create.
        subscription: the main queue of its subscription; empty if it belongs to none.
    """

    queue: str
    role: Role
    subscription: str = ""


def of_subscription(queue: str) -> tuple[QueueRole, QueueRole, QueueRole]:
    """Return the main, the retry and the failed queue of a subscription, whether they exist or
    not."""
    return (
        QueueRole(queue, "main", queue),
        QueueRole(names.retry_queue(queue), "retry", queue),
        QueueRole(names.failed_queue(queue), "failed", queue),
    )


def queue_roles(
    queues: Collection[str], dead_letter_queues: Collection[str] = ()
) -> list[QueueRole]:
    """Return the roles of those queues that have one."""
    return [
        *(
            one
            for queue in names.main_queues(queues)
            for one in of_subscription(queue)
            if one.queue in queues
        ),
        *_of_ladders(queues),
        *(QueueRole(queue, "dead-letter") for queue in dead_letter_queues if queue in queues),
    ]


def _of_ladders(queues: Collection[str]) -> Iterator[QueueRole]:
    suffix = names.UNROUTED_SUFFIX
    mains = {main for queue in queues if (main := names.ladder_of_level(queue)) is not None}
    for queue in sorted(queues):
        if names.ladder_of_level(queue) is not None:
            yield QueueRole(queue, "delay")
        elif queue.endswith(suffix) and queue.removesuffix(suffix) in mains:
            yield QueueRole(queue, "unrouted")
