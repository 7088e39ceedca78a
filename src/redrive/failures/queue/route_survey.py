"""Ask the broker for the topology that ways back are judged by."""

from collections.abc import Callable
from dataclasses import replace

from redrive.errors import RedriveError
from redrive.failures.message.route import Judge
from redrive.failures.queue.outcome_watch import MessageCounts
from redrive.pubsub.admin.management_api import ManagementAPI
from redrive.pubsub.admin.management_survey import routes_over_management
from redrive.pubsub.blocking.connection import Connector
from redrive.pubsub.blocking.declarer import declaring
from redrive.topology.model import Queue


def going_on(place: MessageCounts, judge: Callable[[], Judge]) -> MessageCounts:
    """Add to a destination's contents what happens to messages there if nobody consumes it."""
    is_main_queue = place.retry is not None or place.failed is not None
    if is_main_queue or not place.is_unconsumed:
        return place
    return replace(place, onward=judge().onward(place.queue))


def judge_at(connector: Connector, management_url: str | None) -> Judge:
    """Return a judge with the broker's current topology.

    Without the management API, the judge only checks whether queues exist.
    """
    try:
        with ManagementAPI.of(connector, management_url) as management:
            return Judge(routes_over_management(management))
    except RedriveError as error:
        why = f"nobody could ask the management API: {str(error).partition(chr(10))[0]}"

    def exists(queue: str) -> bool:
        with declaring(connector) as declarer:
            return declarer.may_exist(Queue(queue))

    return Judge(None, why, exists)
