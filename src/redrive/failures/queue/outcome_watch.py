"""Watch the outcome of a job's messages: events, and copies of messages retried or set aside."""

import contextlib
import threading
import uuid
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta

from pika import exceptions

from redrive.amqp.frames import Received
from redrive.amqp.properties import Properties
from redrive.errors import ConfigurationError, PermissionDenied, RedriveError
from redrive.failures.message.cause import Cause, cause_of
from redrive.failures.message.failed_message import FailedMessage
from redrive.failures.message.route import WayBack
from redrive.failures.queue.canary import CanaryDecision
from redrive.pubsub.admin.amqp_survey import arguments_of
from redrive.pubsub.blocking import client_errors
from redrive.pubsub.blocking.connection import Connector, Link
from redrive.pubsub.blocking.declarer import Declarer, Depth, declaring
from redrive.pubsub.consumer import Consumer
from redrive.pubsub.wire_protocol import Wire
from redrive.topology import headers, names, outcome_events
from redrive.topology.headers import Delivery
from redrive.topology.model import Binding, Queue
from redrive.topology.names import ExchangeFamily, failed_kinds
from redrive.topology.outcome_events import Outcomes, OutcomeTotals

_PREFETCH = 500
_MOST_CAUSES = 100


class Watch:
    """Counts the outcomes of a job's messages while they are sent; a context manager.

    Messages that are set aside are seen at the failed exchange, and messages rejected or
    republished for a retry are seen at the retry exchange, so subscribers of any kind and version
    are watched. Successes, and messages that wait on the delay ladder or in an ordered queue, are
    known only if the subscriber reports them.

    Consumers without redrive report nothing. Messages that fail there again are seen when they
    reach the dead-letter queue by the same exchange and key as before.
    """

    def __init__(
        self,
        connector: Connector,
        exchanges: ExchangeFamily,
        queues: Collection[str],
        job: str,
        arrivals: Collection[WayBack] = (),
    ) -> None:
        self._connector = connector
        self._job = job
        self._queues = frozenset(queues)
        self._queue = outcome_events.watched_queue(str(uuid.uuid4()))
        self._exchanges = exchanges
        self._copied_from = {exchanges.failed, exchanges.retry, *(way.exchange for way in arrivals)}
        self._bindings = (
            *(Binding(exchanges.failed, self._queue.name, queue) for queue in queues),
            *(Binding(way.exchange, self._queue.name, way.routing_key) for way in arrivals),
            *(outcome_events.bindings_of(self._queue, exchanges, job) if queues else ()),
        )
        self._optional = [
            *(Binding(exchanges.retry, self._queue.name, queue) for queue in queues),
            *(Binding(exchanges.failed, self._queue.name, failed_kinds(queue)) for queue in queues),
        ]
        self._link = Link(connector, self)
        self._ended = threading.Event()
        self._succeeded = 0
        self._retrying_told = 0
        self._retrying_seen = 0
        self._failed_at_once = 0
        self._failed_again = 0
        self._causes: Counter[Cause] = Counter()

    @property
    def causes(self) -> Counter[Cause]:
        """Number of messages that were seen to fail again, by cause; safe to read from any thread.

        Only the first hundred causes are counted.
        """
        return self._causes

    @property
    def standing(self) -> OutcomeTotals:
        """What is known by now; safe to read from any thread."""
        # Both counts are of the same messages: the larger one is more complete.
        failing = max(self._retrying_told, self._retrying_seen) + self._failed_at_once
        return OutcomeTotals(self._succeeded, max(failing, self._failed_again), self._failed_again)

    sees_while_sending = True

    def begin(self) -> None:
        """Do nothing before messages are sent."""

    def sent(self, count: int) -> None:
        """Do nothing after messages were sent."""

    def look(self) -> OutcomeTotals:
        """Return what is known by now."""
        return self.standing

    def __enter__(self) -> "Watch":
        with declaring(self._connector) as declarer:
            if self._queues:  # consumers without redrive report no events
                _declare_events(declarer, self._exchanges)
            declarer.declare(self._queue)
            for binding in self._bindings:
                declarer.declare(binding)
            with contextlib.suppress(
                PermissionDenied, ConfigurationError
            ):  # without these bindings, retries are known only from reports of subscribers
                for binding in self._optional:
                    declarer.declare(binding)
        self._link.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._link.close()
        # Don't delete the queue, let it expire. A quorum queue that dead-letters waits until each
        # queue that a message was routed to confirms it, and waits three minutes for a queue
        # deleted meanwhile. Source: rabbit_fifo_dlx_worker,
        # dead_letter_worker_publisher_confirm_timeout.
        with contextlib.suppress(RedriveError), declaring(self._connector) as declarer:
            for binding in (*self._optional, *self._bindings):
                with contextlib.suppress(PermissionDenied, ConfigurationError):
                    declarer.unbind(binding)

    def connected(self, connection: Wire) -> None:
        """Start consuming when the link is up."""
        Consumer(
            connection, self._queue.name, _PREFETCH, received=self._received, refused=self._refused
        )

    def disconnected(self, error: RedriveError) -> None:
        """Do nothing: the link comes back, and the queue keeps its messages until then."""

    def gave_up(self, error: RedriveError) -> None:
        """Do nothing: without a link, no further outcomes are seen."""

    def ended(self) -> None:
        """Note that the I/O thread has ended."""
        self._ended.set()

    def _refused(self, error: RedriveError) -> None:
        self._link.reconnect(str(error).partition("\n")[0])

    def _received(self, consumer: Consumer, received: Received) -> None:
        if received.exchange in self._copied_from:
            self._see_copy(received)
        else:
            self._hear(Outcomes.decode(received.body))
        consumer.ack(received.delivery_tag)
        consumer.flush()

    def _see_copy(self, received: Received) -> None:
        table = Properties.parse(received.properties).headers
        if headers.text(table.scalar(headers.JOB)) != self._job:
            return
        deaths = headers.deaths_in(table.raw_by_name().get(headers.X_DEATH))
        written, queue = table.scalar(headers.RETRIES), received.routing_key
        if received.exchange == self._exchanges.retry:
            self._retrying_seen += not headers.counted(written) and not headers.trips_before(
                deaths, queue
            )
            return
        retries = (
            headers.death_count(deaths, queue) if written is None else headers.counted(written)
        )
        self._failed_again += 1
        self._failed_at_once += not retries
        self._count_cause(received)

    def _count_cause(self, received: Received) -> None:
        delivery = Delivery(
            received.routing_key,
            received.exchange,
            received.routing_key,
            Properties.parse(received.properties),
            received.body,
        )
        if received.exchange == self._exchanges.failed:
            cause = cause_of(FailedMessage(delivery))
        else:
            copied = replace(delivery, dead_letter_queue=self._queue.name)
            cause = cause_of(FailedMessage.of_dead_letter(copied))
        if cause in self._causes or len(self._causes) < _MOST_CAUSES:
            # Make a new one, since another thread may be reading the old one.
            self._causes = self._causes + Counter((cause,))

    def _hear(self, outcomes: Outcomes | None) -> None:
        if outcomes is not None and outcomes.job == self._job and outcomes.queue in self._queues:
            # Successes after an earlier failure may belong to an earlier run of the job.
            self._succeeded += max(0, outcomes.handled - outcomes.handled_after_retry)
            self._retrying_told += outcomes.retrying
            self._failed_again += outcomes.discarded
            self._failed_at_once += max(0, outcomes.discarded - outcomes.discarded_after_retry)


@dataclass(frozen=True, slots=True)
class MessageCounts:
    """The contents of a subscription's queues. None for a missing queue, or without permission to
    look.

    Args:
        queue: the main queue.
        main: number of ready messages in the main queue, and its consumers.
        retry: the depth of the retry queue.
        failed: the depth of the failed queue.
        onward: what happens to messages there that nobody consumes, if they don't stay.
    """

    queue: str
    main: Depth | None
    retry: Depth | None
    failed: Depth | None
    onward: str = ""

    @property
    def is_unconsumed(self) -> bool:
        """Whether the main queue certainly has no consumers."""
        return self.main is not None and not self.main.consumers

    def __str__(self) -> str:
        queues = (
            (self.retry, names.retry_queue(self.queue)),
            (self.failed, names.failed_queue(self.queue)),
        )
        others = [f"{name} {depth.messages:,}" for depth, name in queues if depth is not None]
        main = "can't be looked at"
        if self.main is not None:
            main = f"has {self.main}"
        return ", ".join([f"{self.queue} {main}", *others])


def whereabouts(connector: Connector, queue: str) -> MessageCounts:
    """Return the contents of a subscription's queues, and the consumers of the main queue."""
    with declaring(connector) as declarer:

        def look(name: str) -> Depth | None:
            try:
                return declarer.depth(name)
            except PermissionDenied:
                return None

        return MessageCounts(
            queue, look(queue), look(names.retry_queue(queue)), look(names.failed_queue(queue))
        )


def reason_of_stop(
    verdict: CanaryDecision, standing: OutcomeTotals, look: Callable[[], Sequence[MessageCounts]]
) -> str:
    """Return why a canary stopped its job.

    If none of its messages is failing, some are unknown: the reason then also says where they may
    be, if the broker answers.
    """
    if standing.failing:
        return verdict.reason
    try:
        places = "; ".join(map(str, look()))
    except RedriveError:
        return verdict.reason
    return f"{verdict.reason}: {places}; messages in none of them are held by consumers"


def retry_delay(connector: Connector, queue: str) -> timedelta | None:
    """Return how long a retry queue, or the broker itself, holds a message at most.

    Returns None if nothing does, or if this user may not ask.
    """
    with declaring(connector) as declarer, contextlib.suppress(PermissionDenied):
        if declarer.exists(Queue(names.retry_queue(queue))):
            ttl = (arguments_of(declarer, names.retry_queue(queue)) or {}).get("x-message-ttl")
            return timedelta(milliseconds=ttl) if isinstance(ttl, int) else None
        if declarer.exists(Queue(queue)):
            most = (arguments_of(declarer, queue) or {}).get("x-delayed-retry-max")
            return timedelta(milliseconds=most) if isinstance(most, int) else None
    return None


def listen(connector: Connector, exchanges: ExchangeFamily, job: str) -> None:
    """Keep a job's events from now on, until `heard` takes them."""
    queue = outcome_events.queue_of(job)
    with declaring(connector) as declarer:
        _declare_events(declarer, exchanges)
        declarer.declare(queue)
        for binding in outcome_events.bindings_of(queue, exchanges, job):
            declarer.declare(binding)


def heard(connector: Connector, job: str) -> Iterator[Outcomes]:
    """Take a job's events since the last call; there are none if `listen` was not called."""
    queue: Queue = outcome_events.queue_of(job)
    try:
        with connector.blocking() as connection:
            channel = connection.channel()
            while True:
                method, _, body = channel.basic_get(queue.name, auto_ack=True)
                if method is None:
                    return
                outcomes = Outcomes.decode(body or b"")
                if outcomes is not None and outcomes.job == job:
                    yield outcomes
    except exceptions.ChannelClosedByBroker as error:
        if error.reply_code != 404:
            raise client_errors.of_channel(error, f"read queue {queue.name!r}") from error
    except exceptions.AMQPError as error:
        raise client_errors.of_connection(error, connector.url) from error


def _declare_events(declarer: Declarer, exchanges: ExchangeFamily) -> None:
    """Declare the exchange of events; without permission to, check that it exists."""
    exchange = outcome_events.exchange_of(exchanges)
    try:
        declarer.declare(exchange)
    except PermissionDenied:
        if not declarer.may_exist(exchange):
            raise
