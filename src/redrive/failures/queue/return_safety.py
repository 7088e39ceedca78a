"""Check whether messages of a failed queue may be held and returned, and what that costs.

A quorum queue with the default delivery limit of RabbitMQ 4 deletes a message at its 21st return:
looking at it twenty times is enough. Source: measured on 4.0.5.
"""

import contextlib
from collections.abc import Mapping

from redrive.errors import ConfigurationError, PermissionDenied, RedriveError, TopologyMismatch
from redrive.failures.queue.failed_source import FailedSource
from redrive.pubsub.admin.amqp_survey import arguments_of
from redrive.pubsub.admin.management_api import QUICK_TIMEOUT, ManagementAPI
from redrive.pubsub.blocking.declarer import Declarer
from redrive.pubsub.lifecycle import BrokerAccess
from redrive.pubsub.transfer.delivery_limit import ReturnLimit
from redrive.topology.broker_version import BrokerVersion
from redrive.topology.doctor.facts import QueueFacts
from redrive.topology.doctor.remedies import set_policy
from redrive.topology.model import DELIVERY_LIMIT, Argument, failed_queue_of

_ENOUGH = 1000


def return_limit(
    declarer: Declarer, source: FailedSource, access: BrokerAccess, management_url: str | None
) -> ReturnLimit | None:
    """Return how often a queue takes its messages back before the broker deletes them.

    None means without any limit. With a limit, each look costs its messages one of these returns.
    The failed queue of a subscription has no limit unless a policy sets one.
    """
    version, queue = declarer.version, source.queue
    own: list[int] | None
    if source.main is None:
        try:
            arguments = arguments_of(declarer, queue) or {}
        except PermissionDenied:
            arguments = {}
        _check_kind(declarer, queue, arguments)
        if arguments.get("x-queue-type") == "classic":
            return None
        own = _limits_in(arguments)
    else:
        try:
            own = _limits_of_failed_queue(declarer, source.main)
        except PermissionDenied:
            own = None
        else:
            if own is None:
                return None
    over_management = _limits_over_management(access, management_url, queue)
    limits = [*(own or ()), *(over_management or ())]
    if source.main is not None and not limits and version.deletes_after_deliveries is not None:
        raise _unlimited(version, access, queue, is_known=own is not None)
    limit = _worth_telling(version.delivery_limit(limits))
    if limit is not None and limit <= 1:
        raise ConfigurationError(
            f"looking at {queue!r} would delete messages: its delivery limit is {limit}",
            f"Raise it first: {_raising(access, queue)}",
        )

    def now() -> int | None:
        found = _limits_over_management(access, management_url, queue)
        return None if found is None else version.delivery_limit([*(own or ()), *found])

    return ReturnLimit(
        limit,
        f"Raise the limit first: {_raising(access, queue)}",
        None if over_management is None else now,
    )


def _check_kind(declarer: Declarer, queue: str, arguments: Mapping[str, Argument]) -> None:
    if arguments.get("x-queue-type") == "stream":
        raise ConfigurationError(
            f"{queue!r} is a stream: nothing can be taken out of it", "Name a queue."
        )
    depth = declarer.depth(queue)
    if arguments.get("x-single-active-consumer") is True and depth is not None and depth.consumers:
        raise ConfigurationError(
            f"{queue!r} has a single active consumer, which is somebody else",
            "Stop that consumer first.",
        )


def _raising(access: BrokerAccess, queue: str) -> str:
    return set_policy(
        access.url.virtual_host,
        QueueFacts(queue, None),
        "redrive-keep",
        {"delivery-limit": DELIVERY_LIMIT},
    )


def _unlimited(
    version: BrokerVersion, access: BrokerAccess, queue: str, *, is_known: bool
) -> ConfigurationError:
    """Return the error for a failed queue that has the broker's default limit, or may have it."""
    if not is_known:
        return ConfigurationError(
            f"looking at {queue!r} could make this broker ({version}) delete messages, and it "
            "refused to tell this user whether the queue has a delivery limit that prevents it; "
            "nor does the management API",
            "Grant the user the configure permission on the queue, or the tag 'monitoring' and "
            "name the API (management_url).",
        )
    return ConfigurationError(
        f"looking at {queue!r} could delete messages: after {version.deletes_after_deliveries} "
        f"returns this broker ({version}) drops a message of a quorum queue that has no delivery "
        "limit of its own",
        f"Give it one: {_raising(access, queue)}",
    )


def _worth_telling(limit: int | None) -> int | None:
    """Return a limit that messages may reach, or None."""
    return None if limit is None or limit >= _ENOUGH else limit


def _limits_of_failed_queue(declarer: Declarer, main: str) -> list[int] | None:
    """Return the delivery limit that a subscription's failed queue was declared with, if any.

    Returns None if the queue doesn't count deliveries.
    """
    wanted = failed_queue_of(main, "quorum")
    with contextlib.suppress(TopologyMismatch):
        declarer.declare(wanted)
        return [DELIVERY_LIMIT]
    arguments = arguments_of(declarer, wanted.name) or {}
    # Only quorum queues count deliveries.
    return None if arguments.get("x-queue-type") == "classic" else _limits_in(arguments)


def _limits_in(arguments: Mapping[str, Argument]) -> list[int]:
    limit = arguments.get("x-delivery-limit")
    return [limit] if isinstance(limit, int) else []


def _limits_over_management(
    access: BrokerAccess, address: str | None, queue: str
) -> list[int] | None:
    """Return the limits known to the management API; None if it isn't available to this user.

    In that case, only the limits from AMQP count.
    """
    try:
        with ManagementAPI.of(access, address, QUICK_TIMEOUT) as management:
            return management.delivery_limits(queue)
    except RedriveError:
        return None
