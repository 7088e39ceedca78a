"""Base of both subscribers: their arguments and their handlers."""

import inspect
import logging
import re
import textwrap
import threading
import uuid
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from typing import TypedDict, TypeVar, cast, overload

from redrive.errors import ConfigurationError
from redrive.pubsub.body import Decoder
from redrive.pubsub.decoders import checked_decoders
from redrive.pubsub.engine import Engine
from redrive.pubsub.handler import (
    AsyncHandler,
    Handler,
    PlainHandler,
    check_handler,
    check_runs_when_called,
    is_async,
)
from redrive.pubsub.handler_table import HandlerTable
from redrive.pubsub.lanes import BlockedKey
from redrive.pubsub.lifecycle import BrokerAccess, default_name
from redrive.pubsub.middleware import AsyncShell, BlockingShell, MiddlewareRegistry
from redrive.pubsub.order_key import OrderBy, reader_of
from redrive.pubsub.service_connection import Address
from redrive.pubsub.text_predicate import predicate_of
from redrive.pubsub.tls import ContextSource
from redrive.pubsub.url import Credentials, seconds_of
from redrive.pubsub.work import MAX_HUNG, ConsumeOptions, LossCounter, Where, longest_stay
from redrive.redaction import in_one_line
from redrive.topology.broker_version import CONSUMER_TIMEOUT
from redrive.topology.control import Control
from redrive.topology.durations import Duration
from redrive.topology.model import QueueType, RetryVia, Subscription, WhenGivenUp
from redrive.topology.names import ExchangeFamily, family_of
from redrive.topology.outage import Outage, outages_of
from redrive.topology.policy import RetryPolicy
from redrive.topology.rates import Rate, rate_of
from redrive.topology.tags import TagFilter
from redrive.topology.text_filter import TextFilter

logger = logging.getLogger("redrive")

_Handler = TypeVar("_Handler", bound=Handler)
_PlainHandler = TypeVar("_PlainHandler", bound=PlainHandler)
_AsyncHandler = TypeVar("_AsyncHandler", bound=AsyncHandler)

PREFETCH_PER_HANDLER = 30


class SubscriberOptions(TypedDict, total=False):
    """Options of a subscriber besides its queue, routing keys and exchange; see `Subscriber`."""

    retry: RetryPolicy | None
    queue_type: QueueType
    retry_via: RetryVia
    concurrency: int
    prefetch: int | None
    tags: str | None
    where: Where | str | None
    broadcast: bool
    ordered: bool
    order_by: OrderBy | None
    when_given_up: WhenGivenUp
    max_failed: int | None
    declare: bool
    handler_timeout: Duration | None
    max_hung: int
    grace: Duration
    patience: Duration
    connection_name: str | None
    log_tracebacks: bool
    decoders: Mapping[str, Decoder] | None
    outage: Outage | Sequence[Outage] | None
    rate: Rate | None


class SubscriberBase(MiddlewareRegistry):
    """Base of subscribers: checks arguments, and takes handlers."""

    _processing: Engine | None = None

    def __init__(
        self,
        url: Address | None,
        queue: str,
        routing_keys: list[str] | tuple[str, ...] = (),
        exchange: str | ExchangeFamily = "master",
        *,
        retry: RetryPolicy | None = None,
        queue_type: QueueType = "quorum",
        retry_via: RetryVia = "dead-letter",
        concurrency: int = 1,
        prefetch: int | None = None,
        tags: str | None = None,
        where: Where | str | None = None,
        broadcast: bool = False,
        ordered: bool = False,
        order_by: OrderBy | None = None,
        when_given_up: WhenGivenUp = "continue",
        max_failed: int | None = None,
        declare: bool = True,
        handler_timeout: Duration | None = None,
        max_hung: int = MAX_HUNG,
        grace: Duration = 30.0,
        patience: Duration = 30.0,
        connection_name: str | None = None,
        credentials: Credentials | None = None,
        ssl_context: ContextSource | None = None,
        log_tracebacks: bool = False,
        decoders: Mapping[str, Decoder] | None = None,
        outage: Outage | Sequence[Outage] | None = None,
        rate: Rate | None = None,
    ) -> None:
        """Args:
            url: the broker's address, `amqp://user:password@host:5672/virtual-host`, or an aio-pika
                connection, whose address, login and TLS settings are used; None for a subscriber
                that an app runs, which uses the app's broker.
            queue: the queue, by convention `service@subscription`; at most 248 bytes.
            routing_keys: binding patterns (`user.*`, `order.#`).
            exchange: the main exchange, or an exchange family with its own suffixes.
            retry: the retry policy; None for `RetryPolicy()`, three retries, 30 seconds apart.
            queue_type: `quorum` or `classic`. Only quorum queues move a failed message safely when
                a node dies, and count crashes.
            retry_via: how a failed message is retried: with `dead-letter` and `republish` it waits
                in a retry queue, with `broker` RabbitMQ, from 4.3 on, holds it back in the main
                queue.
            concurrency: handlers that run at a time, each on its own thread or in its own task.
            prefetch: unsettled deliveries that the broker may send; by default thirty per handler.
                A message waits for all those before it: prefetch × handler time must stay far below
                the broker's consumer timeout of 30 minutes.
            tags: which tags a message must have in addition to a routing key, such as `vip || eu`
                or `a && (b || c)`. The broker filters.
            where: conditions that tags can't express, as text such as `headers.country = 'DE'`, or
                as a function of a `Message`. The broker selects by what it can of a text. Messages
                that are declined here are acked, and counted in `declined`.
            broadcast: whether each instance gets every message, on its own queue, which is deleted
                when the instance ends. Messages that fail there are logged, counted in `let_go`,
                and never retried or set aside.
            ordered: whether messages are handled strictly in order: one instance at a time, one
                message at a time, and a failing message holds up all others until it succeeds or is
                set aside. Quorum queues only; no retry may wait longer than 25 minutes.
            order_by: the key by which messages are ordered: a path into the body such as
                `$.customer.id`, `header:NAME`, `routing_key`, or a function of a `Message`. The
                messages of one key are handled one after the other, in the order in which they
                arrived, and other keys in parallel, up to `concurrency`, by one instance at a
                time. A message that waits for a retry holds up only its key.
            when_given_up: what happens to later messages of a key once one of them is set aside:
                `continue` handles them, `park` sets them aside behind it, with the reason `behind`,
                until all of them are requeued.
            max_failed: how many messages fit into the failed queue; None for no limit. A full queue
                refuses more: failing messages then stay unsettled in the main queue, which stops
                once they fill the prefetch, until there is room again.
            declare: whether to declare queue, exchanges and bindings when connecting; False for a
                user without permission to do so.
            handler_timeout: how long a handler may run before it counts as failed. A task is
                cancelled; a thread can't be stopped, so another takes its place.
            max_hung: how many handlers may still be running after `handler_timeout` before the
                subscriber takes no more messages, and is not healthy until some of them end.
            grace: how long `stop` lets running handlers finish.
            patience: how long to wait at startup for a broker that does not answer. Once connected,
                it reconnects for as long as it takes.
            connection_name: the name shown on the broker's management page.
            credentials: called for user and password at each connection, instead of using those in
                the URL.
            ssl_context: an ssl.SSLContext, or a function that makes one at each connection;
                replaces the certificate files in the URL.
            log_tracebacks: whether to log the traceback of each failed attempt, not only its error.
            decoders: functions that read bodies that are not JSON, by content type: each gets the
                body (decompressed) and its `Message`, and returns a value, which is validated as
                the type that the handler asks for. `decode_msgpack` and `decode_protobuf` are
                included.
            outage: the errors that mean that something the handlers need is down, or several such
                `Outage`s. While it is down, no messages are taken but one at a time, to try it.
                Not for ordered and broadcast queues.
            rate: the most messages that this process begins to handle per second, evenly spaced, or
                a text such as `10/s` or `30/m`; None for no limit. For all processes together, see
                `redrive pause --rate`.

        Raises:
            ConfigurationError: an argument is invalid.
        """
        text_filter = TextFilter(where) if isinstance(where, str) else None
        if text_filter is not None:
            where = predicate_of(text_filter)
        self.subscription = Subscription(
            f"{queue}@{uuid.uuid4().hex[:12]}" if broadcast else queue,
            routing_keys,
            family_of(exchange),
            retry if retry is not None else RetryPolicy(),
            queue_type,
            retry_via,
            TagFilter(tags) if tags is not None else None,
            broadcast,
            ordered or order_by is not None,
            max_failed,
            when_given_up=when_given_up,
            where=text_filter,
        )
        for warning in self.subscription.warnings:
            logger.warning("%s", in_one_line(warning))
        if where is not None and not callable(where):
            raise ConfigurationError(
                f"where is {where!r}",
                "Give text such as headers.country = 'DE', or a function of a Message.",
            )
        assert not isinstance(where, str)
        if where is not None:
            check_runs_when_called("predicate", where)
            if is_async(where):
                raise ConfigurationError(
                    f"where is {where!r}, which is async", "Make it a plain function of a Message."
                )
        self._dropped = LossCounter()
        self._name = connection_name or default_name("subscriber", queue)
        if url is not None:
            self._use_broker(url, credentials, ssl_context)
        elif credentials is not None or ssl_context is not None:
            raise ConfigurationError(
                f"the subscriber of queue {queue!r} has credentials or ssl_context, but no URL",
                "Give them to the app that runs it.",
            )
        _whole("concurrency", concurrency, 1000)
        one_at_a_time = ordered and order_by is None
        usual_prefetch = 1 if one_at_a_time else PREFETCH_PER_HANDLER * concurrency
        self._options = ConsumeOptions(
            concurrency,
            _whole("prefetch", usual_prefetch if prefetch is None else prefetch, 65535),
            declare,
            None if handler_timeout is None else seconds_of(handler_timeout),
            _whole("max_hung", max_hung, 100_000),
            where,
            None if order_by is None else reader_of(order_by),
            seconds_of(grace),
            timedelta(seconds=seconds_of(patience)),
            log_tracebacks,
            checked_decoders(decoders),
            outages=outages_of(outage),
            rate=None if rate is None else rate_of(rate),
        )
        if outage and (ordered or order_by is not None or broadcast):
            raise ConfigurationError(
                f"queue {queue!r} is {'a broadcast queue' if broadcast else 'ordered'}, and has an "
                "outage",
                "Leave outage out: a failing message of an ordered queue holds up the others of "
                "its key anyway, and broadcast messages are not kept.",
            )
        if one_at_a_time and (concurrency, self._options.prefetch) != (1, 1):
            raise ConfigurationError(
                f"queue {queue!r} is ordered, but has a concurrency of {concurrency} and a "
                f"prefetch of {self._options.prefetch}",
                "Leave both out, or give order_by: an ordered queue is handled one message at a "
                "time.",
            )
        if self._options.prefetch < concurrency:
            raise ConfigurationError(
                f"prefetch is {prefetch} with a concurrency of {concurrency}",
                "Give each handler at least one: raise prefetch.",
            )
        self._handlers = HandlerTable(queue)
        self._starting = threading.Lock()
        shortest = None if order_by is None else 0.0  # what waits behind others may wait long
        self._warn_of_long_waits(self._options.handler_timeout or shortest)

    @classmethod
    def _check_option(cls, name: str, value: object) -> None:
        """Raise ConfigurationError if this value of an option is invalid for every subscriber."""
        if name == "handler_timeout":
            if value is not None:
                seconds_of(cast("Duration", value))
        else:
            cls(None, "any", **{name: value})  # type: ignore[arg-type]

    def _use_broker(
        self,
        url: Address,
        credentials: Credentials | None = None,
        ssl_context: ContextSource | None = None,
    ) -> None:
        """Use this broker from the next start on; the arguments are those of `__init__`."""
        self._make_connector(url, self._name, credentials, ssl_context)
        self.access.tags = self.subscription.selection
        self.access.policies = self._policies

    @property
    def _policies(self) -> dict[str, str]:
        """Description of the retry policy, by queue; empty for a broadcast subscription, which
        never retries."""
        subscription = self.subscription
        return {} if subscription.broadcast else {subscription.queue: str(subscription.retry)}

    def _make_connector(
        self,
        url: Address,
        name: str,
        credentials: Credentials | None,
        ssl_context: ContextSource | None,
    ) -> None:
        """Make the shell's connector."""
        raise NotImplementedError

    @property
    def access(self) -> BrokerAccess:
        """The broker, and the login there.

        Raises:
            ConfigurationError: it has no broker yet.
        """
        raise NotImplementedError

    def _no_broker_yet(self) -> ConfigurationError:
        return ConfigurationError(
            f"the subscriber of queue {self.subscription.queue!r} has no broker",
            "Run the app that it belongs to, or give it a URL.",
        )

    @abstractmethod
    def declare(self) -> object:
        """Declare exchanges, queues and bindings now. Calling it again changes nothing.

        Raises:
            TopologyMismatch: an object exists with other arguments.
            PermissionDenied: the user lacks a permission.
            BrokerUnavailable: no broker answered.
            ConfigurationError: the broker is too old.
        """

    @abstractmethod
    def start(self) -> object:
        """Start consuming in the background, and return.

        Raises:
            ConfigurationError: there is no handler, the subscriber is already running, or it has no
                broker.
        """

    @abstractmethod
    def run(self) -> object:
        """Consume until `stop`, SIGTERM or SIGINT, then stop taking messages, finish what is
        running, ack and return. A second signal stops at once.

        If an awaited call is cancelled, it shuts down in the same way before it raises; cancelled
        again, it stops at once.

        Raises:
            TopologyMismatch, PermissionDenied, BrokerUnavailable, ConfigurationError: as `declare`,
                at the start.
        """

    @abstractmethod
    def stop(self) -> None:
        """Stop taking messages; `run` returns once running handlers have finished. Can be called
        from any thread, and from a handler."""

    @abstractmethod
    def abort(self) -> None:
        """Drop the connection at once. Messages in running handlers are redelivered; handlers that
        are awaited are cancelled."""

    @abstractmethod
    def wait(self, timeout: float | None = None) -> object:
        """Wait until it has stopped; return False if that takes more than `timeout` seconds.

        Raises:
            RedriveError: why it could not run.
        """

    @property
    def hung(self) -> int:
        """Number of handlers that are still running after `handler_timeout`."""
        return 0 if self._processing is None else self._processing.late

    @property
    def is_stuck(self) -> bool:
        """Whether `hung` has reached `max_hung`, so that it takes no more messages."""
        return self._processing is not None and self._processing.is_stuck

    @property
    def down(self) -> str | None:
        """Name of the `Outage` for which it takes few messages or none; None if it takes all."""
        return None if self._processing is None else self._processing.down

    @property
    def paused(self) -> Control | None:
        """Who has paused its subscription, and why; None if nobody has."""
        return None if self._processing is None else self._processing.paused

    @property
    def declined(self) -> int:
        """Number of messages that `where` has declined, since the subscriber was made."""
        return self._dropped.declined

    @property
    def keyless(self) -> int:
        """Number of messages without the key that they are ordered by, since the subscriber was
        made."""
        return self._dropped.keyless

    @property
    def blocked_keys(self) -> list[BlockedKey]:
        """The keys of an ordered queue that wait for a retry here, those with the most messages
        behind them first."""
        return [] if self._processing is None else self._processing.blocked

    @property
    def parked_keys(self) -> int:
        """Number of keys whose messages are set aside behind one that was given up, as known to the
        instance that handles the queue."""
        return 0 if self._processing is None else self._processing.order_counts.parked

    @property
    def let_go(self) -> int:
        """Number of broadcast messages that have failed, since the subscriber was made."""
        return self._dropped.let_go

    @property
    def discarded(self) -> int:
        """Number of messages that error rules have discarded, since the subscriber was made."""
        return self._dropped.discarded

    @overload
    def handler(self: BlockingShell, function: _PlainHandler, /) -> _PlainHandler: ...

    @overload
    def handler(self: BlockingShell, key: str, /) -> Callable[[_PlainHandler], _PlainHandler]: ...

    @overload
    def handler(self: AsyncShell, function: _AsyncHandler, /) -> _AsyncHandler: ...

    @overload
    def handler(self: AsyncShell, key: str, /) -> Callable[[_AsyncHandler], _AsyncHandler]: ...

    def handler(self, what: _Handler | str, /) -> _Handler | Callable[[_Handler], _Handler]:
        """Make a function a handler; a decorator.

        Use `@subscriber.handler` for a handler that gets every message, and
        `@subscriber.handler("user.created")` for one of several, which gets the messages with this
        routing key, or whose key matches this pattern.

        Its parameters are filled by their annotations: `Message` is the message,
        `Annotated[Session, Depends(session)]` the result of that function, and the remaining
        parameter is the body, as a pydantic model, a dataclass, `dict`, `str`, `bytes`, …

        A message goes to the handler with exactly its key, else to the first whose pattern matches
        it, else to the one without a key. If several have no key, each asks for a pydantic model,
        told apart by a field such as `kind: Literal["created"]`. A message without a handler is set
        aside.

        Raises:
            ConfigurationError: the function is async in a subscriber that runs plain functions, or
                the reverse; it is a generator function; nothing fills one of its parameters, or
                bodies can't be read as the type it asks for; another handler gets the same
                messages.
        """
        if isinstance(what, str):
            return lambda function: self._take_handler(function, what)
        return self._take_handler(what, None)

    @overload
    def __call__(self: BlockingShell, function: _PlainHandler, /) -> _PlainHandler: ...

    @overload
    def __call__(self: AsyncShell, function: _AsyncHandler, /) -> _AsyncHandler: ...

    def __call__(self, function: _Handler, /) -> _Handler:
        """Make a function the handler, as `handler` does, so that a subscriber can be used as a
        decorator."""
        return self._take_handler(function, None)

    def _take_handler(self, function: _Handler, key: str | None) -> _Handler:
        check_handler(function, awaited=self._handlers_are_async)
        self._handlers.add(function, key)
        return function

    def _check_has_handler(self) -> None:
        """Raise ConfigurationError if there is no handler."""
        if not self._handlers:
            raise ConfigurationError(
                f"queue {self.subscription.queue!r} has no handler",
                "Give it one: @subscriber.handler.",
            )

    def _check_may_start(self, stopped: bool) -> None:
        self._check_has_handler()
        if not stopped:
            raise ConfigurationError(
                f"the subscriber of queue {self.subscription.queue!r} is already running",
                "Stop it first.",
            )

    @property
    def _whereabouts(self) -> str:
        """The broker and the queue, for `repr`."""
        try:
            broker = self.access.url.address
        except ConfigurationError:
            broker = "no broker yet"
        return f"{broker} queue={self.subscription.queue!r}"

    def _warn_of_long_waits(self, seconds: float | None) -> None:
        """Warn if the last of the prefetched messages may wait too long, if each handler takes
        `seconds`."""
        if seconds is None:
            return
        wait = longest_stay(self.subscription, self._options, seconds)
        if wait > CONSUMER_TIMEOUT.total_seconds() / 2:
            logger.warning(
                "queue %s: with handlers of %.0f s and a prefetch of %d, a message may stay "
                "unsettled for %.0f min; the broker closes "
                "the channel after 30 min by default. %s.",
                self.subscription.queue,
                seconds,
                self._options.prefetch,
                wait / 60,
                "Shorten the delays of its retries"
                if self.subscription.ordered
                else "Lower prefetch, or raise concurrency",
            )


def _whole(name: str, value: int, most: int) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= most:
        raise ConfigurationError(f"{name} is {value!r}", f"Give a whole number from 1 to {most}.")
    return value


def options_in_words(indent: str) -> str:
    """Return a description of each of the `SubscriberOptions` with its default, taken from the
    docstring of `SubscriberBase.__init__`; for a docstring, with each line indented by `indent`."""
    arguments = inspect.signature(SubscriberBase.__init__).parameters
    told = inspect.getdoc(SubscriberBase.__init__) or ""
    return "\n".join(
        textwrap.fill(
            f"{name}={arguments[name].default!r}: {' '.join(words.split())}",
            96,
            initial_indent=indent,
            subsequent_indent=f"{indent}    ",
            break_on_hyphens=False,
        )
        for name, words in re.findall(r"^    (\w+): (.*(?:\n {8}.*)*)", told, re.MULTILINE)
        if name in SubscriberOptions.__annotations__
    )
