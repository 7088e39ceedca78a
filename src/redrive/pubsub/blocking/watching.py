"""Sees what becomes of the messages of a job: events, and copies of what is set aside."""

import contextlib
import threading
import uuid
from collections.abc import Iterator

from pika import exceptions

from redrive.errors import RedriveError
from redrive.pubsub.blocking import refusal
from redrive.pubsub.blocking.connection import Connector, Link
from redrive.pubsub.blocking.declare import declaring
from redrive.pubsub.consumer import Consumer
from redrive.pubsub.frames import Received
from redrive.pubsub.wire import Wire
from redrive.topology import events, headers
from redrive.topology.events import Outcomes
from redrive.topology.model import Binding, Queue
from redrive.topology.names import ExchangeFamily
from redrive.topology.properties import Properties

_PREFETCH = 500


class Watch:
    """Counts what becomes of a job's messages, while they are sent; a context manager.

    What is set aside is seen as it passes the failed exchange, so a subscriber of any kind and version is watched. What is handled is
    known where the subscriber tells.

    Args:
        connector: how to connect.
        exchanges: the exchange family.
        queue: the main queue that they are sent to.
        job: the job's id.
    """

    def __init__(self, connector: Connector, exchanges: ExchangeFamily, queue: str, job: str) -> None:
        self._connector = connector
        self._job = job
        self._queue = events.watched_queue(str(uuid.uuid4()))
        self._exchanges = exchanges
        self._bindings = (Binding(exchanges.failed, self._queue.name, queue), *events.bindings_of(self._queue, exchanges, job))
        self._link = Link(connector, self)
        self._consumer: Consumer | None = None
        self._ended = threading.Event()
        self.failed_again = 0
        self.handled = 0

    def __enter__(self) -> "Watch":
        with declaring(self._connector) as declarer:
            declarer.declare(events.exchange_of(self._exchanges))
            declarer.declare(self._queue)
            for binding in self._bindings:
                declarer.declare(binding)
        self._link.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._link.close()
        with contextlib.suppress(RedriveError), declaring(self._connector) as declarer:
            declarer.delete(self._queue)

    def connected(self, connection: Wire) -> None:
        """The link is up: consume."""
        self._consumer = Consumer(connection, self._queue.name, _PREFETCH, received=self._received, refused=self._refused)

    def disconnected(self, error: RedriveError) -> None:
        """The link is down; it comes back, and the queue waits for it."""
        self._consumer = None

    def gave_up(self, error: RedriveError) -> None:
        """There is no link: nothing more is seen."""

    def ended(self) -> None:
        """The I/O thread ends."""
        self._ended.set()

    def _refused(self, error: RedriveError) -> None:
        self._link.reconnect(str(error).partition("\n")[0])

    def _received(self, consumer: Consumer, received: Received) -> None:
        if received.exchange == self._exchanges.failed:
            if headers.text(Properties.parse(received.properties).headers.scalar(headers.JOB)) == self._job:
                self.failed_again += 1
        else:
            outcomes = Outcomes.decode(received.body)
            if outcomes is not None and outcomes.job == self._job:
                self.handled += outcomes.handled
        consumer.ack(received.delivery_tag)
        consumer.flush()


def listen(connector: Connector, exchanges: ExchangeFamily, job: str) -> None:
    """From now on a job's events are kept, until `heard` asks for them.

    Raises:
        PermissionDenied: the user may not declare a queue for them.
        BrokerUnavailable: no broker answered.
    """
    queue = events.queue_of(job)
    with declaring(connector) as declarer:
        declarer.declare(events.exchange_of(exchanges))
        declarer.declare(queue)
        for binding in events.bindings_of(queue, exchanges, job):
            declarer.declare(binding)


def heard(connector: Connector, job: str) -> Iterator[Outcomes]:
    """A job's events since they were asked for last; they are taken. None where nobody has listened.

    Raises:
        BrokerUnavailable: no broker answered.
        PermissionDenied: the user may not read them.
    """
    queue: Queue = events.queue_of(job)
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
            raise refusal.of_channel(error, f"read queue {queue.name!r}") from error
    except (exceptions.AMQPError, OSError) as error:
        raise refusal.of_connection(error, connector.url) from error
