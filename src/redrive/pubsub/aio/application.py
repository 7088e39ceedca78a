"""An asyncio service: its subscribers and its publisher."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Sequence
from types import TracebackType
from typing import ClassVar, Literal, Self, cast

from typing_extensions import override

from redrive.errors import ConfigurationError
from redrive.pubsub.aio.connection import Connector, Link
from redrive.pubsub.aio.declarer import send_control
from redrive.pubsub.aio.publisher import AsyncPublisher
from redrive.pubsub.aio.subscriber import AsyncSubscriber, ended, run_started
from redrive.pubsub.application_base import AppBase, AppRun, lifespan_failed
from redrive.pubsub.control_request import control_for
from redrive.pubsub.lifecycle import CLOSING_TIME
from redrive.pubsub.publishing_connection import PublishingConnection
from redrive.pubsub.router_base import RouterBase
from redrive.pubsub.shared_link import SharedLink
from redrive.topology.control import Control
from redrive.topology.durations import Duration
from redrive.topology.rates import Rate


class AsyncRouter(RouterBase[AsyncSubscriber]):
    """Subscribers grouped without a broker, for an app to include.

    router = AsyncRouter()

    @router.subscriber("ucenter@user", "user.*")
    async def on_user(user: UserCreated) -> None: ...

    app.include(router)
    """

    _handlers_are_async: ClassVar[Literal[True]] = True
    _subscriber = AsyncSubscriber


class AsyncApp(AppBase[AsyncSubscriber, AsyncPublisher]):
    """An asyncio service: its subscribers and its publisher.

        app = AsyncApp("amqp://localhost/")

        @app.subscriber("ucenter@user", "user.*")
        async def on_user(user: UserCreated) -> None:
            await app.publisher.publish({"id": user.id}, "welcome.send")

        await app.run()

    The subscribers share one connection, each with its own channels, so that a broken channel
    affects only its subscriber. An ordered subscriber has a connection of its own. The publisher
    uses another connection, because the broker throttles publishers per connection.

    `async with app:` runs it for the duration of the block, next to other code: in a web
    framework's lifespan, for instance.

    An app belongs to the event loop that it is started in.
    """

    _handlers_are_async: ClassVar[Literal[True]] = True
    _subscriber = AsyncSubscriber
    _publisher = AsyncPublisher
    _running: "_Running | None" = None

    @override
    async def declare(self) -> None:
        for subscriber, _ in self._run_of(None).subscribers:
            await subscriber.declare()

    @override
    async def start(self, only: Sequence[str] | None = None) -> None:
        await self._begin(only)
        running = cast("_Running", self._running)
        try:
            for subscriber in running.subscribers:
                await subscriber._wait_until_known()
            for subscriber in running.subscribers:
                if subscriber.stopped():
                    await subscriber.wait()
        except BaseException:
            await self.close()
            raise

    async def _begin(self, only: Sequence[str] | None) -> None:
        """Enter the lifespans and start consuming."""
        if self._running is not None:
            raise ConfigurationError("the app is already running", "Close it first.")
        run = self._run_of(only)
        running = self._running = _Running()
        try:
            for function in self._lifespans:
                await running.lifespans.enter_async_context(lifespan_context(function, self))
            running.begin(run, self._connector_of(run), self.publisher._publishing_here())
        except BaseException:
            self._running = None
            await running.lifespans.aclose()
            raise

    @override
    async def run(self, only: Sequence[str] | None = None) -> None:
        subscribers = [one for one, _ in self._run_of(only).subscribers]
        try:
            await run_started(subscribers, lambda: self._begin(only))
        finally:
            await self.close()

    @override
    async def pause(
        self,
        queue: str,
        *,
        reason: str = "",
        duration: Duration | None = None,
        rate: Rate | None = None,
    ) -> None:
        control = control_for(queue, "pause", reason=reason, for_=duration, rate=rate)
        await self._send_control(control)

    @override
    async def resume(self, queue: str, *, reason: str = "") -> None:
        await self._send_control(control_for(queue, "resume", reason=reason))

    async def _send_control(self, control: Control) -> None:
        place = self._place()
        access = Connector(place.url, f"{place.name} control", self._credentials, self._ssl_context)
        await send_control(access, self._family_of(control.queue), control)

    @property
    def ready(self) -> bool:
        """Whether all of its subscribers are connected and consuming."""
        running = self._running
        return (
            running is not None
            and running.has_begun
            and all(one.ready for one in running.subscribers)
        )

    @override
    async def close(self) -> None:
        self.stop()
        running, self._running = self._running, None
        try:
            if running is not None:
                await running.end()
        finally:
            publisher, self._opened = self._opened, None
            if publisher is not None:
                await publisher.close()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        running = self._running
        await self.close()
        if kind is None and running is not None:
            for subscriber in running.subscribers:
                await subscriber.wait()

    def _connector_of(self, run: AppRun[AsyncSubscriber]) -> Connector:
        connector = Connector(run.place.url, run.place.name, self._credentials, self._ssl_context)
        connector.tags = run.tags
        connector.policies = run.policies
        return connector


class _Running:
    """One run of an app, from start to end."""

    def __init__(self) -> None:
        self.lifespans = contextlib.AsyncExitStack()
        self.subscribers: list[AsyncSubscriber] = []
        self.has_begun = False
        """Whether the lifespans have been entered and the subscribers started."""
        self._connection_ended = asyncio.Event()

    def begin(
        self, run: AppRun[AsyncSubscriber], connector: Connector, publishing: PublishingConnection
    ) -> None:
        """Start consuming."""
        for subscriber, _ in run.subscribers:
            subscriber._check_may_start(subscriber.stopped())
        sharing = [one for one, _ in run.sharing]
        shared = None
        if sharing:
            shared = SharedLink(
                connector,
                lambda listener: Link(connector, listener, patience=run.patience),
                self._connection_ended.set,
            )
        else:
            self._connection_ended.set()
        for subscriber, options in run.subscribers:
            subscriber._begin(shared if subscriber in sharing else None, options, publishing)
            self.subscribers.append(subscriber)
        if shared is not None:
            shared.start()
        self.has_begun = True

    async def end(self) -> None:
        """Wait until everything that was told to stop has stopped, then exit the lifespans."""
        try:
            await ended(*self.subscribers)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(2 * CLOSING_TIME):
                    await self._connection_ended.wait()
        finally:
            await self.lifespans.aclose()


@contextlib.asynccontextmanager
async def lifespan_context(function: Callable[..., object], app: AsyncApp) -> AsyncIterator[None]:
    """Run a lifespan, converting its errors."""
    context = contextlib.asynccontextmanager(
        cast("Callable[..., AsyncIterator[object]]", function)
    )(app)
    try:
        await context.__aenter__()
    except Exception as error:
        raise lifespan_failed(function, "start", error) from error
    try:
        yield
    finally:  # also if an inner one has failed
        try:
            await context.__aexit__(None, None, None)
        except Exception as error:
            raise lifespan_failed(function, "end", error) from error
