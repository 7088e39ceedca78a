"""Base of the apps of both shells: a service's subscribers and its publisher together."""

import contextlib
import inspect
import logging
import sys
import threading
from abc import abstractmethod
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
from redrive.topology.rates import Rate

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
    """Where an app connects, with the connection settings; None for those that are not set."""

    url: Address
    name: str
    grace: float | None = None
    patience: timedelta | None = None
    publish_timeout: Duration = DEFAULT_TIMEOUT


class AppRun(NamedTuple, Generic[AnySubscriber]):
    """The subscribers that an app runs, each with the options for consuming its queue."""

    place: AppAddress
    subscribers: list[tuple[AnySubscriber, ConsumeOptions]]

    @property
    def sharing(self) -> list[tuple[AnySubscriber, ConsumeOptions]]:
        """Subscribers that share a connection: all except ordered ones.

        An ordered subscriber drops its own connection when it stops, which keeps the order of the
        messages that it holds.
        """
        return [one for one in self.subscribers if not one[0].subscription.ordered]

    @property
    def patience(self) -> timedelta:
        """How long to wait at startup for a broker that does not answer."""
        return max((options.patience for _, options in self.sharing), default=timedelta(0))

    @property
    def tags(self) -> dict[str, str] | None:
        """What each subscriber selects messages by, by queue; None if all take all."""
        return {
            one.subscription.queue: selection
            for one, _ in self.sharing
            if (selection := one.subscription.selection) is not None
        } or None

    @property
    def policies(self) -> dict[str, str]:
        """Description of the retry policy of each queue."""
        return {queue: policy for one, _ in self.sharing for queue, policy in one._policies.items()}


class Running(Protocol[AnySubscriber]):
    """A running app."""

    subscribers: list[AnySubscriber]


class AppBase(RouterBase[AnySubscriber], Generic[AnySubscriber, AnyPublisher]):
    """The subscribers of a service, which share connections, and its publisher."""

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
            url: the broker's address, `amqp://user:password@host:5672/virtual-host`; or an aio-pika
                connection, whose address, login and TLS settings are used; or `Settings`. With
                None, settings are read from the environment when the app starts.
            exchange: the main exchange, or an exchange family with its own suffixes.
            name: the name of its connections on the broker's management page.
            credentials: called for user and password at each connection, instead of using those in
                the URL.
            ssl_context: an ssl.SSLContext, or a function that makes one at each connection;
                replaces the certificate files in the URL.
            publish_timeout: how long its publisher waits for a confirm: 30 seconds unless this or a
                setting says otherwise.
            codec: how its publisher encodes bodies: `json` or `php-envelope`.
            defaults: default options for its subscribers; the same as those of `subscriber`, which
                override them.

        Raises:
            ConfigurationError: an argument is invalid.
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
            # check now rather than at startup: an invalid URL is the caller's mistake
            BrokerAccess(cast("Address", url), self._shown_name, credentials, ssl_context)

    @abstractmethod
    def declare(self) -> object:
        """Declare everything that the subscribers need. Calling it again changes nothing.

        Raises:
            TopologyMismatch, PermissionDenied, BrokerUnavailable, ConfigurationError: as a
                subscriber's `declare`.
        """

    @abstractmethod
    def start(self, only: Sequence[str] | None = None) -> object:
        """Enter the lifespans and return once all queues exist and are being consumed.

        If one of them fails, nothing is consumed and the lifespans are exited again.

        Args:
            only: queues of the subscribers to run; None for all of them.

        Raises:
            ConfigurationError: the app is already running or has no URL, a subscriber has no
                handler, or a lifespan raised.
            TopologyMismatch, PermissionDenied, BrokerUnavailable: as a subscriber's `declare`; if
                the broker does not answer, the app waits as long as the subscribers' patience
                allows.
        """

    @abstractmethod
    def run(self, only: Sequence[str] | None = None) -> object:
        """Run until `stop`, SIGTERM or SIGINT, or until a subscriber fails.

        Then all subscribers stop taking messages at the same time, finish and ack what is running,
        and the lifespans are exited. A second signal stops at once.

        Args:
            only: queues of the subscribers to run; None for all of them.

        Raises:
            TopologyMismatch, PermissionDenied, BrokerUnavailable, ConfigurationError: as `start`.
        """

    def stop(self) -> None:
        """Make all subscribers stop taking messages; `run` returns once running handlers have
        finished.

        Can be called from any thread, and from a handler.
        """
        running = self._running
        if running is not None:
            for subscriber in running.subscribers:
                subscriber.stop()

    def abort(self) -> None:
        """Drop the connections at once. Messages in running handlers are redelivered; handlers that
        are awaited are cancelled."""
        running = self._running
        if running is not None:
            for subscriber in running.subscribers:
                subscriber.abort()

    @abstractmethod
    def pause(
        self,
        queue: str,
        *,
        reason: str = "",
        duration: Duration | None = None,
        rate: Rate | None = None,
    ) -> object:
        """Pause a subscription: its workers take no more messages, wherever they run.

        Workers notice within two seconds, finish what is running, and return the rest to the queue
        uncounted. Workers that start later keep to it. The pause is kept by the broker, in the
        stream `master.control`.

        Args:
            queue: its main queue, of this app or another one.
            reason: why, for people.
            duration: how long; None until `resume`.
            rate: go slower instead: messages per second of all workers together, or a text such as
                `10/s`.

        Raises:
            ConfigurationError: an argument is invalid, or the app has no URL.
            PermissionDenied: the user may not write to the stream.
            BrokerUnavailable: no broker answered.
        """

    @abstractmethod
    def resume(self, queue: str, *, reason: str = "") -> object:
        """End a pause, or a rate: the workers of a subscription take messages as usual.

        Args:
            queue: its main queue.
            reason: why, for people.

        Raises:
            ConfigurationError, PermissionDenied, BrokerUnavailable: as `pause`.
        """

    @abstractmethod
    def close(self) -> object:
        """Stop as `stop` does, wait for it, exit the lifespans and close the publisher.

        Calling it again does nothing.

        Raises:
            ConfigurationError: a lifespan raised.
        """

    @property
    def subscribers(self) -> tuple[AnySubscriber, ...]:
        """Its subscribers, including those of its routers."""
        return tuple(route.subscriber for route in self._routes())

    @property
    def _probed(self) -> Sequence[AnySubscriber]:
        """The subscribers that run, possibly only some of them; all of them while the app is
        stopped."""
        running = self._running
        return self.subscribers if running is None else running.subscribers

    @property
    def publisher(self) -> AnyPublisher:
        """The app's publisher, which uses the connection for publishing.

        A message published while another is being handled carries the correlation id of that
        message, or its message id if it has no correlation id.

        Raises:
            ConfigurationError: the app has no URL, or a setting is invalid.
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
        """Run a generator function with one `yield` around the app's life; a decorator.

        The function gets the app. Code before the `yield` runs before any message is consumed, code
        after it once no handler is running. The first one registered is the outermost. If one
        raises an error, the app does not start.

        Raises:
            ConfigurationError: the function is not a generator function, or it is async in an app
                with plain handlers, or the reverse.
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
        """Use another broker or another retry delay inside a `with` block; for tests.

        Start the app within the block.

        Args:
            url: the broker to use instead.
            retry_delay: the delay before each retry of each subscriber.

        Raises:
            ConfigurationError: the delay is invalid.
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

    def _family_of(self, queue: str) -> ExchangeFamily:
        """Return the exchange family of a queue: that of its subscriber here, or the app's."""
        known = {one.subscription.queue: one.subscription.exchanges for one in self.subscribers}
        return known.get(queue, self._exchange)

    def _run_of(self, only: Sequence[str] | None) -> AppRun[AnySubscriber]:
        """Return the subscribers to run, with their options."""
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
        given = self._publish_timeout
        timeout = settings.publish_timeout if given is None else given
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
    """Log that a lifespan raised, and return the error for the caller to raise."""
    logger.error("the lifespan %r failed at the %s", name_of(function), when, exc_info=error)
    return ConfigurationError(
        f"the lifespan {name_of(function)!r} failed at the {when}: {error!r}",
        "The log has its traceback.",
    )


def _with_settings(route: Route[AnySubscriber], place: AppAddress) -> ConsumeOptions:
    """Return the options for consuming a queue: settings apply where the program has not chosen."""
    options = route.options()
    if place.grace is not None and "grace" not in route.given:
        options = replace(options, grace=place.grace)
    if place.patience is not None and "patience" not in route.given:
        options = replace(options, patience=place.patience)
    return options


def _is_settings(value: object) -> bool:
    """Check for `Settings` without importing them: unless they are imported, nothing can be one."""
    module = sys.modules.get("redrive.pubsub.app_settings")
    return module is not None and isinstance(value, module.Settings)
