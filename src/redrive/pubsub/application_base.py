"""A service's subscribers and its publisher as one thing: what the apps of both shells have in
common."""

import contextlib
import inspect
import logging
import sys
import threading
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import (
    TYPE_CHECKING,
    ClassVar,
    Generic,
    NamedTuple,
    Protocol,
    Self,
    TypeVar,
    Unpack,
    cast,
    overload,
)

from redrive.errors import ConfigurationError
from redrive.pubsub.codec import Codec, check_codec
from redrive.pubsub.handler import name_of
from redrive.pubsub.lifecycle import BrokerAccess, default_name
from redrive.pubsub.middleware import AsyncShell, BlockingShell
from redrive.pubsub.publisher_base import DEFAULT_TIMEOUT, PublisherBase
from redrive.pubsub.publishing_connection import SUFFIX
from redrive.pubsub.router_base import AnySubscriber, Route, RouterBase, chosen_routes
from redrive.pubsub.service_connection import Address
from redrive.pubsub.subscriber_base import SubscriberOptions
from redrive.pubsub.tls import ContextSource
from redrive.pubsub.url import Credentials, seconds_of
from redrive.pubsub.work import ConsumeOptions
from redrive.topology.durations import Duration, duration_of
from redrive.topology.names import ExchangeFamily

if TYPE_CHECKING:
    from redrive.pubsub.app_settings import Settings

logger = logging.getLogger("redrive")

AnyPublisher = TypeVar("AnyPublisher", bound=PublisherBase)
_Lifespan = TypeVar("_Lifespan", bound=Callable[..., object])
_App = TypeVar("_App", bound=BlockingShell)
_AsyncApp = TypeVar("_AsyncApp", bound=AsyncShell)
_LifespanIterator = TypeVar("_LifespanIterator", bound=Iterator[object])
_AsyncLifespanIterator = TypeVar("_AsyncLifespanIterator", bound=AsyncIterator[object])


class AppAddress(NamedTuple):
    """Where an app's connections go, and what the environment says of them; None is not said."""

    url: Address
    name: str
    grace: float | None = None
    patience: timedelta | None = None
    publish_timeout: Duration = DEFAULT_TIMEOUT


class AppRun(NamedTuple, Generic[AnySubscriber]):
    """What an app runs: each subscriber, and how its queue is consumed."""

    place: AppAddress
    subscribers: list[tuple[AnySubscriber, ConsumeOptions]]

    @property
    def sharing(self) -> list[tuple[AnySubscriber, ConsumeOptions]]:
        """Those that share a connection: all but the ordered ones. These leave with their
        connection, which keeps the order of what they hold."""
        return [one for one in self.subscribers if not one[0].subscription.ordered]

    @property
    def patience(self) -> timedelta:
        """How long a broker that does not answer is waited for at the start."""
        return max((options.patience for _, options in self.sharing), default=timedelta(0))

    @property
    def tags(self) -> dict[str, str] | None:
        """The tags that each queue's subscriber asks for; None where none does."""
        return {
            one.subscription.queue: one.subscription.tags.expression
            for one, _ in self.sharing
            if one.subscription.tags is not None
        } or None

    @property
    def policies(self) -> dict[str, str]:
        """The retry policy of each queue, in words."""
        return {queue: policy for one, _ in self.sharing for queue, policy in one._policies.items()}


class Running(Protocol[AnySubscriber]):
    """One run of an app."""

    subscribers: list[AnySubscriber]


class AppBase(RouterBase[AnySubscriber], Generic[AnySubscriber, AnyPublisher]):
    """A service's subscribers, which share connections, and its publisher."""

    _publisher: ClassVar[type[PublisherBase]]
    _running: "Running[AnySubscriber] | None" = None

    def __init__(
        self,
        url: "Address | Settings | None" = None,
        exchange: str | ExchangeFamily = "master",
        *,
        name: str | None = None,
        credentials: Credentials | None = None,
        ssl_context: ContextSource | None = None,
        publish_timeout: Duration | None = None,
        codec: Codec = "json",
        **defaults: Unpack[SubscriberOptions],
    ) -> None:
        """Args:
            url: the broker's address, `amqp://user:password@host:5672/virtual-host`, or a
                connection of aio-pika's, whose address, login and TLS settings are used; or
                `Settings`; None for those of the environment as it is when the app starts.
            exchange: the main exchange, or a whole family with suffixes of its own.
            name: what the broker's management page shows of its connections.
            credentials: asked for user and password at each connection, in place of the URL's.
            ssl_context: an ssl.SSLContext, or a function that makes one at each connection, in
                place of the URL's certificate files.
            publish_timeout: how long its publisher waits for a confirm: 30 seconds where neither
                this nor a setting says otherwise.
            codec: how its publisher writes bodies: `json`, or `php-envelope`.
            defaults: options of its subscribers, as `subscriber` takes them, where these name no
                others.

        Raises:
            ConfigurationError: an argument can't be.
        """
        super().__init__(exchange, **defaults)
        check_codec(codec)
        if publish_timeout is not None:
            seconds_of(publish_timeout)
        self._url = url
        self._name = name
        self._credentials = credentials
        self._ssl_context = ssl_context
        self._publish_timeout = publish_timeout
        self._codec: Codec = codec
        self._starting = threading.Lock()
        self._lifespans: list[Callable[..., object]] = []
        self._opened: AnyPublisher | None = None
        if url is not None and not _is_settings(url):
            # now, and not only when it starts: a URL that can't be is the caller's mistake
            BrokerAccess(cast("Address", url), self._shown_name, credentials, ssl_context)

    @property
    def subscribers(self) -> tuple[AnySubscriber, ...]:
        """Its subscribers, those of its routers included."""
        return tuple(route.subscriber for route in self._routes())

    @property
    def _probed(self) -> Sequence[AnySubscriber]:
        """Its subscribers that run, which may be some; all of them while it does not run."""
        running = self._running
        return self.subscribers if running is None else running.subscribers

    @property
    def publisher(self) -> AnyPublisher:
        """Its publisher, on the connection for what publishes. A message that it publishes while
        another is handled carries that one's correlation id, or where it has none its id.

        Raises:
            ConfigurationError: the app has no URL, or a setting can't be read.
        """
        if self._opened is None:
            place = self._place()
            self._opened = cast(
                "AnyPublisher",
                self._publisher(
                    place.url,
                    self._exchange,
                    timeout=place.publish_timeout,
                    declare=self._defaults.get("declare", True),
                    connection_name=place.name + SUFFIX,
                    credentials=self._credentials,
                    ssl_context=self._ssl_context,
                    codec=self._codec,
                    carry_correlation=True,
                ),
            )
        return self._opened

    @overload
    def lifespan(
        self: _App, function: Callable[[_App], _LifespanIterator]
    ) -> Callable[[_App], _LifespanIterator]: ...

    @overload
    def lifespan(
        self: _AsyncApp, function: Callable[[_AsyncApp], _AsyncLifespanIterator]
    ) -> Callable[[_AsyncApp], _AsyncLifespanIterator]: ...

    def lifespan(self, function: _Lifespan) -> _Lifespan:
        """Has a generator function with one `yield` run around the app's life; a decorator.

        It gets the app. What is before the `yield` runs before a message is consumed, and what is
        behind it once no handler runs any more. The first that is given is the outermost. Where one
        raises, the app does not start.

        Raises:
            ConfigurationError: it is no generator function, or an async one where handlers are not,
                or the reverse.
        """
        is_one = (
            inspect.isasyncgenfunction if self._handlers_are_async else inspect.isgeneratorfunction
        )
        if not is_one(function):
            raise ConfigurationError(
                f"the lifespan {name_of(function)!r} is not "
                f"{'an async generator' if self._handlers_are_async else 'a generator'} function",
                "Give it one `yield`, where the app runs.",
            )
        self._lifespans.append(function)
        return function

    @contextlib.contextmanager
    def override(
        self, url: Address | None = None, *, retry_delay: Duration | None = None
    ) -> Iterator[Self]:
        """For tests: as long as the block, another broker, and the same delay before each retry of
        each subscriber. Start the app within it.

        Raises:
            ConfigurationError: the delay can't be.
        """
        before, self._url = self._url, self._url if url is None else url
        publisher, self._opened = self._opened, None
        subscriptions = [(one, one.subscription) for one in self.subscribers]
        try:
            if retry_delay is not None:
                delay = duration_of(retry_delay, "the retry delay")
                for one, subscription in subscriptions:
                    one.subscription = replace(
                        subscription, retry=subscription.retry.with_delay(delay)
                    )
            yield self
        finally:
            self._url, self._opened = before, publisher
            for one, subscription in subscriptions:
                one.subscription = subscription

    def _run_of(self, only: Sequence[str] | None) -> AppRun[AnySubscriber]:
        """What is to run."""
        routes = chosen_routes(list(self._routes()), only)
        place = self._place()
        for route in routes:
            route.subscriber._use_broker(place.url, self._credentials, self._ssl_context)
        return AppRun(place, [(one.subscriber, _with_settings(one, place)) for one in routes])

    @property
    def _shown_name(self) -> str:
        return self._name or default_name("app")

    def _place(self) -> AppAddress:
        url = self._url
        if url is not None and not _is_settings(url):
            timeout = self._publish_timeout
            return AppAddress(
                cast("Address", url),
                self._shown_name,
                publish_timeout=DEFAULT_TIMEOUT if timeout is None else timeout,
            )
        from redrive.pubsub.app_settings import settings_of_environment

        settings = settings_of_environment() if url is None else cast("Settings", url)
        timeout = self._publish_timeout or settings.publish_timeout
        return AppAddress(
            settings.url.get_secret_value(),
            self._name or settings.connection_name or self._shown_name,
            settings.grace,
            None if settings.patience is None else timedelta(seconds=settings.patience),
            DEFAULT_TIMEOUT if timeout is None else timeout,
        )


def lifespan_failed(
    function: Callable[..., object], when: str, error: Exception
) -> ConfigurationError:
    """Why an app does not start, or did not end well: its lifespan has raised."""
    logger.error("the lifespan %r failed at the %s", name_of(function), when, exc_info=error)
    return ConfigurationError(
        f"the lifespan {name_of(function)!r} failed at the {when}: {error!r}",
        "The log has its traceback.",
    )


def _with_settings(route: Route[AnySubscriber], place: AppAddress) -> ConsumeOptions:
    """How a subscriber's queue is consumed; the environment counts where the program has not
    chosen."""
    options = route.options()
    if place.grace is not None and "grace" not in route.given:
        options = replace(options, grace=place.grace)
    if place.patience is not None and "patience" not in route.given:
        options = replace(options, patience=place.patience)
    return options


def _is_settings(value: object) -> bool:
    """Whether it is `Settings`; where nobody has imported these, nothing is."""
    module = sys.modules.get("redrive.pubsub.app_settings")
    return module is not None and isinstance(value, module.Settings)
