"""Base of both publishers: their arguments, their messages, and their connection."""

import logging
import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import ClassVar, NamedTuple

from redrive.amqp.field_table import FieldValue
from redrive.errors import ConfigurationError, HandlerTimeout, RedriveError
from redrive.pubsub import telemetry
from redrive.pubsub.codec import Codec, check_codec
from redrive.pubsub.confirms import WINDOW, Outgoing, Settled
from redrive.pubsub.current_message import current_handling, current_message
from redrive.pubsub.envelope import (
    NO_EXTRAS,
    Destination,
    Envelope,
    Extras,
    destination,
    envelope_of,
)
from redrive.pubsub.lifecycle import default_name
from redrive.pubsub.logs import FIELDS
from redrive.pubsub.service_connection import Address
from redrive.pubsub.tls import ContextSource
from redrive.pubsub.url import Credentials, seconds_of
from redrive.topology.durations import Duration
from redrive.topology.names import ExchangeFamily, family_of

logger = logging.getLogger("redrive")

BATCH = 128
DEFAULT_TIMEOUT = 30.0
MOST_UNROUTED_KEYS = 100
"""Routing keys without a queue that a publisher logs. If every message has its own key, one line
each would flood the log."""


@dataclass(frozen=True, slots=True)
class BulkMessage:
    """A message for `publish_many` with what a pair can't say. The arguments are those of
    `publish`.

    Args:
        body: as for `publish`.
        routing_key: at most 255 bytes.
        headers: your own headers.
        message_id: a UUID by default.
        delay: how long the message waits before subscribers get it.
        deliver_at: when subscribers get it, as an aware datetime.
        tags: tags that subscriptions can filter by.
        extras: correlation id, reply-to and other message properties.
    """

    body: object
    routing_key: str
    headers: Mapping[str, FieldValue] | None = None
    message_id: str | None = None
    delay: Duration | None = None
    deliver_at: datetime | None = None
    tags: Collection[str] = ()
    extras: Extras = NO_EXTRAS


Publishable = tuple[object, str] | tuple[object, str, Mapping[str, FieldValue]] | BulkMessage
"""A body and its routing key, optionally with headers; or a `BulkMessage`."""


class PreparedPublish(NamedTuple):
    """A message that is ready to be published.

    Args:
        place: where it goes.
        envelope: the message.
        mandatory: whether it is an error if no queue is bound for it.
        limit: seconds to wait for its confirm.
        ended: called with None once it is confirmed, or with the error if it is not.
    """

    place: Destination
    envelope: Envelope
    mandatory: bool
    limit: float
    ended: Callable[[RedriveError | None], None]

    def outgoing(self, settled: Settled) -> Outgoing:
        """Return the message for an outbox, which calls `settled` with the result."""
        return Outgoing(
            self.place.exchange,
            self.place.routing_key,
            self.envelope.properties,
            self.envelope.body,
            self.envelope.message_id,
            settled,
        )


class UnroutedKeys:
    """Logs once for each routing key that a message reached no queue.

    Publishing before anyone has subscribed is legitimate, so this is not an error unless the caller
    asks for one. But a message that vanishes silently is hard to notice, and the usual cause is a
    typo, or a subscription that was declared too late.
    """

    def __init__(self, exchange: str) -> None:
        self._exchange = exchange
        self._told: set[str] = set()

    def tell(self, routing_keys: Iterable[str]) -> None:
        """Warn about keys not seen before, up to `MOST_UNROUTED_KEYS` of them."""
        for key in routing_keys:
            if key in self._told or len(self._told) >= MOST_UNROUTED_KEYS:
                continue
            self._told.add(key)  # before logging: a log handler may publish with such a key too
            logger.warning(
                "no queue is bound to exchange %r for routing key %r: the broker dropped the "
                "message. Declare a subscription first, or publish with mandatory=True to make "
                "this an error. (Logged once for each key.)",
                self._exchange,
                key,
                extra={
                    FIELDS: {
                        "event": "unroutable",
                        "now_in": None,
                        "exchange": self._exchange,
                        "routing_key": key,
                    }
                },
            )
            if len(self._told) == MOST_UNROUTED_KEYS:
                logger.warning(
                    "there are %d routing keys without a queue; further ones are only counted, in "
                    "`unroutable`",
                    MOST_UNROUTED_KEYS,
                )


class PublisherBase(ABC):
    """Base of publishers: checks arguments and makes messages."""

    _is_async: ClassVar[bool]

    def __init__(
        self,
        url: Address,
        exchange: str | ExchangeFamily = "master",
        *,
        timeout: Duration = DEFAULT_TIMEOUT,
        declare: bool = True,
        connection_name: str | None = None,
        credentials: Credentials | None = None,
        ssl_context: ContextSource | None = None,
        window: int = WINDOW,
        codec: Codec = "json",
        patience: Duration = 0.0,
        carry_correlation: bool = False,
    ) -> None:
        """Args:
            url: the broker's address, `amqp://user:password@host:5672/virtual-host`, or an aio-pika
                connection, whose address, login and TLS settings are used.
            exchange: the main exchange, or an exchange family with its own suffixes.
            timeout: how long to wait for a confirm, unless a call gives another timeout.
            declare: whether to declare the exchanges when connecting. A user without permission to
                declare them can publish if they exist.
            connection_name: the name shown on the broker's management page.
            credentials: called for user and password at each connection, instead of using those in
                the URL.
            ssl_context: an ssl.SSLContext, or a function that makes one at each connection;
                replaces the certificate files in the URL.
            window: messages that may be unconfirmed at a time.
            codec: how bodies are encoded: `json`, or `php-envelope` for PHP services, `{"body": …,
                "__id": …}`. Subscribers read both.
            patience: how long to wait for a broker that does not answer the first connection; a
                call never waits longer for it than its timeout. Once connected, it
                reconnects for as long as it takes.
            carry_correlation: whether a message published while another is being handled, without a
                correlation id of its own, carries that of the other message, or its message id if
                it has none.

        Raises:
            ConfigurationError: the URL or a name is invalid.
            BrokerUnavailable: (on entering, or at the first publish) no broker answered.
            PermissionDenied: the broker refused the user, the password or the virtual host.
        """
        if window < 1:
            raise ConfigurationError(f"window is {window}", "Give a whole number from 1.")
        check_codec(codec)
        self._codec = codec
        self._exchanges = family_of(exchange)
        self._make_connector(
            url, connection_name or default_name("publisher"), credentials, ssl_context
        )
        self._timeout = seconds_of(timeout)
        self._declare = declare
        self._window = window
        self._patience = timedelta(seconds=seconds_of(patience))
        self._carries = carry_correlation
        self._unroutable = 0
        self._unrouted = UnroutedKeys(self._exchanges.main)
        self._levels = 0
        self._process: int | None = None

    @abstractmethod
    def _make_connector(
        self,
        url: Address,
        name: str,
        credentials: Credentials | None,
        ssl_context: ContextSource | None,
    ) -> None:
        """Make the shell's connector."""

    @property
    def unroutable(self) -> int:
        """Number of messages that reached no queue, since the publisher was made."""
        return self._unroutable

    def publish_then_ack(
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
        """Publish a message once the calling handler has returned, and ack the handler's message
        once the broker has confirmed the new one. Never awaited.

        If the handler raises, nothing is published. If this message is not confirmed, the attempt
        has failed and is retried: what the handler published before may then be sent twice, but is
        never lost. Several messages are published in the order of the calls.

        Args:
            body: as for `publish`; its current value is published, even if it changes later.
            routing_key: as for `publish`, like all other arguments.
            headers: your own headers.
            message_id: a UUID by default.
            mandatory: whether it is an error if no queue is bound for it.
            delay: how long the message waits before its subscribers get it.
            deliver_at: when they get it, an aware datetime.
            timeout: how long to wait for the confirm.
            tags: tags that subscriptions can filter by.
            extras: correlation id, reply-to and other properties of the message.

        Returns:
            The message id.

        Raises:
            ConfigurationError: as for `publish`; or the caller is not a handler, or is one of the
                other shell.
        """
        handling = current_handling()
        if handling is None or handling.before_ack is None:
            raise ConfigurationError(
                "publish_then_ack was called, and no message is being handled here"
                if handling is None
                else f"publish_then_ack was called, and the handler of {handling.message!r} has "
                "returned already",
                "Call it in a handler, on its own thread or in its own task; elsewhere, publish.",
            )
        if handling.is_async is not self._is_async:
            raise ConfigurationError(
                "publish_then_ack was called on an AsyncPublisher by a Subscriber's handler"
                if self._is_async
                else "publish_then_ack was called on a Publisher by an AsyncSubscriber's handler",
                f"Use {'a Publisher' if self._is_async else 'an AsyncPublisher'} there.",
            )
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
        handling.before_ack.append(lambda: self._publish(prepared))
        return prepared.envelope.message_id

    @abstractmethod
    def _publish(self, prepared: PreparedPublish) -> object:
        """Publish a message and wait until it is confirmed, or return an awaitable that does."""

    def _prepared(
        self,
        body: object,
        routing_key: str,
        *,
        headers: Mapping[str, FieldValue] | None,
        message_id: str | None,
        mandatory: bool,
        delay: Duration | None,
        deliver_at: datetime | None,
        timeout: Duration | None,
        tags: Collection[str],
        extras: Extras,
    ) -> PreparedPublish:
        """Make a message from the arguments of `publish`, and start measuring it."""
        _check_in_time()
        publication = telemetry.publishing(self._exchanges.main, headers)
        envelope = envelope_of(
            body,
            routing_key,
            publication.headers,
            message_id,
            self._with_correlation(extras),
            tags,
            self._codec,
        )
        place = destination(self._exchanges, routing_key, delay, deliver_at)
        limit = self._timeout if timeout is None else seconds_of(timeout)
        return PreparedPublish(place, envelope, mandatory, limit, publication.ended)

    def _bulk(self, message: BulkMessage, settled: Settled) -> tuple[Outgoing, int]:
        """Make a message of `publish_many`, and say how many levels of the ladder it needs."""
        prepared = self._prepared(
            message.body,
            message.routing_key,
            headers=message.headers,
            message_id=message.message_id,
            mandatory=False,
            delay=message.delay,
            deliver_at=message.deliver_at,
            timeout=None,
            tags=message.tags,
            extras=message.extras,
        )

        def ended(outgoing: Outgoing, error: RedriveError | None) -> None:
            prepared.ended(error)
            settled(outgoing, error)

        return prepared.outgoing(ended), prepared.place.levels

    def _outgoing(self, message: Publishable, settled: Settled) -> Outgoing:
        if not isinstance(message, tuple | list) or len(message) not in (2, 3):
            raise ConfigurationError(
                f"publish_many was given {message!r:.80}",
                "Give pairs of a body and a routing key, or BulkMessage(…).",
            )
        _check_in_time()
        body, routing_key, *rest = message
        headers = rest[0] if rest else None
        if telemetry.active is not None:
            headers, settled = telemetry.active.watched(self._exchanges.main, headers, settled)
        extras = self._with_correlation(NO_EXTRAS)
        envelope = envelope_of(body, routing_key, headers, extras=extras, codec=self._codec)
        return Outgoing(
            self._exchanges.main,
            routing_key,
            envelope.properties,
            envelope.body,
            envelope.message_id,
            settled,
        )

    def _with_correlation(self, extras: Extras) -> Extras:
        """Return a message's properties, with the correlation id of the message being handled."""
        message = current_message() if self._carries else None
        if message is None or extras.correlation_id is not None:
            return extras
        return replace(
            extras, correlation_id=message.properties.correlation_id or message.message_id
        )

    def _belongs_here(self) -> None:
        """Tie the publisher to the first process that uses it, since a fork can't share its
        connection."""
        if self._process is None:
            self._process = os.getpid()
        elif os.getpid() != self._process:
            raise ConfigurationError(
                "the publisher was used before this process was forked, and its connection stayed "
                "with the parent",
                "Make one in each process, or use it for the first time after the fork.",
            )

    def _check_open(self, closed: bool) -> None:
        if closed:
            raise ConfigurationError(
                "the publisher is closed", "A closed publisher does not open again: make a new one."
            )


def _check_in_time() -> None:
    """Raise HandlerTimeout if a handler publishes after its timeout."""
    handling = current_handling()
    limit = None if handling is None else handling.message._time_limit_passed
    if limit is not None:
        raise HandlerTimeout(
            limit, "what it publishes now is refused, since its attempt has failed"
        )
