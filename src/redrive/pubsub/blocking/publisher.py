"""Publish from any thread, with confirms and many messages in flight."""

import threading
from collections.abc import Collection, Iterable, Mapping
from datetime import datetime, timedelta
from typing import Self, cast

from typing_extensions import override

from redrive.amqp.field_table import FieldValue
from redrive.errors import (
    BrokerUnavailable,
    ConfigurationError,
    HandlerTimeout,
    RedriveError,
    Unroutable,
)
from redrive.pubsub import publisher_base
from redrive.pubsub.blocking.connection import Connector, publishing_connection
from redrive.pubsub.blocking.declarer import declare_exchanges, declare_ladder
from redrive.pubsub.confirms import Outgoing, PublisherSession
from redrive.pubsub.in_flight import BulkTicket, ThreadInFlight
from redrive.pubsub.lifecycle import CLOSING_TIME
from redrive.pubsub.mailbox import Mailbox
from redrive.pubsub.publisher_base import (
    BATCH,
    NO_EXTRAS,
    BulkMessage,
    Extras,
    PreparedPublish,
    Publishable,
    PublisherBase,
)
from redrive.pubsub.publishing_connection import PublishingConnection
from redrive.pubsub.reports import FailedPublish, PublishReport
from redrive.pubsub.service_connection import Address
from redrive.pubsub.tls import ContextSource
from redrive.pubsub.url import Credentials, seconds_of
from redrive.topology.durations import Duration
from redrive.topology.names import ExchangeFamily


class Publisher(PublisherBase):
    """A thread-safe publisher to the main exchange of a family; use it as a context manager.

    Every message is persistent and confirmed. When the connection is lost, unconfirmed messages are
    published again on the next one, with the same message id. So a consumer may see a message
    twice, but none is lost.
    """

    _is_async = False

    def _make_connector(
        self,
        url: Address,
        name: str,
        credentials: Credentials | None,
        ssl_context: ContextSource | None,
    ) -> None:
        self._connector = Connector(url, name, credentials, ssl_context)
        self._publishing = publishing_connection(self._connector)
        self._starting = threading.Lock()
        self._session: Session | None = None
        self._closed = False
        self._declaring = threading.Lock()

    @override
    def publish(
        self,
        body: object,
        routing_key: str,
        *,
        headers: Mapping[str, FieldValue] | None = None,
        message_id: str | None = None,
        mandatory: bool = False,
        delay: Duration | None = None,
        deliver_at: datetime | None = None,
        timeout: Duration | None = None,
        tags: Collection[str] = (),
        extras: Extras = NO_EXTRAS,
    ) -> str:
        prepared = self._prepared(
            body,
            routing_key,
            headers=headers,
            message_id=message_id,
            mandatory=mandatory,
            delay=delay,
            deliver_at=deliver_at,
            timeout=timeout,
            tags=tags,
            extras=extras,
        )
        self._publish(prepared)
        return prepared.envelope.message_id

    @override
    def publish_many(
        self,
        messages: Iterable[Publishable],
        *,
        mandatory: bool = False,
        timeout: Duration | None = None,
    ) -> PublishReport:
        limit = self._timeout if timeout is None else seconds_of(timeout)
        session = self._open_session(limit)
        report = PublishReport()
        many = BulkTicket(report, mandatory, ThreadInFlight())
        given_up: RedriveError | None = None
        no_ladder: RedriveError | None = None
        batch: list[tuple[int, Outgoing]] = []
        try:
            for position, message in enumerate(messages):
                if given_up is not None:
                    report.failed.append(FailedPublish(None, position, given_up))
                    continue
                try:
                    if isinstance(message, BulkMessage):
                        outgoing, levels = self._bulk(message, many.settle)
                        if self._lacks_ladder(levels):
                            no_ladder = no_ladder or self._failure_of_ladder(levels)
                            if no_ladder is not None:
                                raise no_ladder
                    else:
                        outgoing = self._outgoing(message, many.settle)
                    batch.append((position, outgoing))
                except HandlerTimeout:
                    raise
                except RedriveError as error:
                    report.failed.append(FailedPublish(None, position, error))
                if len(batch) >= BATCH:
                    given_up = self._send_batch(session, many, batch, 2 * self._window, limit)
                    batch = []
        finally:
            # Also if the iterable raised: messages already taken from it are sent.
            if given_up is None:
                self._send_batch(session, many, batch, 1, limit)
        report.failed.sort(key=lambda failed: failed.position)
        if report.failed or report.unroutable:
            self._levels = 0  # as in publish
        self._count_unroutable(
            report.unroutable
            + sum(isinstance(failed.error, Unroutable) for failed in report.failed)
        )
        return report

    def _publish(self, prepared: PreparedPublish) -> None:
        limit = prepared.limit
        try:
            session = self._open_session(limit)
            if self._lacks_ladder(prepared.place.levels):
                self._declare_ladder(prepared.place.levels)
        except RedriveError as failure:
            prepared.ended(failure)
            raise
        ticket = _Ticket()
        outgoing = prepared.outgoing(ticket.settle)
        session.send([outgoing])
        if not ticket.done.wait(limit):
            outgoing.withdrawn = True
            ticket.error = session.timeout_of(outgoing, limit)
        prepared.ended(ticket.error)
        if isinstance(ticket.error, Unroutable):
            self._count_unroutable(1)
            if not prepared.mandatory:
                self._unrouted.tell([prepared.envelope.routing_key])
                return
        if ticket.error is not None:
            self._levels = 0  # whatever happened, the delay's queues may be gone
            raise ticket.error

    @override
    def close(self) -> None:
        with self._starting:
            self._closed = True
            session, self._session = self._session, None
        if session is not None:
            session.close()

    def __enter__(self) -> Self:
        try:
            self._open_session(self._timeout)
        except BaseException:
            # Otherwise nobody would close the session, which keeps trying.
            with self._starting:
                session, self._session = self._session, None
            if session is not None:
                session.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<Publisher {self._connector.url.address} exchange={self._exchanges.main!r}>"

    def _declare_ladder(self, levels: int) -> None:
        """Declare what a delay needs; when several threads need the same, only one declares it."""
        with self._declaring:
            if levels > self._levels:
                declare_ladder(self._connector, self._exchanges, levels)
                self._levels = levels

    def _failure_of_ladder(self, levels: int) -> RedriveError | None:
        """Declare what a delay needs; return the error if that is impossible."""
        try:
            self._declare_ladder(levels)
        except RedriveError as error:
            return error
        return None

    def _count_unroutable(self, count: int) -> None:
        with self._starting:
            self._unroutable += count

    def _send_batch(
        self,
        session: "Session",
        many: BulkTicket[ThreadInFlight],
        batch: list[tuple[int, Outgoing]],
        most_open: int,
        limit: float,
    ) -> RedriveError | None:
        """Send a batch and wait until fewer than `most_open` are unconfirmed. If that takes too
        long, give up on all unconfirmed messages and return the reason."""
        many.add(batch)
        session.send([outgoing for _, outgoing in batch])
        in_time = many.in_flight.wait_until_below(most_open, limit)
        self._unrouted.tell(many.take_unrouted())
        if in_time:
            return None
        many.withdraw(lambda outgoing: session.timeout_of(outgoing, limit))
        return BrokerUnavailable(
            self._connector.url.address,
            f"it confirmed nothing for {limit:g} s",
            "Publish the rest when it is back.",
        )

    def _open_session(self, timeout: float) -> "Session":
        if publisher_base.recorded is not None:
            return cast("Session", publisher_base.recorded)
        # before the lock, which another thread may hold at the moment of a fork
        self._belongs_here()
        with self._starting:
            self._check_open(self._closed)
            if self._session is None or self._session.failure is not None:
                self._session = Session(
                    self._connector,
                    self._publishing,
                    self._exchanges if self._declare else None,
                    self._window,
                    self._patience,
                )
            session = self._session
        if session.on_io_thread():
            raise ConfigurationError(
                "publish was called on the publisher's own I/O thread, for example by a logging "
                "handler, and would wait for itself",
                "Publish from another thread: put a logging.handlers.QueueHandler before the "
                "handler.",
            )
        session.wait_until_up(timeout)
        return session


class Session(PublisherSession):
    """A publisher's use of the shared publishing connection, which has an I/O thread."""

    def __init__(
        self,
        connector: Connector,
        publishing: PublishingConnection,
        exchanges: ExchangeFamily | None,
        window: int,
        patience: timedelta = timedelta(0),
    ) -> None:
        super().__init__(window)
        self._began = threading.Event()
        self._ended = threading.Event()
        self._publishing = publishing
        prepare = (
            (lambda: declare_exchanges(connector, exchanges)) if exchanges is not None else None
        )
        self._link = publishing.link_for(self, prepare, patience)
        self._mailbox: Mailbox[list[Outgoing]] = Mailbox(
            self._link, self._outbox.enqueue, self._outbox.pump
        )

    def wait_until_up(self, timeout: float) -> None:
        """Wait for the first connection, or raise the reason why there is none."""
        if not self._began.wait(timeout):
            raise BrokerUnavailable(self._link.address, f"it did not answer within {timeout:g} s")
        if self.failure is not None:
            raise self.failure

    def on_io_thread(self) -> bool:
        """Return whether the caller runs on the connection's thread."""
        return self._link.on_io_thread()

    def send(self, batch: list[Outgoing]) -> None:
        """Publish a batch; can be called from any thread."""
        self._mailbox.put(batch)

    def close(self) -> None:
        """Close the connection unless others use it, and wait for that."""
        self._link.close()
        if not self._link.on_io_thread():
            self._ended.wait(3 * CLOSING_TIME)

    def ended(self) -> None:
        """Note that the link has ended: nothing is confirmed any more."""
        super().ended()
        self._publishing.when_closed(self._ended.set)

    def _begun(self) -> None:
        self._began.set()


class _Ticket:
    """The confirm of one message that `publish` waits for."""

    __slots__ = ("done", "error")

    def __init__(self) -> None:
        self.done = threading.Event()
        self.error: RedriveError | None = None

    def settle(self, _: Outgoing, error: RedriveError | None) -> None:
        """Note the outcome of the message, and wake the waiting thread."""
        self.error = error
        self.done.set()
