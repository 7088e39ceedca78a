"""The lanes of a torture run as redrive's own arguments."""

from datetime import timedelta
from typing import Any

from redrive import RetryPolicy
from torture.lanes import Lane

_MAX_CRASHES = 1000
"""No message is set aside because it was in flight at many faults: that would hide a wrong
count."""
_UNUSED_DELAY = timedelta(seconds=5)
"""Of the retry queue of a lane that uses the ladder; not shorter than its delays, so that a retry
that falls back to it is not early."""


def options_of(lane: Lane) -> dict[str, Any]:
    """What a subscriber of this lane is made with, in either shell."""
    delays = [timedelta(milliseconds=delay) for delay in lane.delays_ms]
    on_ladder = lane.way == "ladder"
    options: dict[str, Any] = {
        "queue": lane.name,
        "routing_keys": [lane.routing_key],
        "retry": RetryPolicy(
            lane.max_retries,
            delay=_UNUSED_DELAY if on_ladder else delays[0],
            max_crashes=_MAX_CRASHES,
            backoff=delays if on_ladder else None,
        ),
        "queue_type": lane.queue_type,
        "ordered": lane.is_ordered,
    }
    if lane.way in ("republish", "broker"):
        options["retry_via"] = lane.way
    return options
