"""Publish on an event loop, with confirms and many messages in flight."""

import asyncio
import contextlib
from collections.abc import AsyncIterable, Collection, Iterable, Mapping
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
from redrive.pubsub.aio.connection import Connector, publishing_connection
from redrive.pubsub.aio.declarer import declare_exchanges_on_thread, declare_ladder
from redrive.pubsub.aio.threads import running_loop
from redrive.pubsub.confirms import Outgoing, PublisherSession
from redrive.pubsub.in_flight import BulkTicket, InFlight
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


class TaskInFlight(InFlight):
    """Messages in flight that are awaited by a task, on the loop that settles them."""

    def __init__(self) -> None:
        self._room = asyncio.Event()
        super().__init__(contextlib.nullcontext(), self._room.set, asyncio.get_running_loop().time)

    async def wait_until_below(self, count: int, timeout: float) -> bool:
        """Wait until fewer than `count` are in flight; return False after `timeout` seconds."""
        if self.count < count:
            await asyncio.sleep(0)  # let other tasks and the confirms run
            return True
        self._await(count)
        try:
            while self._is_awaited() and (left := self._seconds_left(timeout)) > 0:
                self._room.clear()
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(left):
                        await self._room.wait()
        finally:
            self._awaited = 0
        return self.count < count


class AsyncPublisher(PublisherBase):
    """A publisher to the main exchange of a family, for any number of tasks of one event loop.

    Use it as a context manager:

        async with AsyncPublisher("amqp://guest:guest@localhost/") as publisher:
            await publisher.publish({"id": 121, "name": "guanyiyao"}, "user.create")

    Every message is persistent and confirmed. When the connection is lost, unconfirmed messages are
    published again on the next one, with the same message id. So a consumer may see a message
    twice, but none is lost.
    """

    _is_async = True

    def _make_connector(
        self,
        url: Address,
        name: str,
        credentials: Credentials | None,
        ssl_context: ContextSource | None,
    ) -> None:
        self._connector = Connector(url, name, credentials, ssl_context)
        self._publishing: tuple[asyncio.AbstractEventLoop, PublishingConnection] | None = None
        self._session: _Session | None = None
        self._closed = False
        self._declaring = asyncio.Lock()

    @override
    async def publish(
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
        await self._publish(prepared)
        return prepared.envelope.message_id

    @override
    async def publish_many(
        self,
        messages: Iterable[Publishable] | AsyncIterable[Publishable],
        *,
        mandatory: bool = False,
        timeout: Duration | None = None,
    ) -> PublishReport:
        limit = self._timeout if timeout is None else seconds_of(timeout)
        session = await self._open_session(limit)
        report = PublishReport()
        many = BulkTicket(report, mandatory, TaskInFlight())
        given_up: RedriveError | None = None
        batch: list[tuple[int, Outgoing]] = []
        no_ladder: RedriveError | None = None
        position = -1

        async def take(message: Publishable, batch_size: int) -> None:
            nonlocal batch, given_up, no_ladder, position
            position += 1
            if given_up is not None:
                report.failed.append(FailedPublish(None, position, given_up))
                return
            try:
                if isinstance(message, BulkMessage):
                    outgoing, levels = self._bulk(message, many.settle)
                    if self._lacks_ladder(levels):
                        no_ladder = no_ladder or await self._failure_of_ladder(levels)
                        if no_ladder is not None:
                            raise no_ladder
                else:
                    outgoing = self._outgoing(message, many.settle)
                batch.append((position, outgoing))
            except HandlerTimeout:
                raise
            except RedriveError as error:
                report.failed.append(FailedPublish(None, position, error))
            if len(batch) >= batch_size:
                sending, batch = batch, []
                given_up = await self._send_batch(session, many, sending, 2 * self._window, limit)

        try:
            if isinstance(messages, AsyncIterable):
                async for message in messages:
                    await take(message, 1)  # the next message may take long to come
            else:
                for message in messages:
                    await take(message, BATCH)
        except asyncio.CancelledError:
            session.send(
                [outgoing for _, outgoing in batch]
            )  # messages taken so far are sent, but nobody waits for them
            raise
        except BaseException:
            await self._send_batch(session, many, batch, 1, limit)
            raise
        if given_up is None:
            await self._send_batch(session, many, batch, 1, limit)
        report.failed.sort(key=lambda failed: failed.position)
        if report.failed or report.unroutable:
            self._levels = 0  # as in publish
        self._unroutable += report.unroutable + sum(
            isinstance(failed.error, Unroutable) for failed in report.failed
        )
        return report

    async def _publish(self, prepared: PreparedPublish) -> None:
        try:
            session = await self._open_session(prepared.limit)
            if self._lacks_ladder(prepared.place.levels):
                await self._declare_ladder(prepared.place.levels)
        except RedriveError as failure:
            prepared.ended(failure)
            raise
        error = await session.send_one(prepared)
        prepared.ended(error)
        if isinstance(error, Unroutable):
            self._unroutable += 1
            if not prepared.mandatory:
                self._unrouted.tell([prepared.envelope.routing_key])
                return
        if error is not None:
            self._levels = 0  # whatever happened, the delay's queues may be gone
            raise error

    async def _failure_of_ladder(self, levels: int) -> RedriveError | None:
        """Declare what a delay needs; return the error if that is impossible."""
        try:
            await self._declare_ladder(levels)
        except RedriveError as error:
            return error
        return None

    @override
    async def close(self) -> None:
        self._closed = True
        session, self._session = self._session, None
        if session is not None:
            await session.close()

    async def __aenter__(self) -> Self:
        try:
            await self._open_session(self._timeout)
        except BaseException:
            # Otherwise nobody would close the session, which keeps trying.
            session, self._session = self._session, None
            if session is not None:
                await session.close()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def __repr__(self) -> str:
        return f"<AsyncPublisher {self._connector.url.address} exchange={self._exchanges.main!r}>"

    async def _declare_ladder(self, levels: int) -> None:
        """Declare what a delay needs; when several tasks need the same, only one declares it."""
        async with self._declaring:
            if levels > self._levels:
                await declare_ladder(self._connector, self._exchanges, levels)
                self._levels = levels

    async def _send_batch(
        self,
        session: "_Session",
        many: BulkTicket[TaskInFlight],
        batch: list[tuple[int, Outgoing]],
        most_open: int,
        limit: float,
    ) -> RedriveError | None:
        """Send a batch and wait until fewer than `most_open` are unconfirmed. If that takes too
        long, give up on all unconfirmed messages and return the reason."""
        many.add(batch)
        session.send([outgoing for _, outgoing in batch])
        in_time = await many.in_flight.wait_until_below(most_open, limit)
        self._unrouted.tell(many.take_unrouted())
        if in_time:
            return None
        many.withdraw(lambda outgoing: session.timeout_of(outgoing, limit))
        return BrokerUnavailable(
            self._connector.url.address,
            f"it confirmed nothing for {limit:g} s",
            "Publish the rest when it is back.",
        )

    def _publishing_here(self) -> PublishingConnection:
        """Return the connection for publishing in this event loop."""
        loop = running_loop()
        if self._publishing is None or self._publishing[0] is not loop:
            self._publishing = loop, publishing_connection(self._connector)
        return self._publishing[1]

    async def _open_session(self, timeout: float) -> "_Session":
        if publisher_base.recorded is not None:
            return cast("_Session", publisher_base.recorded)
        self._belongs_here()
        self._check_open(self._closed)
        loop = running_loop()
        if (
            self._session is not None
            and self._session.loop is not loop
            and not self._session.loop.is_closed()
        ):
            raise ConfigurationError(
                "the publisher belongs to another event loop, which is still running",
                "Create one in each event loop.",
            )
        if (
            self._session is None
            or self._session.failure is not None
            or self._session.loop is not loop
        ):
            self._session = _Session(
                self._connector,
                self._publishing_here(),
                self._exchanges if self._declare else None,
                self._window,
                self._patience,
            )
        session = self._session
        await session.wait_until_up(timeout)
        return session


class _Session(PublisherSession):
    """A publisher's use of the shared publishing connection."""

    def __init__(
        self,
        connector: Connector,
        publishing: PublishingConnection,
        exchanges: ExchangeFamily | None,
        window: int,
        patience: timedelta = timedelta(0),
    ) -> None:
        super().__init__(window)
        self._publishing = publishing
        self.loop = running_loop()
        self._began = asyncio.Event()
        self._ended = asyncio.Event()
        self._pumping = False
        prepare = (
            (lambda: declare_exchanges_on_thread(connector, exchanges))
            if exchanges is not None
            else None
        )
        self._link = publishing.link_for(self, prepare, patience)

    async def wait_until_up(self, timeout: float) -> None:
        """Wait for the first connection, or raise the reason why there is none."""
        if not self._began.is_set():
            try:
                async with asyncio.timeout(timeout):
                    await self._began.wait()
            except TimeoutError:
                raise BrokerUnavailable(
                    self._link.address, f"it did not answer within {timeout:g} s"
                ) from None
        if self.failure is not None:
            raise self.failure

    def send(self, batch: list[Outgoing]) -> None:
        """Publish a batch."""
        self._outbox.enqueue(batch)
        self._outbox.pump()

    async def send_one(self, prepared: PreparedPublish) -> RedriveError | None:
        """Publish a message and wait until it is settled. Messages that other tasks publish at the
        same moment are sent along with it."""
        future: asyncio.Future[RedriveError | None] = self.loop.create_future()

        def settled(_: Outgoing, error: RedriveError | None) -> None:
            if not future.done():
                future.set_result(error)

        outgoing = prepared.outgoing(settled)
        self._outbox.enqueue([outgoing])
        if not self._pumping:
            self._pumping = True
            self.loop.call_soon(self._pump)
        timer = self.loop.call_later(
            prepared.limit, lambda: settled(outgoing, self.timeout_of(outgoing, prepared.limit))
        )
        try:
            error = await future
        except asyncio.CancelledError:
            outgoing.withdrawn = True
            raise
        finally:
            timer.cancel()
        outgoing.withdrawn = True
        return error

    async def close(self) -> None:
        """Close the connection unless others use it."""
        self._link.close()
        await self._ended.wait()

    def ended(self) -> None:
        """Note that the link has ended: nothing is confirmed any more."""
        super().ended()
        self._publishing.when_closed(self._ended.set)

    def _pump(self) -> None:
        self._pumping = False
        self._outbox.pump()

    def _begun(self) -> None:
        self._began.set()
