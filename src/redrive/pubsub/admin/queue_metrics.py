"""How much is in queues, as metrics. The broker's management API tells it: AMQP does not report
what a consumer holds, nor what a quorum queue is dead-lettering."""

import contextlib
import logging
import threading
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, NamedTuple

from redrive.errors import ConfigurationError, RedriveError
from redrive.pubsub.admin.management_api import ManagementAPI
from redrive.pubsub.lifecycle import BrokerAccess
from redrive.pubsub.subscriber_base import SubscriberBase
from redrive.pubsub.url import policy_of
from redrive.topology.flow import QueueCount
from redrive.topology.headers import seconds_since
from redrive.topology.queue_role import QueueRole, of_subscription

if TYPE_CHECKING:
    from opentelemetry.metrics import CallbackOptions, MeterProvider, Observation


_ANSWER_WITHIN = timedelta(seconds=3)


def worker_policies(
    destination: BrokerAccess, management_url: str | None, queues: Collection[str]
) -> dict[str, list[str]] | None:
    """Say in words which retry policies the workers of each queue have: several while a deploy goes
    on, none where nobody consumes it, or only who does not tell. None where the management API does
    not answer, or does not let this user see connections."""
    try:
        with ManagementAPI.of(destination, management_url, _ANSWER_WITHIN) as management:
            connections = management.listed("vhosts/{vhost}/connections?columns=client_properties")
    except RedriveError:
        return None
    told = [
        properties
        for one in connections
        if isinstance(properties := one.get("client_properties"), dict)
    ]
    return {
        queue: sorted({policy for one in told if (policy := policy_of(one, queue))})
        for queue in queues
    }


logger = logging.getLogger("redrive")

_PATIENCE = timedelta(seconds=3)
"""A scrape waits for it, and gives up after ten seconds by default."""
_AGE = 5.0
"""Seconds for which numbers are kept: the broker's own are as old."""


class Gauge(NamedTuple):
    """Something that is measured of a queue.

    Args:
        name: its name, as OpenTelemetry writes names.
        unit: what is counted, or `s`.
        description: for people.
    """

    name: str
    unit: str
    description: str


class Sample(NamedTuple):
    """A gauge's value, and what it is of."""

    gauge: Gauge
    value: float
    attributes: dict[str, str]


MESSAGES = Gauge(
    "redrive.queue.messages",
    "{message}",
    "Messages that are in a queue, by state.",
)
CONSUMERS = Gauge("redrive.queue.consumers", "{consumer}", "Consumers that a queue has.")
HEAD_AGE = Gauge(
    "redrive.queue.head_age",
    "s",
    "How long ago the message at the head of a queue was published. Only classic queues tell.",
)
UNCOUNTED = Gauge(
    "redrive.queue.uncounted",
    "1",
    "Whether the broker does not tell how much is in a queue: it may collect no statistics.",
)
GAUGES = (MESSAGES, CONSUMERS, HEAD_AGE, UNCOUNTED)


def samples_of(role: QueueRole, count: QueueCount, now: float) -> Iterator[Sample]:
    """What is measured of a queue; there is no sample of what the broker does not tell.

    Args:
        role: which queue, and what it is for.
        count: what the broker tells of it.
        now: the time, in seconds since 1970.
    """
    attributes = {
        "messaging.system": "rabbitmq",
        "messaging.destination.name": role.queue,
        "redrive.role": role.role,
        **({"redrive.subscription": role.subscription} if role.subscription else {}),
    }
    for state, messages in (
        ("ready", count.ready),
        ("held", count.held),
        ("dead-lettering", count.dead_lettering),
        *((("held-back", count.held_back),) if count.holds_back else ()),
    ):
        if messages is not None:
            yield Sample(MESSAGES, messages, {**attributes, "redrive.state": state})
    if count.consumers is not None:
        yield Sample(CONSUMERS, count.consumers, attributes)
    yield Sample(UNCOUNTED, count.total is None, attributes)
    age = seconds_since(count.head_published, now)
    if age is not None:
        yield Sample(HEAD_AGE, age, attributes)


def observe_queues(
    *subscribers: SubscriberBase,
    management_url: str | None = None,
    meter_provider: "MeterProvider | None" = None,
) -> None:
    """Measures the queues of these subscribers: `redrive.queue.messages`, by queue and by state,
    `redrive.queue.consumers`, `redrive.queue.head_age`, and `redrive.queue.uncounted`. They are
    asked for when the metrics are collected, and at most every five seconds.

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

    def observer(gauge: Gauge) -> "Callable[[CallbackOptions], Iterator[Observation]]":
        def observe(_: "CallbackOptions") -> "Iterator[Observation]":
            now = time.time()
            for role, count in counts.now():
                for sample in samples_of(role, count, now):
                    if sample.gauge is gauge:
                        yield metrics.Observation(sample.value, sample.attributes)

        return observe

    meter = metrics.get_meter("redrive", meter_provider=meter_provider)
    for gauge in GAUGES:
        meter.create_observable_gauge(gauge.name, [observer(gauge)], gauge.unit, gauge.description)


class _Counts:
    """What is in the queues of subscribers, at most a few seconds old."""

    def __init__(self, subscribers: Sequence[SubscriberBase], management_url: str | None) -> None:
        self._subscribers = subscribers
        self._management_url = management_url
        self._lock = threading.Lock()
        self._known: list[tuple[QueueRole, QueueCount]] = []
        self._asked_at = -_AGE
        self._unknown: set[str] = set()

    def now(self) -> list[tuple[QueueRole, QueueCount]]:
        """What is known; a queue that is not there is left out, as is one that nobody tells of."""
        with self._lock:
            if time.monotonic() - self._asked_at >= _AGE:
                self._known = [one for each in self._subscribers for one in self._of(each)]
                self._asked_at = time.monotonic()
            return self._known

    def _of(self, subscriber: SubscriberBase) -> list[tuple[QueueRole, QueueCount]]:
        queue = subscriber.subscription.queue
        found: list[tuple[QueueRole, QueueCount]] = []
        try:
            with ManagementAPI.of(subscriber.access, self._management_url, _PATIENCE) as management:
                for role in of_subscription(queue):
                    with contextlib.suppress(ConfigurationError):  # it is not there
                        found.append((role, management.count(role.queue)))
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
