"""How much is in the queues of subscribers, as a metric. The broker's management API tells it: AMQP
does not report what a consumer holds, nor what a quorum queue is dead-lettering."""

import contextlib
import logging
import threading
import time
from collections.abc import Iterator, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING

from redrive.errors import ConfigurationError, RedriveError
from redrive.pubsub.admin.management_api import ManagementAPI
from redrive.pubsub.subscriber_base import SubscriberBase
from redrive.topology.flow import QueueCount
from redrive.topology.names import failed_queue, retry_queue

if TYPE_CHECKING:
    from opentelemetry.metrics import CallbackOptions, MeterProvider, Observation

logger = logging.getLogger("redrive")

_PATIENCE = timedelta(seconds=3)
"""A scrape waits for it, and gives up after ten seconds by default."""
_AGE = 5.0
"""Seconds for which numbers are kept: the broker's own are as old."""


def observe_queues(
    *subscribers: SubscriberBase,
    management_url: str | None = None,
    meter_provider: "MeterProvider | None" = None,
) -> None:
    """Measures how much is in the queues of these subscribers: `redrive.queue.messages`, by queue
    and by state. It is asked for when the metrics are collected, and at most every five seconds.

    A number that the API does not tell is not made up: there is none then, and a warning in the
    log.

    Args:
        subscribers: whose main, retry and failed queues.
        management_url: where the management API is; port 15672 of the broker's host (15671 with
            TLS) by default.
        meter_provider: where the metric goes; the global one where none is given.

    Raises:
        ConfigurationError: OpenTelemetry or httpx is not installed, the address is none, or it is
            given for subscribers of several brokers.
    """
    try:
        from opentelemetry import metrics
    except ImportError as error:
        raise ConfigurationError(
            "metrics need OpenTelemetry, which is not installed", "pip install 'redrive[metrics]'"
        ) from error
    brokers = {subscriber.access.url.endpoints for subscriber in subscribers}
    if management_url is not None and len(brokers) > 1:
        raise ConfigurationError(
            "these subscribers are on several brokers, and one management API is named",
            "Observe those of each broker by themselves.",
        )
    for subscriber in subscribers:
        # Now, and not at each scrape: an address that is none is the caller's mistake.
        ManagementAPI(subscriber.access.url, management_url).close()
    counts = _Counts(subscribers, management_url)

    def observe(_: "CallbackOptions") -> Iterator["Observation"]:
        for name, count in counts.now():
            for state, messages in (
                ("ready", count.ready),
                ("held", count.held),
                ("dead-lettering", count.dead_lettering),
                *((("held-back", count.held_back),) if count.holds_back else ()),
            ):
                yield metrics.Observation(
                    messages,
                    {
                        "messaging.system": "rabbitmq",
                        "messaging.destination.name": name,
                        "redrive.state": state,
                    },
                )

    metrics.get_meter("redrive", meter_provider=meter_provider).create_observable_gauge(
        "redrive.queue.messages",
        [observe],
        "{message}",
        "Messages in the main, the retry and the failed queue.",
    )


class _Counts:
    """What is in the queues of subscribers, at most a few seconds old."""

    def __init__(self, subscribers: Sequence[SubscriberBase], management_url: str | None) -> None:
        self._subscribers = subscribers
        self._management_url = management_url
        self._lock = threading.Lock()
        self._known: list[tuple[str, QueueCount]] = []
        self._asked_at = -_AGE
        self._unknown: set[str] = set()

    def now(self) -> list[tuple[str, QueueCount]]:
        """What is known; a queue that is not there is left out, as is one that nobody tells of."""
        with self._lock:
            if time.monotonic() - self._asked_at >= _AGE:
                self._known = [one for each in self._subscribers for one in self._of(each)]
                self._asked_at = time.monotonic()
            return self._known

    def _of(self, subscriber: SubscriberBase) -> list[tuple[str, QueueCount]]:
        queue = subscriber.subscription.queue
        found: list[tuple[str, QueueCount]] = []
        try:
            with ManagementAPI.of(subscriber.access, self._management_url, _PATIENCE) as management:
                for name in (queue, retry_queue(queue), failed_queue(queue)):
                    with contextlib.suppress(ConfigurationError):  # it is not there
                        found.append((name, management.count(name)))
        except RedriveError as error:
            if queue not in self._unknown:
                self._unknown.add(queue)
                logger.warning(
                    "how much is in the queues of %s is not measured: %s",
                    queue,
                    str(error).partition("\n")[0],
                )
            return []
        self._unknown.discard(queue)
        return found
