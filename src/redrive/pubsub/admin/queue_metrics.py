"""Export queue depths as metrics.

The numbers come from the broker's management API: AMQP does not report what consumers hold, nor
what a quorum queue is dead-lettering.
"""

import contextlib
import logging
import threading
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

from redrive.errors import ConfigurationError, RedriveError
from redrive.pubsub.admin.management_api import QUICK_TIMEOUT, ManagementAPI
from redrive.pubsub.lifecycle import BrokerAccess
from redrive.pubsub.url import policy_of, tags_of
from redrive.topology.flow import QueueCount
from redrive.topology.headers import seconds_since
from redrive.topology.queue_role import QueueRole, of_subscription

if TYPE_CHECKING:
    from opentelemetry.metrics import CallbackOptions, MeterProvider, Observation

    from redrive.pubsub.subscriber_base import SubscriberBase

logger = logging.getLogger("redrive")


class WorkerTexts(NamedTuple):
    """The retry policies of a queue's workers, and what they select messages by, as text."""

    policies: list[str]
    selections: list[str]


def worker_texts(
    destination: BrokerAccess, management_url: str | None, queues: Collection[str]
) -> dict[str, WorkerTexts] | None:
    """Return what each queue's workers say about themselves.

    There are several policies during a deployment, and none if nobody consumes the queue or its
    consumers don't report one. Return None if the management API does not answer or does not let
    this user see connections.
    """
    try:
        with ManagementAPI.of(destination, management_url, QUICK_TIMEOUT) as management:
            connections = management.listed("vhosts/{vhost}/connections?columns=client_properties")
    except RedriveError:
        return None
    told = [
        properties
        for one in connections
        if isinstance(properties := one.get("client_properties"), dict)
    ]
    found: dict[str, WorkerTexts] = {}
    for queue in queues:
        workers = [(policy, one) for one in told if (policy := policy_of(one, queue))]
        selections = {tags_of(one, queue) for _, one in workers}
        found[queue] = WorkerTexts(
            sorted({policy for policy, _ in workers}), sorted(selections - {""})
        )
    return found


def worker_outages(
    destination: BrokerAccess, management_url: str | None, queues: Collection[str]
) -> dict[str, list[str]] | None:
    """Return what is down according to each queue's workers; None if the management API does not
    answer or lists no consumers."""
    try:
        with ManagementAPI.of(destination, management_url, QUICK_TIMEOUT) as management:
            reports = management.reports()
    except RedriveError:
        return None
    return {queue: sorted(reports[queue].down) if queue in reports else [] for queue in queues}


_AGE = 5.0
"""How many seconds numbers are cached. The broker's own numbers are as old as that."""


class Gauge(NamedTuple):
    """A metric of a queue.

    Args:
        name: its name in OpenTelemetry's notation.
        unit: what is counted, or `s`.
        description: shown to people.
    """

    name: str
    unit: str
    description: str


class Sample(NamedTuple):
    """A gauge's value with its attributes."""

    gauge: Gauge
    value: float
    attributes: dict[str, str]


MESSAGES = Gauge(
    "redrive.queue.messages",
    "{message}",
    "Messages in a queue, by state.",
)
CONSUMERS = Gauge("redrive.queue.consumers", "{consumer}", "Consumers of a queue.")
HEAD_AGE = Gauge(
    "redrive.queue.head_age",
    "s",
    "Time since the message at the head was published. Only classic queues report it.",
)
UNCOUNTED = Gauge(
    "redrive.queue.uncounted",
    "1",
    "1 if the broker does not count a queue's messages: its statistics may be disabled.",
)
GAUGES = (MESSAGES, CONSUMERS, HEAD_AGE, UNCOUNTED)


def samples_of(role: QueueRole, count: QueueCount, now: float) -> Iterator[Sample]:
    """Yield the samples of a queue, leaving out what the broker does not report.

    Args:
        role: the queue and its purpose.
        count: the queue's counts.
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
    *subscribers: "SubscriberBase",
    management_url: str | None = None,
    meter_provider: "MeterProvider | None" = None,
) -> None:
    """Export the message counts of the subscribers' main, retry and failed queues as metrics.

    The gauges are `redrive.queue.messages` (by queue and state), `redrive.queue.consumers`,
    `redrive.queue.head_age` and `redrive.queue.uncounted`. The broker is asked when metrics are
    collected, at most every five seconds.

    No number is made up: if the API does not report one, there is no value, and a warning is
    logged.

    Args:
        subscribers: the subscribers whose queues are measured.
        management_url: address of the management API; by default port 15672 of the broker's host
            (15671 with TLS).
        meter_provider: where the metrics go; the global provider by default.

    Raises:
        ConfigurationError: OpenTelemetry or httpx is not installed, the address is invalid, or it
            is given for subscribers of several brokers.
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
            "these subscribers are on several brokers, but one management API is given",
            "Call observe_queues once for each broker.",
        )
    for subscriber in subscribers:
        # Now rather than at each scrape: an invalid address is the caller's mistake.
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
    """The counts of the subscribers' queues, cached for a few seconds."""

    def __init__(self, subscribers: "Sequence[SubscriberBase]", management_url: str | None) -> None:
        self._subscribers = subscribers
        self._management_url = management_url
        self._lock = threading.Lock()
        self._known: list[tuple[QueueRole, QueueCount]] = []
        self._asked_at = -_AGE
        self._unknown: set[str] = set()

    def now(self) -> list[tuple[QueueRole, QueueCount]]:
        """Return the known counts; queues that don't exist or can't be counted are left out."""
        with self._lock:
            if time.monotonic() - self._asked_at >= _AGE:
                self._known = [one for each in self._subscribers for one in self._of(each)]
                self._asked_at = time.monotonic()
            return self._known

    def _of(self, subscriber: "SubscriberBase") -> list[tuple[QueueRole, QueueCount]]:
        queue = subscriber.subscription.queue
        found: list[tuple[QueueRole, QueueCount]] = []
        try:
            with ManagementAPI.of(
                subscriber.access, self._management_url, QUICK_TIMEOUT
            ) as management:
                for role in of_subscription(queue):
                    with contextlib.suppress(ConfigurationError):  # the queue does not exist
                        found.append((role, management.count(role.queue)))
        except RedriveError as error:
            if queue not in self._unknown:
                self._unknown.add(queue)
                logger.warning(
                    "the queues of %s are not measured: %s",
                    queue,
                    str(error).partition("\n")[0],
                )
            return []
        self._unknown.discard(queue)
        return found
