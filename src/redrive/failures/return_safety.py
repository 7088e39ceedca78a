"""Whether messages of a failed queue may be held and returned, and what that costs.

A quorum queue with the default delivery limit of RabbitMQ 4 deletes a message at its 21st return:
looking at it twenty times is enough. Source: measured on 4.0.5.
"""

import contextlib
from collections.abc import Mapping

from redrive.errors import ConfigurationError, PermissionDenied, RedriveError, TopologyMismatch
from redrive.failures.failed_source import FailedSource
from redrive.pubsub.admin.amqp_survey import arguments_of
from redrive.pubsub.admin.management_api import ManagementAPI
from redrive.pubsub.blocking.declarer import Declarer
from redrive.pubsub.lifecycle import BrokerAccess
from redrive.pubsub.transfer.last_life import ReturnLimit
from redrive.topology.broker_version import BrokerVersion
from redrive.topology.doctor.facts import QueueFacts
from redrive.topology.doctor.remedies import set_policy
from redrive.topology.model import DELIVERY_LIMIT, Argument, Queue, failed_queue_of

_ENOUGH = 1000


def return_limit(
    declarer: Declarer, source: FailedSource, access: BrokerAccess, management_url: str | None
) -> ReturnLimit | None:
    """How often a queue takes its messages back before the broker deletes them; None for any
    number.

    A dead-letter queue may have a limit: each look costs its messages one of so many returns.

    Raises:
        ConfigurationError: its messages can't be held and returned, or not once. A subscription's
            failed queue must not have a limit at all.
    """
    if source.main is not None:
        _check_safe_to_return(declarer, source.main, access, management_url)
        return None
    try:
        arguments = arguments_of(declarer, source.queue) or {}
    except PermissionDenied:
        arguments = {}
    _check_kind(declarer, source.queue, arguments)
    if arguments.get("x-queue-type") == "classic":
        return None
    limit = _limit_of(declarer.version, arguments, access, management_url, source.queue)
    if limit is None or _is_enough(limit):
        return None
    if limit <= 1:
        raise ConfigurationError(
            f"looking at {source.queue!r} would delete messages: its delivery limit is {limit}",
            f"Raise it first: {_raising(access, source.queue)}",
        )
    return ReturnLimit(limit, f"Raise the limit first: {_raising(access, source.queue)}")


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


def _limit_of(
    version: BrokerVersion,
    arguments: Mapping[str, Argument],
    access: BrokerAccess,
    management_url: str | None,
    queue: str,
) -> int | None:
    """The delivery limit of a queue that is not ours, -1 for none ever; None where it has none.

    An argument and a policy may both set one: the lower one counts.
    """
    own = arguments.get("x-delivery-limit")
    given = [
        limit
        for limit in (own, _limit_over_management(access, management_url, queue))
        if isinstance(limit, int)
    ]
    limit = min(given, default=version.deletes_after_deliveries)
    if limit is not None and limit < 0 and not version.takes_a_delivery_limit_for_none:
        return 0
    return limit


def _raising(access: BrokerAccess, queue: str) -> str:
    return set_policy(
        access.url.virtual_host,
        QueueFacts(queue, None),
        "redrive-keep",
        {"delivery-limit": DELIVERY_LIMIT},
    )


def _check_safe_to_return(
    declarer: Declarer, queue: str, access: BrokerAccess, management_url: str | None
) -> None:
    """Raises ConfigurationError where returning messages to the failed queue of `queue` would make
    the broker delete them."""
    if declarer.version.deletes_after_deliveries is None:
        return
    failed = failed_queue_of(queue, "quorum")
    may_ask = True
    try:
        limit = _limit_over_amqp(declarer, failed)
    except PermissionDenied:
        limit, may_ask = None, False
    if _is_enough(limit) or _is_enough(_limit_over_management(access, management_url, failed.name)):
        return
    if not may_ask:
        raise ConfigurationError(
            f"looking at {failed.name!r} could make this broker ({declarer.version}) delete "
            "messages, and it refused to tell this user "
            "whether the queue has a delivery limit that prevents it; nor does the management API",
            "Grant the user the configure permission on the queue, or the tag 'monitoring' and "
            "name the API (management_url).",
        )
    raise ConfigurationError(
        f"looking at {failed.name!r} could delete messages: after "
        f"{declarer.version.deletes_after_deliveries} returns this broker "
        f"({declarer.version}) drops a message of a quorum queue that has no delivery limit of its "
        "own",
        "Give it one, and try again in ten seconds (the management API, which tells, is that "
        "late): " + _raising(access, failed.name),
    )


def _is_enough(limit: int | None) -> bool:
    return limit is not None and (limit < 0 or limit >= _ENOUGH)


def _limit_over_amqp(declarer: Declarer, wanted: Queue) -> int | None:
    """The queue's own delivery limit, -1 for none ever; None where it has none of its own."""
    with contextlib.suppress(TopologyMismatch):
        declarer.declare(wanted)
        return DELIVERY_LIMIT
    arguments = arguments_of(declarer, wanted.name) or {}
    if arguments.get("x-queue-type") == "classic":
        return -1  # only quorum queues count deliveries
    limit = arguments.get("x-delivery-limit")
    return limit if isinstance(limit, int) else None


def _limit_over_management(access: BrokerAccess, address: str | None, queue: str) -> int | None:
    try:
        with ManagementAPI.of(access, address) as management:
            return management.delivery_limit(queue)
    except RedriveError:
        return None  # it is not there, or not for this user: then what AMQP says counts
