"""Copies of failures, taken as they pass the failed exchange: a stream that keeps them for a time,
and a queue for a single follower."""

from datetime import timedelta

from redrive.topology import outcome_events
from redrive.topology.model import Argument, Binding, Queue
from redrive.topology.names import ExchangeFamily

HISTORY_SUFFIX = ".history"
DEFAULT_MAX_AGE = timedelta(days=7)
"""How long a history keeps a failure, unless it is declared with another time."""
ALL = "#"
_SEGMENT_BYTES = 50_000_000
"""A broker drops only whole segments that are too old, and never the newest. Source:
https://www.rabbitmq.com/docs/streams#retention"""
_TAP_SECONDS = 60
_MOST_TAPPED = 50_000
_MOST_TAPPED_BYTES = 64 * 1024**2


def history_of(exchanges: ExchangeFamily) -> str:
    """Return the name of the stream that keeps the failures of a family."""
    return exchanges.failed + HISTORY_SUFFIX


def history_queue(exchanges: ExchangeFamily, max_age: timedelta = DEFAULT_MAX_AGE) -> Queue:
    """Return the stream that keeps the failures of a family."""
    return Queue(
        history_of(exchanges),
        {
            "x-queue-type": "stream",
            "x-max-age": f"{max(1, round(max_age.total_seconds()))}s",
            "x-stream-max-segment-size-bytes": _SEGMENT_BYTES,
        },
    )


def history_binding(exchanges: ExchangeFamily) -> Binding:
    """Return the binding that copies each failure into the history."""
    return Binding(exchanges.failed, history_of(exchanges), ALL)


def tap_queue(name: str) -> Queue:
    """Return a queue through which one process follows failures and outcomes. It outlives its
    connection by a minute, so that a lost connection costs nothing. Once it is full, it drops its
    oldest messages instead of slowing publishers down. Anyone who may watch a job may declare
    it."""
    arguments: dict[str, Argument] = {
        "x-queue-type": "classic",
        "x-expires": _TAP_SECONDS * 1000,
        "x-max-length": _MOST_TAPPED,
        "x-max-length-bytes": _MOST_TAPPED_BYTES,
        "x-overflow": "drop-head",
    }
    return Queue(outcome_events.watched_queue(f"tap-{name}").name, arguments)


def outcomes_into(tap: Queue, exchanges: ExchangeFamily) -> Binding:
    """Return the binding that copies outcomes into a tap."""
    return Binding(outcome_events.exchange_of(exchanges).name, tap.name, ALL)


def failures_into(tap: Queue, exchanges: ExchangeFamily, queue: str = ALL) -> Binding:
    """Return the binding that copies failures into a tap, of one main queue or of all."""
    return Binding(exchanges.failed, tap.name, queue)
