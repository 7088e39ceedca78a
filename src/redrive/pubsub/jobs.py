"""A delivery on its way through a subscriber, what runs its handler, and the count of what is neither retried nor set aside."""

import threading
from typing import Protocol

from redrive.pubsub.consumer import Consumer
from redrive.pubsub.frames import Received
from redrive.pubsub.judgement import Judge
from redrive.pubsub.message import Message
from redrive.redaction import in_one_line
from redrive.topology.headers import Delivery


class Job:
    """A delivery, and the consumer and judge of the connection that it came on."""

    __slots__ = ("consumer", "delivery", "judge", "received", "resends", "settled")

    def __init__(self, consumer: Consumer, judge: Judge, received: Received) -> None:
        self.consumer = consumer
        self.judge = judge
        self.received = received
        self.delivery: Delivery | None = None
        self.settled = False
        self.resends = 0

    @property
    def name(self) -> str:
        """What a log line calls it."""
        if self.delivery is None:
            return f"delivery {self.received.delivery_tag}"
        return in_one_line(f"message {Message(self.delivery).message_id} ({self.delivery.original_routing_key})")


class Tally:
    """What a subscriber has neither retried nor set aside, since it was made."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.declined = 0
        self.let_go = 0

    def decline(self) -> None:
        """A predicate has declined a message; from any thread."""
        with self._lock:
            self.declined += 1


class Workers(Protocol):
    """Runs jobs, so many at a time, in the order in which they come."""

    def put(self, job: Job) -> None:
        """Has a job done as soon as there is room."""

    def drop_waiting(self) -> list[Job]:
        """Takes back the jobs that were not begun."""

    def abandon_overdue(self, seconds: float) -> list[tuple[Job, str]]:
        """Gives up on jobs that run for longer than `seconds`, and makes room for others; each with the stack that it hangs in."""

    def stop(self) -> None:
        """No job comes any more."""
