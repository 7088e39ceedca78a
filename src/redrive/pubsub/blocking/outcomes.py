"""Tells what became of messages that were sent back: counted by the second, on a connection of its own, never in the way of handling."""

import contextlib
import logging
import threading
from collections import Counter

import pika
from pika import exceptions

from redrive.errors import RedriveError
from redrive.pubsub.blocking.connection import Connector
from redrive.topology import events
from redrive.topology.decision import Ack, Fail, Settlement
from redrive.topology.events import Outcomes
from redrive.topology.headers import Delivery
from redrive.topology.names import ExchangeFamily

logger = logging.getLogger("redrive")

_EVERY = 0.5
_MOST_JOBS = 1000
_PATIENCE = 2.0
"""Seconds that the end of a subscriber waits for the last event."""


class OutcomeReporter:
    """Counts a subscriber's outcomes, and publishes them. Whatever goes wrong, they are lost and nothing else is.

    Args:
        connector: how to connect.
        exchanges: the exchange family, of which the events' exchange is one more.
        queue: the subscription's main queue.
    """

    def __init__(self, connector: Connector, exchanges: ExchangeFamily, queue: str) -> None:
        self._connector = connector
        self._exchange = events.exchange_of(exchanges).name
        self._queue = queue
        self._lock = threading.Lock()
        self._handled: Counter[str] = Counter()
        self._failed: Counter[str] = Counter()
        self._closing = threading.Event()
        self._thread: threading.Thread | None = None

    def note(self, delivery: Delivery | None, settlement: Settlement) -> None:
        """A message is settled. Only those that a job has sent back, and that are through, are counted."""
        if delivery is None or not isinstance(settlement, Ack | Fail):
            return
        job = delivery.job
        if job is None or events.key_of(job) is None:
            return
        with self._lock:
            counts = self._handled if isinstance(settlement, Ack) else self._failed
            if job in counts or len(counts) < _MOST_JOBS:
                counts[job] += 1
            if self._thread is None and not self._closing.is_set():
                self._thread = threading.Thread(target=self._run, name=f"redrive-outcomes-{self._queue}", daemon=True)
                self._thread.start()

    def close(self) -> None:
        """Publishes what was counted last; not for longer than two seconds."""
        self.leave()
        if self._thread is not None:
            self._thread.join(_PATIENCE)

    def leave(self) -> None:
        """Has what was counted last published soon, without waiting for it."""
        self._closing.set()

    def _run(self) -> None:
        while True:
            closing = self._closing.wait(_EVERY)
            with self._lock:
                outcomes = self._taken()
                if not outcomes:
                    # Nobody has anything to tell: the next one that has starts anew.
                    self._thread = None
                    return
            self._publish(outcomes)
            if closing:
                return

    def _taken(self) -> list[Outcomes]:
        jobs = list(dict.fromkeys([*self._handled, *self._failed]))
        outcomes = [Outcomes(job, self._queue, self._handled[job], self._failed[job]) for job in jobs]
        self._handled.clear()
        self._failed.clear()
        return outcomes

    def _publish(self, outcomes: list[Outcomes]) -> None:
        try:
            with self._connector.blocking() as connection:
                channel = connection.channel()
                for one in outcomes:
                    properties = pika.BasicProperties(content_type="application/json", delivery_mode=2)  # type: ignore[no-untyped-call]
                    channel.basic_publish(self._exchange, events.key_of(one.job) or "", one.encode(), properties)
                with contextlib.suppress(exceptions.AMQPError):  # no exchange of events: nobody has asked for any
                    channel.close()
        except (RedriveError, exceptions.AMQPError, OSError) as error:
            logger.debug("queue %s: outcomes of messages that were sent back could not be told: %s", self._queue, error)
