"""Whether messages of a failed queue may be held and returned.

A quorum queue with the default delivery limit of RabbitMQ 4 deletes a message at its 21st return:
looking at it twenty times is enough. Source: measured on 4.0.5.
"""

import contextlib

from redrive.errors import ConfigurationError, PermissionDenied, RedriveError, TopologyMismatch
from redrive.pubsub.admin.amqp_survey import arguments_of
from redrive.pubsub.admin.management_api import ManagementAPI
from redrive.pubsub.blocking.declarer import Declarer
from redrive.pubsub.lifecycle import BrokerAccess
from redrive.topology.doctor.facts import QueueFacts
from redrive.topology.doctor.remedies import set_policy
from redrive.topology.model import DELIVERY_LIMIT, Queue, failed_queue_of

_ENOUGH = 1000


def check_safe_to_return(
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
        "late): "
        + set_policy(
            access.url.virtual_host,
            QueueFacts(failed.name, None),
            "redrive-keep",
            {"delivery-limit": DELIVERY_LIMIT},
        ),
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
