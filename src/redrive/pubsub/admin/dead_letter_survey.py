"""Find the dead-letter queues that redrive did not create, and count their messages."""

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from redrive.pubsub.admin.management_api import ManagementAPI
from redrive.pubsub.admin.management_survey import routes_over_management
from redrive.pubsub.blocking.declarer import Declarer
from redrive.topology import dead_letter_queues
from redrive.topology.dead_letter_queues import DeadLetterQueue
from redrive.topology.headers import moment

_LONGEST_DELAY = timedelta(minutes=1)
_GRACE = timedelta(seconds=10)
_BETWEEN_LOOKS = 1.0

OnWait = Callable[[float, float], object]
"""Called with the seconds waited so far and the seconds that waiting may take at most."""


def stuck(
    management: ManagementAPI, delays: Mapping[str, timedelta | None], on_wait: OnWait
) -> dict[str, int]:
    """Return the queues whose dead-lettering has stopped, with the number of messages stuck in
    each.

    A queue that is dead-lettering nothing costs no time. Any other is watched until its count
    drops. If that does not happen within the queue's delay (one minute at most) plus ten seconds,
    the queue is stuck. The broker's numbers are up to five seconds old.
    """
    began = time.monotonic()
    found = management.dead_lettering()
    most = {name: found[name] for name in delays if found.get(name)}
    stuck_now: dict[str, int] = {}
    while most:
        waited = time.monotonic() - began
        longest = max(_patience(delays[name]) for name in most)
        on_wait(min(waited, longest), longest)
        time.sleep(_BETWEEN_LOOKS)
        found = management.dead_lettering()
        for name in list(most):
            count = found.get(name, 0)
            if count < most[name]:
                del most[name]
            elif time.monotonic() - began > _patience(delays[name]):
                del most[name]
                stuck_now[name] = count
            else:
                most[name] = count
    return stuck_now


def _patience(delay: timedelta | None) -> float:
    return (min(delay or timedelta(0), _LONGEST_DELAY) + _GRACE).total_seconds()


_COLUMNS = "name,messages,messages_dlx,consumers,head_message_timestamp"


@dataclass(frozen=True, slots=True)
class CountedQueue:
    """A dead-letter queue that redrive did not create, and its counts.

    Args:
        queue: the queue.
        messages: number of messages, including those held by consumers if the management API
            counted them; None if the queue is too new to have been counted.
        consumers: number of consumers; None likewise.
        oldest: when the message at the head was published, according to its publisher; None if it
            has no timestamp. Only classic queues report it.
    """

    queue: DeadLetterQueue
    messages: int | None
    consumers: int | None
    oldest: datetime | None = None


def over_management(management: ManagementAPI) -> list[CountedQueue]:
    """Return the virtual host's dead-letter queues that redrive did not create, by name. The counts
    are up to five seconds old."""
    found = dead_letter_queues.dead_letter_queues(routes_over_management(management))
    if not found:
        return []
    counts = {
        str(one["name"]): one for one in management.listed(f"queues/{{vhost}}?columns={_COLUMNS}")
    }
    return [_counted(queue, counts.get(queue.name, {})) for queue in found]


def over_amqp(declarer: Declarer, queues: Iterable[str]) -> list[CountedQueue]:
    """Return those of the given queues that exist, with what AMQP alone reports (waiting messages
    and consumers) and what their names reveal."""
    found = ((name, declarer.depth(name)) for name in queues)
    return [
        CountedQueue(dead_letter_queues.by_name(name), depth.messages, depth.consumers)
        for name, depth in found
        if depth is not None
    ]


def counted_over_amqp(declarer: Declarer, found: Iterable[CountedQueue]) -> Iterator[CountedQueue]:
    """Yield the queues, taking the counts from AMQP for those that the management API has not
    counted."""
    for one in found:
        depth = declarer.depth(one.queue.name) if one.messages is None else None
        yield (
            one
            if depth is None
            else replace(one, messages=depth.messages, consumers=depth.consumers)
        )


def _counted(queue: DeadLetterQueue, counted: Mapping[str, object]) -> CountedQueue:
    messages, moving = _number(counted, "messages"), _number(counted, "messages_dlx")
    return CountedQueue(
        queue,
        None if messages is None else messages + (moving or 0),
        _number(counted, "consumers"),
        moment(_number(counted, "head_message_timestamp")),
    )


def _number(counted: Mapping[str, object], name: str) -> int | None:
    value = counted.get(name)
    return value if isinstance(value, int) else None
