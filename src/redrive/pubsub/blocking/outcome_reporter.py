"""Report the outcome of requeued messages.

Outcomes are counted and published every half second, on a separate connection, so that handling is
not delayed.
"""

import contextlib
import logging
import threading
from collections import Counter
from collections.abc import Callable
from typing import assert_never

import pika
from pika import exceptions

from redrive.errors import RedriveError
from redrive.pubsub.blocking.connection import Connector
from redrive.topology import outcome_events
from redrive.topology.decision import (
    Ack,
    Discard,
    Drop,
    MoveToFailed,
    PutBack,
    RetryByBroker,
    RetryByLadder,
    RetryByReject,
    RetryByRepublish,
    RetryInPlace,
    Settlement,
    retries_made,
)
from redrive.topology.headers import Delivery
from redrive.topology.names import ExchangeFamily
from redrive.topology.outcome_events import Outcomes

logger = logging.getLogger("redrive")

_FIRST = 0.1
"""Seconds until the first outcome is reported: a failing canary has to stop its job at once."""
_EVERY = 0.5
_MOST_JOBS = 1000
_LAST_EVENT_TIMEOUT = 2.0
"""Seconds that the end of a subscriber waits for the last event."""


class OutcomeReporter:
    """A counter of a subscriber's outcomes that publishes them. If anything goes wrong, only these
    counts are lost."""

    def __init__(self, connector: Connector, exchanges: ExchangeFamily, queue: str) -> None:
        self._connector = connector
        self._exchange = outcome_events.exchange_of(exchanges).name
        self._queue = queue
        self._lock = threading.Lock()
        self._counts: dict[str, Counter[str]] = {}
        self._closing = threading.Event()
        self._thread: threading.Thread | None = None

    def note(self, delivery: Delivery, settlement: Settlement) -> None:
        """Count a settled message that was sent by a job: handled, set aside, or retried for the
        first time."""
        job = delivery.job
        if job is None or outcome_events.key_of(job) is None:
            return
        outcomes = _outcomes_of(delivery, settlement)
        if not outcomes:
            return
        with self._lock:
            if job in self._counts or len(self._counts) < _MOST_JOBS:
                self._counts.setdefault(job, Counter()).update(outcomes)
            if self._thread is None and not self._closing.is_set():
                self._thread = threading.Thread(
                    target=self._run, name=f"redrive-outcomes-{self._queue}", daemon=True
                )
                self._thread.start()

    def when_told(self, then: Callable[[], object]) -> None:
        """Call `then` once the last counts are published, or after two seconds; immediately if
        there is nothing to wait for, otherwise on a separate thread."""
        self.leave()
        telling = self._thread
        if telling is None or not telling.is_alive():
            then()
            return

        def wait() -> None:
            telling.join(_LAST_EVENT_TIMEOUT)
            then()

        threading.Thread(target=wait, name=f"redrive-outcomes-{self._queue}-end").start()

    def leave(self) -> None:
        """Have the last counts published soon, without waiting for it."""
        self._closing.set()

    def _run(self) -> None:
        pause = _FIRST
        while True:
            closing = self._closing.wait(pause)
            pause = _EVERY
            with self._lock:
                outcomes = self._taken()
                if not outcomes:
                    # There is nothing to report: the next outcome starts a new thread.
                    self._thread = None
                    return
            self._publish(outcomes)
            if closing:
                return

    def _taken(self) -> list[Outcomes]:
        counts, self._counts = self._counts, {}
        return [Outcomes(job, self._queue, **of_job) for job, of_job in counts.items()]

    def _publish(self, outcomes: list[Outcomes]) -> None:
        try:
            with self._connector.blocking() as connection:
                channel = connection.channel()
                for one in outcomes:
                    properties = pika.BasicProperties(
                        content_type="application/json", delivery_mode=2
                    )  # type: ignore[no-untyped-call]
                    channel.basic_publish(
                        self._exchange,
                        outcome_events.key_of(one.job) or "",
                        one.encode(),
                        properties,
                    )
                with contextlib.suppress(
                    exceptions.AMQPError
                ):  # the events exchange does not exist: nobody wants events
                    channel.close()
        except (RedriveError, exceptions.AMQPError, OSError) as error:
            logger.debug(
                "queue %s: outcomes of requeued messages could not be reported: %s",
                self._queue,
                error,
            )


def _outcomes_of(delivery: Delivery, settlement: Settlement) -> tuple[str, ...]:
    """Return the fields of `Outcomes` that a settled message counts for; none if it failed before
    and is only retried again."""
    match settlement:
        case Drop() | PutBack():
            return ()
        case Ack():
            return ("handled", "handled_after_retry") if retries_made(delivery) else ("handled",)
        case MoveToFailed(_, _, retries):
            return ("failed", "failed_after_retry") if retries else ("failed",)
        case Discard(_, retries):
            found = ("failed", "discarded")
            return (*found, *(f"{name}_after_retry" for name in found)) if retries else found
        case (
            RetryByReject()
            | RetryByRepublish()
            | RetryByLadder()
            | RetryByBroker()
            | RetryInPlace()
        ):
            return ("retrying",) if settlement.retry == 1 else ()
        case _:
            assert_never(settlement)
