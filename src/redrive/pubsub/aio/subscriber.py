"""Subscribe on an event loop: a queue, an async handler, and what happens when it fails."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from types import TracebackType
from typing import ClassVar, Literal, Self

from typing_extensions import override

from redrive.errors import ConfigurationError
from redrive.pubsub.aio.connection import Connector
from redrive.pubsub.aio.declarer import declare
from redrive.pubsub.aio.handler_run import TaskEngine
from redrive.pubsub.middleware import surrounded
from redrive.pubsub.publishing_connection import PublishingConnection
from redrive.pubsub.service_connection import Address
from redrive.pubsub.shared_link import SharedLink
from redrive.pubsub.signals import on_the_loop
from redrive.pubsub.subscriber_base import SubscriberBase
from redrive.pubsub.tls import ContextSource
from redrive.pubsub.url import Credentials
from redrive.pubsub.work import ConsumeOptions


class AsyncSubscriber(SubscriberBase):
    """A queue with an async handler; failed messages are retried, and set aside if they keep
    failing.

        subscriber = AsyncSubscriber("amqp://localhost/", "ucenter@user", ["user.*"])

        @subscriber.handler
        async def on_user(user: UserCreated) -> None: ...

        await subscriber.run()

    `async with subscriber:` runs it for the duration of the block, next to other code: in a web
    framework's lifespan, for instance. The block is only entered once the queue exists and is being
    consumed.

    A handler that returns has handled the message. If it raises, it has failed, and the message
    comes back after the policy's delay. A message is handled at least once: if a worker or the
    connection dies before the ack, or if the task that runs the handler is cancelled, the message
    is delivered again.

    A subscriber belongs to the event loop that it is started in.
    """

    _handlers_are_async: ClassVar[Literal[True]] = True
    _connector: Connector | None = None
    _processing: TaskEngine | None = None

    def _make_connector(
        self,
        url: Address,
        name: str,
        credentials: Credentials | None,
        ssl_context: ContextSource | None,
    ) -> None:
        self._connector = Connector(url, name, credentials, ssl_context)

    @property
    def access(self) -> Connector:
        """The broker and the login for it.

        Raises:
            ConfigurationError: the subscriber has no broker yet.
        """
        if self._connector is None:
            raise self._no_broker_yet()
        return self._connector

    @override
    async def declare(self) -> None:
        await declare(self.access, self.subscription)

    @override
    async def start(self) -> None:
        self._begin(None, surrounded(self._options, [self]))

    def _begin(
        self,
        shared: SharedLink | None,
        options: ConsumeOptions,
        publishing: PublishingConnection | None = None,
    ) -> None:
        """Start consuming on shared connections, or on its own if they are None."""
        self._check_may_start(self.stopped())
        self._processing = TaskEngine(
            self.subscription,
            self.access,
            self._handlers,
            options,
            dropped=self._dropped,
            longest=self._warn_of_long_waits,
            shared=shared,
            publishing=publishing,
        )
        self._processing.start()

    @override
    async def run(self) -> None:
        await run(self)

    @override
    def stop(self) -> None:
        if self._processing is not None:
            self._processing.stop()

    @override
    def abort(self) -> None:
        if self._processing is not None:
            self._processing.abort()

    @property
    def ready(self) -> bool:
        """Whether it is connected and consuming."""
        return self._processing is not None and self._processing.consuming

    def stopped(self) -> bool:
        """Return whether it is not running."""
        return self._processing is None or self._processing.finished.is_set()

    async def _wait_until_known(self) -> None:
        """Wait until it consumes, or it is clear that it will not."""
        if self._processing is not None:
            await self._processing.known.wait()

    @override
    async def wait(self, timeout: float | None = None) -> bool:
        processing = self._processing
        if processing is None:
            return True
        try:
            async with asyncio.timeout(timeout):
                await processing.finished.wait()
        except TimeoutError:
            return False
        if processing.failure is not None:
            raise processing.failure
        return True

    async def __aenter__(self) -> Self:
        await self.start()
        try:
            # From here on its queue exists: what is published in the block reaches it.
            await self._wait_until_known()
        except asyncio.CancelledError:
            self.stop()
            await ended(self)
            raise
        if self.stopped():
            await self.wait()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()
        await ended(self)
        if error is None:
            await self.wait()

    def __repr__(self) -> str:
        return f"<AsyncSubscriber {self._whereabouts}>"


async def run(*subscribers: AsyncSubscriber) -> None:
    """Run several subscribers in one event loop until SIGTERM or SIGINT, or until one of them stops
    or fails.

    Raises:
        RedriveError: why one of them could not run; the others were stopped.
    """

    async def start_all() -> None:
        for subscriber in subscribers:
            await subscriber.start()

    await run_started(subscribers, start_all)


async def run_started(
    subscribers: Sequence[AsyncSubscriber], start: Callable[[], Awaitable[object]]
) -> None:
    """Run subscribers, which `start` starts, in the same way as `run`."""
    if not subscribers:
        raise ConfigurationError("there is no subscriber to run", "Give at least one.")

    starting: asyncio.Future[object] | None = None
    left_at_the_start = False

    def stop_all() -> None:
        nonlocal left_at_the_start
        if starting is not None and not starting.done():
            left_at_the_start = True
            starting.cancel()
        for subscriber in subscribers:
            subscriber.stop()

    def abort_all() -> None:
        for subscriber in subscribers:
            subscriber.abort()

    with on_the_loop(stop=stop_all, abort=abort_all):
        try:
            starting = asyncio.ensure_future(start())
            try:
                await starting
            except asyncio.CancelledError:
                if not left_at_the_start:
                    raise
            if left_at_the_start:  # also if a lifespan has swallowed the cancellation
                return
            waiting = [asyncio.ensure_future(_finished(subscriber)) for subscriber in subscribers]
            try:
                await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for waits in waiting:
                    waits.cancel()
        finally:
            stop_all()
            await ended(*subscribers)
    for subscriber in subscribers:
        await subscriber.wait()


async def _finished(subscriber: AsyncSubscriber) -> None:
    if subscriber._processing is not None:
        await subscriber._processing.finished.wait()


async def ended(*subscribers: AsyncSubscriber) -> None:
    """Wait until all of them have stopped as requested; if this is cancelled, abort them."""
    try:
        for subscriber in subscribers:
            await _finished(subscriber)
    except asyncio.CancelledError:
        for subscriber in subscribers:
            subscriber.abort()
        for subscriber in subscribers:
            await _finished(subscriber)
        raise
