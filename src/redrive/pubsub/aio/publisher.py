"""Publishing on an event loop: confirmed, many in flight."""

import asyncio
import contextlib
from collections.abc import AsyncIterable, Collection, Iterable, Mapping
from datetime import datetime, timedelta
from typing import Self

from redrive.amqp.field_table import FieldValue
from redrive.errors import BrokerUnavailable, ConfigurationError, RedriveError, Unroutable
from redrive.pubsub.aio.connection import Connector, publishing_connection
from redrive.pubsub.aio.declarer import declare_exchanges_on_thread, declare_ladder
from redrive.pubsub.aio.threads import running_loop
from redrive.pubsub.confirms import Outgoing
from redrive.pubsub.envelope import NO_EXTRAS, Extras
from redrive.pubsub.in_flight import BulkTicket, InFlight
from redrive.pubsub.publisher_base import (
    BATCH,
    Publishable,
    PublisherBase,
    PublisherSession,
    Sealed,
)
from redrive.pubsub.publishing_connection import PublishingConnection
from redrive.pubsub.reports import FailedPublish, PublishReport
from redrive.pubsub.service_connection import Address
from redrive.pubsub.tls import ContextSource
from redrive.pubsub.url import Credentials, seconds_of
from redrive.topology.durations import Duration
from redrive.topology.names import ExchangeFamily


class TaskInFlight(InFlight):
    """Messages in flight that a task waits for, which runs where they are settled."""

    def __init__(self) -> None:
        self._room = asyncio.Event()
        super().__init__(contextlib.nullcontext(), self._room.set, asyncio.get_running_loop().time)

    async def wait_until_below(self, count: int, timeout: float) -> bool:
        """Waits until fewer than `count` are in flight."""
        if self.count < count:
            await asyncio.sleep(0)  # others, and the confirms, get their turn
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
    """Publishes to the main exchange of a family, for any number of tasks of one event loop; use it
    as a context manager.

        async with AsyncPublisher("amqp://guest:guest@localhost/") as publisher:
            await publisher.publish({"id": 121, "name": "guanyiyao"}, "user.create")

    Every message is persistent and confirmed. When the connection is lost, what was not confirmed
    is published again on the next one, with the same message id: a consumer may see it twice, and
    never not at all.
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
        """Publishes one message and returns when the broker has confirmed it.

        Where it is cancelled before the message was sent, the message is not sent; after that,
        whether the broker has it is not known.

        Args:
            body: bytes or a str as they are; a pydantic model, a dict or anything else that can be
                made JSON of.
            routing_key: at most 255 bytes.
            headers: the user's own.
            message_id: a UUID where none is given.
            mandatory: whether it is an error that no queue is bound for it; without, it is counted
                in `unroutable`, and the log warns of it once for each routing key.
            delay: how long the message waits before its subscribers get it, to the family's tick:
                never sooner, a tick later at most.
            deliver_at: when they get it, an aware datetime; a past one means now. Who subscribes
                then counts, not who does now.
            timeout: how long to wait for the confirm, connecting and a blocked broker included.
            tags: what subscriptions may ask for, besides the routing key.
            extras: correlation id, reply-to and the other properties of a message.

        Returns:
            The message id.

        Raises:
            ConfigurationError: the body, the key or a header can't be sent, the delay is none that
                can be, or the publisher is closed.
            Unroutable: no queue is bound for it, and `mandatory` is set.
            PublishNacked: the broker refused to take it.
            PublishTimeout: no confirm came in time; whether the broker has it is not known.
            BrokerUnavailable: no broker answered at the first connection.
        """
        sealed = self._sealed(
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
        await self._publish(sealed)
        return sealed.envelope.message_id

    async def publish_many(
        self,
        messages: Iterable[Publishable] | AsyncIterable[Publishable],
        *,
        mandatory: bool = False,
        timeout: Duration | None = None,
    ) -> PublishReport:
        """Publishes any number of messages, thousands unconfirmed at a time, in flat memory.

        Where nothing is confirmed for `timeout`, what is unconfirmed then and all that follows is
        reported as failed.

        Args:
            messages: pairs of a body and its routing key, or triples with headers; from a list, a
                generator, an async generator.
            mandatory: whether a message that no queue is bound for counts as failed; without, the
                log warns as for `publish`.
            timeout: how long the broker may confirm nothing.

        Returns:
            How many were confirmed, and exactly which were not, with the reason. A message that
            can't be sent at all is among them, and the others are sent.

        Raises:
            ConfigurationError: the publisher is closed.
            BrokerUnavailable: no broker answered at the first connection.
        """
        limit = self._timeout if timeout is None else seconds_of(timeout)
        session = await self._open_session(limit)
        report = PublishReport()
        many = BulkTicket(report, mandatory, TaskInFlight())
        given_up: RedriveError | None = None
        batch: list[tuple[int, Outgoing]] = []
        position = -1

        async def take(message: Publishable, batch_size: int) -> None:
            nonlocal batch, given_up, position
            position += 1
            if given_up is not None:
                report.failed.append(FailedPublish(None, position, given_up))
                return
            try:
                batch.append((position, self._outgoing(message, many.settle)))
            except ConfigurationError as error:
                report.failed.append(FailedPublish(None, position, error))
            if len(batch) >= batch_size:
                sending, batch = batch, []
                given_up = await self._send_batch(session, many, sending, 2 * self._window, limit)

        try:
            if isinstance(messages, AsyncIterable):
                async for message in messages:
                    await take(message, 1)  # the next may be long in coming
            else:
                for message in messages:
                    await take(message, BATCH)
        except asyncio.CancelledError:
            session.send(
                [outgoing for _, outgoing in batch]
            )  # what was taken is on its way; nobody waits for it
            raise
        except BaseException:
            await self._send_batch(session, many, batch, 1, limit)
            raise
        if given_up is None:
            await self._send_batch(session, many, batch, 1, limit)
        report.failed.sort(key=lambda failed: failed.position)
        self._unroutable += report.unroutable + sum(
            isinstance(failed.error, Unroutable) for failed in report.failed
        )
        return report

    async def _publish(self, sealed: Sealed) -> None:
        try:
            session = await self._open_session(sealed.limit)
            if sealed.place.levels > self._levels and self._declare:
                await self._declare_ladder(sealed.place.levels)
        except RedriveError as failure:
            sealed.ended(failure)
            raise
        error = await session.send_one(sealed)
        sealed.ended(error)
        if isinstance(error, Unroutable):
            self._unroutable += 1
            if not sealed.mandatory:
                self._unheard.tell([sealed.envelope.routing_key])
                return
        if error is not None:
            self._levels = 0  # whatever it was, a delay's way may be gone
            raise error

    async def close(self) -> None:
        """Closes the connection. What other tasks still wait for is not confirmed any more."""
        self._closed = True
        session, self._session = self._session, None
        if session is not None:
            await session.close()

    async def __aenter__(self) -> Self:
        try:
            await self._open_session(self._timeout)
        except BaseException:
            # Nobody will close what goes on trying.
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
        """Declares what a delay needs; of tasks that need the same, one does."""
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
        """Sends a batch and waits until fewer than `most_open` are unconfirmed; where that takes
        too long, gives up on all."""
        many.add(batch)
        session.send([outgoing for _, outgoing in batch])
        in_time = await many.in_flight.wait_until_below(most_open, limit)
        self._unheard.tell(many.take_unheard())
        if in_time:
            return None
        many.withdraw(lambda outgoing: session.timeout_of(outgoing, limit))
        return BrokerUnavailable(
            self._connector.url.address,
            f"it confirmed nothing for {limit:g} s",
            "Publish the rest when it is back.",
        )

    def _publishing_here(self) -> PublishingConnection:
        """The connection for publishing in this event loop."""
        loop = running_loop()
        if self._publishing is None or self._publishing[0] is not loop:
            self._publishing = loop, publishing_connection(self._connector)
        return self._publishing[1]

    async def _open_session(self, timeout: float) -> "_Session":
        self._belongs_here()
        self._check_open(self._closed)
        loop = running_loop()
        if (
            self._session is not None
            and self._session.loop is not loop
            and not self._session.loop.is_closed()
        ):
            raise ConfigurationError(
                "the publisher belongs to another event loop, which still runs",
                "Make one in each event loop.",
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
    """A publisher's share in the connection that publishes."""

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
        """Waits for the first connection; raises why there is none."""
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
        """Publishes a batch."""
        self._outbox.enqueue(batch)
        self._outbox.pump()

    async def send_one(self, sealed: Sealed) -> RedriveError | None:
        """Publishes a message, and waits until it is settled; what other tasks publish in this
        moment goes with it."""
        future: asyncio.Future[RedriveError | None] = self.loop.create_future()

        def settled(_: Outgoing, error: RedriveError | None) -> None:
            if not future.done():
                future.set_result(error)

        outgoing = sealed.outgoing(settled)
        self._outbox.enqueue([outgoing])
        if not self._pumping:
            self._pumping = True
            self.loop.call_soon(self._pump)
        timer = self.loop.call_later(
            sealed.limit, lambda: settled(outgoing, self.timeout_of(outgoing, sealed.limit))
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
        """Closes the connection, where nobody else uses it."""
        self._link.close()
        await self._ended.wait()

    def ended(self) -> None:
        """The link ends: nothing is confirmed any more."""
        super().ended()
        self._publishing.when_closed(self._ended.set)

    def _pump(self) -> None:
        self._pumping = False
        self._outbox.pump()

    def _begun(self) -> None:
        self._began.set()
