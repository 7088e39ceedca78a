"""Events about the outcomes of messages that a job requeued, sent by subscribers on the topic
exchange `master.events`.

Best effort: an event may be lost, and a message that is delivered twice is reported twice. So no
news is never good news: success must be reported. Failures can also be seen in the retry exchange
and in the failed queue itself.
"""

import json
from dataclasses import dataclass
from typing import Self

from redrive.amqp.field_table import MAX_SHORT_STRING
from redrive.topology.headers import counted, text
from redrive.topology.model import Argument, Binding, Exchange, Queue
from redrive.topology.names import ExchangeFamily

_SECONDS_KEPT = 7 * 24 * 3600
_MOST_EVENTS = 100_000
_WATCH_SECONDS = 60
_MOST_WATCHED = 10_000
_PREFIX = "job."


@dataclass(frozen=True, slots=True)
class Outcomes:
    """The outcomes of a job's messages over a period. An older subscriber reports only `handled`
    and `failed`.

    Args:
        job: the job's id.
        queue: the subscription's main queue.
        handled: how many messages a handler has handled.
        failed: how many were set aside, or discarded.
        retrying: how many failed for the first time and will be retried; a message counts once, not
            for each of its retries.
        handled_after_retry: how many of `handled` had been retried before.
        failed_after_retry: how many of `failed` had been retried before.
        discarded: how many of `failed` were discarded, as the rules for their errors say.
        discarded_after_retry: how many of `discarded` had been retried before.
    """

    job: str
    queue: str
    handled: int = 0
    failed: int = 0
    retrying: int = 0
    handled_after_retry: int = 0
    failed_after_retry: int = 0
    discarded: int = 0
    discarded_after_retry: int = 0

    def encode(self) -> bytes:
        """Return the body of an event."""
        return json.dumps({name: getattr(self, name) for name in self.__slots__}).encode()

    @classmethod
    def decode(cls, body: bytes) -> Self | None:
        """Return the outcomes in an event's body; None if it isn't valid. Anybody may publish
        there: an invalid count is read as 0."""
        try:
            found = json.loads(body)
        except (ValueError, RecursionError):
            return None
        if not isinstance(found, dict):
            return None
        job, queue = text(found.get("job")), text(found.get("queue"))
        if job is None or queue is None:
            return None
        return cls(job, queue, **{name: counted(found.get(name)) for name in _COUNTS})


_COUNTS = (
    "handled",
    "failed",
    "retrying",
    "handled_after_retry",
    "failed_after_retry",
    "discarded",
    "discarded_after_retry",
)


@dataclass(frozen=True, slots=True)
class OutcomeTotals:
    """The known outcomes of the messages that a job has sent, since it is being watched.

    Args:
        succeeded: how many were handled at their first attempt.
        failing: how many failed at least once: they are being retried, or failed again. Each counts
            once.
        failed_again: how many were set aside again, or discarded.
    """

    succeeded: int = 0
    failing: int = 0
    failed_again: int = 0

    @property
    def retrying(self) -> int:
        """How many failed and were not set aside since."""
        return max(0, self.failing - self.failed_again)

    @property
    def heard_of(self) -> int:
        """How many have a known outcome."""
        return self.succeeded + self.failing

    def __add__(self, other: "OutcomeTotals") -> "OutcomeTotals":
        return OutcomeTotals(
            self.succeeded + other.succeeded,
            self.failing + other.failing,
            self.failed_again + other.failed_again,
        )


def exchange_of(exchanges: ExchangeFamily) -> Exchange:
    """Return the exchange on which outcomes are reported."""
    return Exchange(exchanges.main + ".events")


def key_of(job: str) -> str | None:
    """Return the routing key of a job's events; None if its id is too long for one."""
    key = _PREFIX + job
    return key if len(key.encode("utf-8", "surrogateescape")) <= MAX_SHORT_STRING else None


def queue_of(job: str) -> Queue:
    """Return the queue that keeps a job's events until they are read, for a week at most."""
    return _queue(f"redrive.job.{job}", _SECONDS_KEPT, _MOST_EVENTS)


def watched_queue(name: str) -> Queue:
    """Return a queue through which one process watches a job; it expires a minute after the process
    ends."""
    return _queue(f"redrive.watch.{name}", _WATCH_SECONDS, _MOST_WATCHED)


def bindings_of(queue: Queue, exchanges: ExchangeFamily, job: str) -> tuple[Binding, ...]:
    """Return the binding that brings a job's events into a queue."""
    key = key_of(job)
    return () if key is None else (Binding(exchange_of(exchanges).name, queue.name, key),)


def _queue(name: str, seconds: int, most: int) -> Queue:
    arguments: dict[str, Argument] = {
        "x-queue-type": "classic",
        "x-expires": seconds * 1000,
        "x-max-length": most,
    }
    return Queue(name, arguments)
