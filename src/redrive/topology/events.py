"""What became of messages that a job has sent back, as subscribers tell it on the topic exchange `master.events`.

Best effort: an event may be lost, and a message that is delivered twice is told of twice. Failures are also in the failed queue itself.
"""

import json
from dataclasses import dataclass
from typing import Self

from redrive.topology.headers import counted, text
from redrive.topology.model import Argument, Binding, Exchange, Queue
from redrive.topology.names import ExchangeFamily
from redrive.topology.table import MAX_SHORT_STRING

_SECONDS_KEPT = 7 * 24 * 3600
_MOST_EVENTS = 100_000
_WATCH_SECONDS = 60
_MOST_WATCHED = 10_000
_PREFIX = "job."


@dataclass(frozen=True, slots=True)
class Outcomes:
    """How many of a job's messages were handled, and how many were set aside again, in a stretch of time.

    Args:
        job: the job's id.
        queue: the subscription's main queue.
        handled: how many a handler has handled.
        failed: how many were set aside.
    """

    job: str
    queue: str
    handled: int
    failed: int

    def encode(self) -> bytes:
        """It as an event's body."""
        return json.dumps({"job": self.job, "queue": self.queue, "handled": self.handled, "failed": self.failed}).encode()

    @classmethod
    def decode(cls, body: bytes) -> Self | None:
        """The outcomes in an event's body; None where it is none. Anybody may publish there."""
        try:
            found = json.loads(body)
        except (ValueError, RecursionError):
            return None
        if not isinstance(found, dict):
            return None
        job, queue = text(found.get("job")), text(found.get("queue"))
        if job is None or queue is None:
            return None
        return cls(job, queue, counted(found.get("handled")), counted(found.get("failed")))


def exchange_of(exchanges: ExchangeFamily) -> Exchange:
    """The exchange on which outcomes are told."""
    return Exchange(exchanges.main + ".events")


def key_of(job: str) -> str | None:
    """The routing key of a job's events; None where its id is too long to be told of."""
    key = _PREFIX + job
    return key if len(key.encode("utf-8", "surrogateescape")) <= MAX_SHORT_STRING else None


def queue_of(job: str) -> Queue:
    """The queue that keeps a job's events until somebody asks for them, for a week at most."""
    return _queue(f"redrive.job.{job}", _SECONDS_KEPT, _MOST_EVENTS)


def watched_queue(name: str) -> Queue:
    """A queue through which one process watches a job; it goes a minute after its process."""
    return _queue(f"redrive.watch.{name}", _WATCH_SECONDS, _MOST_WATCHED)


def bindings_of(queue: Queue, exchanges: ExchangeFamily, job: str) -> tuple[Binding, ...]:
    """What brings a job's events into a queue."""
    key = key_of(job)
    return () if key is None else (Binding(exchange_of(exchanges).name, queue.name, key),)


def _queue(name: str, seconds: int, most: int) -> Queue:
    arguments: dict[str, Argument] = {"x-queue-type": "classic", "x-expires": seconds * 1000, "x-max-length": most}
    return Queue(name, arguments)
