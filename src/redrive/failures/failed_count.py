"""How many messages are in a failed queue, those included that somebody holds who looks at them:
AMQP tells only what is ready."""

import contextlib
from collections.abc import Iterable, Mapping
from dataclasses import replace
from datetime import timedelta

from redrive.errors import PermissionDenied, RedriveError
from redrive.failures.failed_source import FailedSource
from redrive.pubsub.admin.amqp_survey import arguments_of
from redrive.pubsub.admin.management_api import ManagementAPI
from redrive.pubsub.blocking.connection import Connector
from redrive.pubsub.blocking.declarer import Declarer, Depth, declaring
from redrive.pubsub.lifecycle import BrokerAccess
from redrive.topology.flow import total_of
from redrive.topology.names import retry_queue

_PATIENCE = timedelta(seconds=3)


def count_failed(
    declarer: Declarer, access: BrokerAccess, source: FailedSource, management_url: str | None
) -> Depth | None:
    """What is in a queue of failed messages; None where there is none."""
    failed, lock = source.queue, source.lock
    # A look may begin or end in between: only where there is none before and after, all that is in
    # the queue is ready.
    is_looked_at = declarer.is_locked(lock)
    depth = declarer.depth(failed)
    if depth is None:
        return None
    is_looked_at = declarer.is_locked(lock) or is_looked_at
    if not is_looked_at and not depth.consumers:
        return depth
    held = held_in(failed, depth, access, management_url)
    # The API may not have seen yet what the look holds.
    return replace(depth, held=None if is_looked_at and not held else held)


def held_in(
    name: str, depth: Depth, access: BrokerAccess, management_url: str | None
) -> int | None:
    """How many messages of a queue consumers hold; None where the management API, which alone
    knows, does not tell.

    Its numbers are up to five seconds old, and only the sum of what is ready and what is held is
    the same before a look and in it.
    """
    try:
        with ManagementAPI.of(access, management_url, _PATIENCE) as management:
            count = management.count(name)
    except RedriveError:
        return None
    total = total_of((count.ready, count.held))
    return None if total is None else max(0, total - depth.messages)


def dead_lettering(access: BrokerAccess, management_url: str | None) -> Mapping[str, int] | None:
    """How many messages each queue of the virtual host is dead-lettering, which AMQP does not
    report, up to five seconds old; None where the management API, which alone knows, does not
    tell."""
    try:
        with ManagementAPI.of(access, management_url, _PATIENCE) as management:
            return management.dead_lettering()
    except RedriveError:
        return None


def held_back(
    connector: Connector, management_url: str | None, queues: Iterable[str]
) -> dict[str, int | None]:
    """How many failed messages the broker holds back in those of these main queues that were
    declared so, up to five seconds old; None for an unknown number, where the management API, which
    alone knows, does not tell."""
    asked = list(queues)
    try:
        with ManagementAPI.of(connector, management_url, _PATIENCE) as management:
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
    """The arguments of a queue that is there; None where this user is not told."""
    with contextlib.suppress(PermissionDenied):
        return arguments_of(declarer, queue)
    return None


def depths(connector: Connector, queue: str, management_url: str | None) -> dict[str, Depth | None]:
    """How much is in the main, the retry and the failed queue of a subscription."""
    with declaring(connector) as declarer:
        return {
            "main": declarer.depth(queue),
            "retry": declarer.depth(retry_queue(queue)),
            "failed": count_failed(
                declarer, connector, FailedSource.of_subscription(queue), management_url
            ),
        }
