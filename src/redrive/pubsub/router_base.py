"""Groups of subscribers, independent of a broker: the base of routers and apps of both shells."""

import inspect
from collections.abc import Iterator, Sequence
from typing import ClassVar, Generic, NamedTuple, Self, TypeVar, Unpack

from redrive.errors import ConfigurationError
from redrive.pubsub.middleware import MiddlewareRegistry, surrounded
from redrive.pubsub.subscriber_base import SubscriberBase, SubscriberOptions, options_in_words
from redrive.pubsub.work import ConsumeOptions
from redrive.topology.names import ExchangeFamily, family_of

AnySubscriber = TypeVar("AnySubscriber", bound=SubscriberBase)


class Route(NamedTuple, Generic[AnySubscriber]):
    """A subscriber within an app.

    Args:
        subscriber: the subscriber.
        given: names of the options that the program has set for it.
        places: the app and routers that contain it, the outermost first.
    """

    subscriber: AnySubscriber
    given: frozenset[str]
    places: tuple[MiddlewareRegistry, ...]

    @property
    def queue(self) -> str:
        """The subscriber's queue."""
        return self.subscriber.subscription.queue

    def options(self) -> ConsumeOptions:
        """Return the options for consuming its queue, with the middleware and hooks around it."""
        return surrounded(self.subscriber._options, [*self.places, self.subscriber])


class RouterBase(MiddlewareRegistry, Generic[AnySubscriber]):
    """Subscribers of one shell, with the middleware and hooks around all of them."""

    _subscriber: ClassVar[type[SubscriberBase]]

    def __init__(
        self, exchange: str | ExchangeFamily = "master", **defaults: Unpack[SubscriberOptions]
    ) -> None:
        """Args:
            exchange: the main exchange of its subscribers, or an exchange family.
            defaults: default options for its subscribers; the same as those of `subscriber`, which
                override them.

        Raises:
            ConfigurationError: an argument is invalid.
        """
        self._exchange = family_of(exchange)
        for name, value in defaults.items():  # one by one: a subscriber may override some
            self._subscriber._check_option(name, value)
        self._defaults = defaults
        self._own: list[tuple[AnySubscriber, frozenset[str]]] = []
        self._routers: list[RouterBase[AnySubscriber]] = []

    def subscriber(
        self,
        queue: str,
        /,
        *routing_keys: str,
        exchange: str | ExchangeFamily | None = None,
        **options: Unpack[SubscriberOptions],
    ) -> AnySubscriber:
        """Make a subscriber, which can be used as a decorator of its handler.

            @app.subscriber("ucenter@user", "user.*")
            def on_user(user: UserCreated) -> None: ...

        Args:
            queue: the queue, by convention `service@subscription`.
            routing_keys: binding patterns (`user.*`, `order.#`).
            exchange: the main exchange, or an exchange family, if it is not the router's.
            options: the following, each with the default used if neither this call nor the app or
                router names one:

        Raises:
            ConfigurationError: an argument is invalid, or another subscriber has this queue.
        """
        chosen: SubscriberOptions = {**self._defaults, **options}
        if any(queue == one.subscription.queue for one, _ in self._own):
            raise _twice(queue)
        family = self._exchange if exchange is None else exchange
        made = self._subscriber(None, queue, routing_keys, family, **chosen)
        self._own.append((made, frozenset(chosen)))  # type: ignore[arg-type]  # of the shell's class
        return made  # type: ignore[return-value]

    def include(self, router: "RouterBase[AnySubscriber]") -> Self:
        """Add a router's subscribers; return self.

        Raises:
            ConfigurationError: the router is of the other shell, or already included.
        """
        if not isinstance(router, RouterBase) or router._subscriber is not self._subscriber:
            raise ConfigurationError(
                f"{type(self).__name__} can't include {router!r:.80}",
                f"Include {'an AsyncRouter' if self._handlers_are_async else 'a Router'}.",
            )
        if router is self or self in router._all_routers() or router in self._all_routers():
            raise ConfigurationError(
                f"{router!r} is included already", "Include each router once, in one place."
            )
        self._routers.append(router)
        return self

    def _all_routers(self) -> "Iterator[RouterBase[AnySubscriber]]":
        for router in self._routers:
            yield router
            yield from router._all_routers()

    def _routes(
        self, around: tuple[MiddlewareRegistry, ...] = ()
    ) -> Iterator[Route[AnySubscriber]]:
        places = (*around, self)
        for subscriber, given in self._own:
            yield Route(subscriber, given, places)
        for router in self._routers:
            yield from router._routes(places)

    def __repr__(self) -> str:
        queues = ", ".join(repr(route.queue) for route in self._routes())
        return f"<{type(self).__name__} of {queues or 'no subscribers'}>"


def _with_options(doc: str | None) -> str | None:
    """Insert the options of subscribers into a docstring that refers to them."""
    if doc is None:  # python -OO
        return None
    before, mark, after = inspect.cleandoc(doc).partition("names one:\n")
    return f"{before}{mark}{options_in_words(' ' * 12)}\n{after}"


RouterBase.subscriber.__doc__ = _with_options(RouterBase.subscriber.__doc__)


def chosen_routes(
    routes: Sequence[Route[AnySubscriber]], only: Sequence[str] | None
) -> list[Route[AnySubscriber]]:
    """Return the subscribers of these queues, or all; check that each could start.

    Raises:
        ConfigurationError: a queue has no subscriber or two, or a subscriber has no handler.
    """
    queues = [route.queue for route in routes]
    for queue in queues:
        if queues.count(queue) > 1:
            raise _twice(queue)
    for queue in only or ():
        if queue not in queues:
            raise ConfigurationError(
                f"the app has no subscriber of queue {queue!r}",
                f"It has {', '.join(map(repr, queues)) or 'none'}.",
            )
    chosen = [route for route in routes if only is None or route.queue in only]
    for route in chosen:
        route.subscriber._check_has_handler()
    return chosen


def _twice(queue: str) -> ConfigurationError:
    return ConfigurationError(
        f"queue {queue!r} has two subscribers",
        "Give one subscriber both handlers: @subscriber.handler with a routing key each.",
    )
