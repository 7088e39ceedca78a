"""A blocking service: its subscribers and its publisher, on threads."""

import contextlib
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import ClassVar, Literal, Self, cast

from typing_extensions import override

from redrive.errors import ConfigurationError
from redrive.pubsub.application_base import AppBase, AppRun, lifespan_failed
from redrive.pubsub.blocking.connection import Connector, Link
from redrive.pubsub.blocking.control import send
from redrive.pubsub.blocking.publisher import Publisher
from redrive.pubsub.blocking.subscriber import Subscriber, check_some, run_started
from redrive.pubsub.control_request import control_for
from redrive.pubsub.lifecycle import CLOSING_TIME
from redrive.pubsub.publishing_connection import PublishingConnection
from redrive.pubsub.router_base import RouterBase
from redrive.pubsub.shared_link import SharedLink
from redrive.topology.durations import Duration
from redrive.topology.rates import Rate


class Router(RouterBase[Subscriber]):
    """Subscribers grouped without a broker, for an app to include.

    router = Router()

    @router.subscriber("ucenter@user", "user.*")
    def on_user(user: UserCreated) -> None: ...

    app.include(router)
    """

    _handlers_are_async: ClassVar[Literal[False]] = False
    _subscriber = Subscriber


class App(AppBase[Subscriber, Publisher]):
    """A service: its subscribers and its publisher.

        app = App("amqp://localhost/")

        @app.subscriber("ucenter@user", "user.*")
        def on_user(user: UserCreated) -> None:
            app.publisher.publish({"id": user.id}, "welcome.send")

        app.run()

    The subscribers share one connection, each with its own channels, so that a broken channel
    affects only its subscriber. An ordered subscriber has a connection of its own. The publisher
    uses another connection, because the broker throttles publishers per connection.

    `with app:` runs it for the duration of the block, next to other code.
    """

    _handlers_are_async: ClassVar[Literal[False]] = False
    _subscriber = Subscriber
    _publisher = Publisher
    _running: "_Running | None" = None

    @override
    def declare(self) -> None:
        for subscriber, _ in self._run_of(None).subscribers:
            subscriber.declare()

    @override
    def start(self, only: Sequence[str] | None = None) -> None:
        self._begin(only)
        running = cast("_Running", self._running)
        try:
            for subscriber in running.subscribers:
                subscriber._wait_until_known()
            for subscriber in running.subscribers:
                if subscriber.stopped():
                    subscriber.wait()
        except BaseException:
            self.close()
            raise

    def _begin(self, only: Sequence[str] | None) -> None:
        """Enter the lifespans and start consuming."""
        with self._starting:
            self._enter(only)()

    def _enter(self, only: Sequence[str] | None) -> Callable[[], None]:
        """Enter the lifespans, which may take long, and return a function that starts consuming."""
        if self._running is not None:
            raise ConfigurationError("the app is already running", "Close it first.")
        run = self._run_of(only)
        running = _Running()

        def begin() -> None:
            try:
                running.begin(run, self._connector_of(run), self.publisher._publishing)
            except BaseException:
                running.lifespans.close()
                raise
            self._running = running

        try:
            for function in self._lifespans:
                running.lifespans.enter_context(lifespan_context(function, self))
        except BaseException:
            running.lifespans.close()
            raise
        return begin

    @override
    def run(self, only: Sequence[str] | None = None) -> None:
        subscribers = [one for one, _ in self._run_of(only).subscribers]
        check_some(subscribers)
        try:
            with self._starting:
                begin = self._enter(only)
            run_started(subscribers, begin)
        finally:
            self.close()

    @override
    def pause(
        self,
        queue: str,
        *,
        reason: str = "",
        duration: Duration | None = None,
        rate: Rate | None = None,
    ) -> None:
        control = control_for(queue, "pause", reason=reason, for_=duration, rate=rate)
        send(self._control_connector(), self._family_of(queue), control)

    @override
    def resume(self, queue: str, *, reason: str = "") -> None:
        control = control_for(queue, "resume", reason=reason)
        send(self._control_connector(), self._family_of(queue), control)

    def _control_connector(self) -> Connector:
        place = self._place()
        return Connector(place.url, f"{place.name} control", self._credentials, self._ssl_context)

    @property
    def ready(self) -> bool:
        """Whether all of its subscribers are connected and consuming."""
        running = self._running
        return running is not None and all(one.ready for one in running.subscribers)

    @override
    def close(self) -> None:
        self.stop()
        running, self._running = self._running, None
        try:
            if running is not None:
                running.end()
        finally:
            publisher, self._opened = self._opened, None
            if publisher is not None:
                publisher.close()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        running = self._running
        self.close()
        if kind is None and running is not None:
            for subscriber in running.subscribers:
                subscriber.wait()

    def _connector_of(self, run: AppRun[Subscriber]) -> Connector:
        connector = Connector(run.place.url, run.place.name, self._credentials, self._ssl_context)
        connector.tags = run.tags
        connector.policies = run.policies
        return connector


class _Running:
    """One run of an app, from start to end."""

    def __init__(self) -> None:
        self.lifespans = contextlib.ExitStack()
        self.subscribers: list[Subscriber] = []
        self._connection_ended = threading.Event()

    def begin(
        self, run: AppRun[Subscriber], connector: Connector, publishing: PublishingConnection
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

    def end(self) -> None:
        """Wait until everything that was told to stop has stopped, then exit the lifespans."""
        try:
            for subscriber in self.subscribers:
                while not subscriber.stopped(1.0):
                    pass  # signal handlers run between two waits
            self._connection_ended.wait(2 * CLOSING_TIME)
        finally:
            self.lifespans.close()


@contextlib.contextmanager
def lifespan_context(function: Callable[..., object], app: App) -> Iterator[None]:
    """Run a lifespan, converting its errors."""
    context = contextlib.contextmanager(cast("Callable[..., Iterator[object]]", function))(app)
    try:
        context.__enter__()
    except Exception as error:
        raise lifespan_failed(function, "start", error) from error
    try:
        yield
    finally:  # also if an inner one has failed
        try:
            context.__exit__(None, None, None)
        except Exception as error:
            raise lifespan_failed(function, "end", error) from error
