"""Count the messages in a failed queue, including those held by a look: AMQP reports only ready
ones."""

import contextlib
from collections.abc import Iterable, Mapping
from dataclasses import replace

from redrive.errors import PermissionDenied, RedriveError
from redrive.failures.queue.failed_source import FailedSource
from redrive.pubsub.admin.amqp_survey import arguments_of
from redrive.pubsub.admin.management_api import QUICK_TIMEOUT, ManagementAPI
from redrive.pubsub.blocking.connection import Connector
from redrive.pubsub.blocking.declarer import Declarer, Depth, declaring
from redrive.pubsub.lifecycle import BrokerAccess
from redrive.topology.flow import total_of
from redrive.topology.names import retry_queue


def count_failed(
    declarer: Declarer, access: BrokerAccess, source: FailedSource, management_url: str | None
) -> Depth | None:
    """Return the depth of a queue of failed messages; None if there is no such queue."""
    failed, lock = source.queue, source.lock
    # A look may begin or end in between: all messages are surely ready only if there was no look
    # before and after.
    is_looked_at = declarer.is_locked(lock)
    depth = declarer.depth(failed)
    if depth is None:
        return None
    is_looked_at = declarer.is_locked(lock) or is_looked_at
    if not is_looked_at and not depth.consumers:
        return depth
    held = held_in(failed, depth, access, management_url)
    # The API may not yet have seen what the look holds.
    return replace(depth, held=None if is_looked_at and not held else held)


def held_in(
    name: str, depth: Depth, access: BrokerAccess, management_url: str | None
) -> int | None:
    """Return how many messages of a queue consumers hold; None if the management API does not
    answer.

    Only the management API knows, with a delay of up to five seconds. The sum of ready and held
    messages is the same before and during a look, so only the sum is used.
    """
    try:
        with ManagementAPI.of(access, management_url, QUICK_TIMEOUT) as management:
            count = management.count(name)
    except RedriveError:
        return None
    total = total_of((count.ready, count.held))
    return None if total is None else max(0, total - depth.messages)


def dead_lettering(access: BrokerAccess, management_url: str | None) -> Mapping[str, int] | None:
    """Return how many messages each queue of the virtual host is dead-lettering; None if the
    management API does not answer.

    AMQP does not report it. The numbers are up to five seconds old.
    """
    try:
        with ManagementAPI.of(access, management_url, QUICK_TIMEOUT) as management:
            return management.dead_lettering()
    except RedriveError:
        return None


def held_back(
    connector: Connector, management_url: str | None, queues: Iterable[str]
) -> dict[str, int | None]:
    """Return how many failed messages the broker holds back in each of these main queues that has a
    delayed retry.

    The numbers are up to five seconds old, and None if the management API, the only source, does
    not answer.
    """
    asked = list(queues)
    try:
        with ManagementAPI.of(connector, management_url, QUICK_TIMEOUT) as management:
            told = management.held_back()
        return {queue: told[queue] for queue in asked if queue in told}
    except RedriveError:
        with declaring(connector) as declarer:
            return {
                queue: None
                for queue in asked
                if "x-delayed-retry-type" in (_arguments(declarer, queue) or {})
            }


def _arguments(declarer: Declarer, queue: str) -> Mapping[str, object] | None:
    """Return the arguments of a queue; None if this user may not read them."""
    with contextlib.suppress(PermissionDenied):
        return arguments_of(declarer, queue)
    return None


def depths(connector: Connector, queue: str, management_url: str | None) -> dict[str, Depth | None]:
    """Return the depths of a subscription's main, retry and failed queues."""
    with declaring(connector) as declarer:
        return {
            "main": declarer.depth(queue),
            "retry": declarer.depth(retry_queue(queue)),
            "failed": count_failed(
                declarer, connector, FailedSource.of_subscription(queue), management_url
            ),
        }
