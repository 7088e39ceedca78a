"""Base of both publishers: their arguments, their messages, and their connection."""

import logging
import os
import time
import uuid
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import ClassVar, NamedTuple

from redrive.amqp.field_table import FieldValue
from redrive.amqp.properties import Properties, encode_id_and_timestamp
from redrive.errors import ConfigurationError, HandlerTimeout, RedriveError
from redrive.pubsub import php_envelope, telemetry
from redrive.pubsub.codec import Codec, check_codec, encode_body, encode_enveloped
from redrive.pubsub.confirms import WINDOW, Outgoing, Settled
from redrive.pubsub.lifecycle import default_name
from redrive.pubsub.logs import FIELDS
from redrive.pubsub.message import current_handling, current_message
from redrive.pubsub.service_connection import Address
from redrive.pubsub.tls import ContextSource
from redrive.pubsub.url import Credentials, seconds_of
from redrive.topology.delay_route import destination_of, wait_until
from redrive.topology.durations import Duration
from redrive.topology.ladder import Ladder
from redrive.topology.names import ExchangeFamily, check_routing_key, family_of
from redrive.topology.rewrite import fresh
from redrive.topology.tags import headers_of

logger = logging.getLogger("redrive")

BATCH = 128
DEFAULT_TIMEOUT = 30.0
MOST_UNROUTED_KEYS = 100
"""Routing keys without a queue that a publisher logs. If every message has its own key, one line
each would flood the log."""

PERSISTENT = 2
_NO_HEADERS: Mapping[str, FieldValue] = {}


@dataclass(frozen=True, slots=True)
class Extras:
    """Properties of a message that only its publisher can know; None for those that are not set."""

    content_type: str | None = None
    content_encoding: str | None = None
    priority: int | None = None
    correlation_id: str | None = None
    reply_to: str | None = None
    type: str | None = None
    app_id: str | None = None


NO_EXTRAS = Extras()


class Envelope(NamedTuple):
    """A message as it is sent on the wire."""

    message_id: str
    routing_key: str
    properties: bytes
    body: bytes


class Destination(NamedTuple):
    """Where a message is published, and how many levels of the delay ladder it needs."""

    exchange: str
    routing_key: str
    levels: int = 0


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
        span: what measures it; None if nothing is measured.
    """

    place: Destination
    envelope: Envelope
    mandatory: bool
    limit: float
    span: telemetry.PublishSpan | None

    def ended(self, error: RedriveError | None) -> None:
        """Record that it is confirmed, or the error if it is not."""
        if self.span is not None:
            self.span.ended(error)

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


class RecordedSession:
    """A session of either shell that notes messages instead of sending them."""

    def __init__(self, note: Callable[[str], object]) -> None:
        self._note = note

    def send(self, batch: Iterable[Outgoing]) -> None:
        """Note the routing keys of messages, and report each message as confirmed."""
        for outgoing in batch:
            self._note(destination_of(outgoing.routing_key, "p") or outgoing.routing_key)
            outgoing.settled(outgoing, None)

    async def send_one(self, prepared: PreparedPublish) -> None:
        """Note a message of the async shell."""
        self.send([prepared.outgoing(lambda outgoing, error: None)])


recorded: RecordedSession | None = None
"""What publishers of this process use in place of a broker; None outside of a rehearsal."""


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

    @abstractmethod
    def publish(
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
    ) -> object:
        """Publish one message and return when the broker has confirmed it.

        If an awaited call is cancelled before the message was sent, it is not sent. If cancelled
        later, it is unknown whether the broker has it.

        Args:
            body: bytes or a str, sent as they are; or a pydantic model, a dict or anything else
                that can be converted to JSON.
            routing_key: at most 255 bytes.
            headers: your own headers.
            message_id: a UUID by default.
            mandatory: raise an error if no queue is bound for the message. Otherwise it is counted
                in `unroutable`, and a warning is logged once for each routing key.
            delay: how long the message waits before subscribers get it; never less, and at most one
                tick of the family more.
            deliver_at: when subscribers get it, as an aware datetime; a past one means now. The
                subscriptions that exist at that time get it, not the present ones.
            timeout: how long to wait for the confirm, including connecting and the time for which
                the broker blocks publishers.
            tags: tags that subscriptions can filter by, besides the routing key.
            extras: correlation id, reply-to and other message properties.

        Returns:
            The message id.

        Raises:
            ConfigurationError: the body, the routing key or a header can't be sent, the delay is
                out of range, the publisher is closed, or this is called on the I/O thread of a
                `Publisher`.
            Unroutable: no queue is bound for the message, and `mandatory` is set.
            PublishNacked: the broker refused the message.
            PublishTimeout: no confirm came in time; it is unknown whether the broker has the
                message.
            BrokerUnavailable: no broker answered at the first connection.
        """

    @abstractmethod
    def publish_many(
        self,
        messages: Iterable[Publishable],
        *,
        mandatory: bool = False,
        timeout: Duration | None = None,
    ) -> object:
        """Publish any number of messages in constant memory, with thousands unconfirmed at a time.

        If nothing is confirmed for `timeout`, the unconfirmed messages and all that follow are
        reported as failed.

        Args:
            messages: pairs of body and routing key, triples with headers, or `BulkMessage`s, each
                with its own delay, tags, id and properties; from a list or a generator, and for an
                `AsyncPublisher` also from an async generator.
            mandatory: count messages that no queue is bound for as failed. Otherwise a warning is
                logged, as for `publish`.
            timeout: how long the broker may confirm nothing.

        Returns:
            How many messages were confirmed, and which ones were not, with the reason. A message
            that can't be sent at all is among the latter; the others are still sent.

        Raises:
            ConfigurationError: the publisher is closed.
            BrokerUnavailable: no broker answered at the first connection.
        """

    @abstractmethod
    def close(self) -> object:
        """Close the connection. Messages that other threads or tasks still wait for are no longer
        confirmed."""

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
        span = None
        if telemetry.active is not None:
            span = telemetry.active.publishing(self._exchanges.main, headers)
            headers = span.headers
        envelope = envelope_of(
            body,
            routing_key,
            headers,
            message_id,
            self._with_correlation(extras),
            tags,
            self._codec,
        )
        place = destination(self._exchanges, routing_key, delay, deliver_at)
        limit = self._timeout if timeout is None else seconds_of(timeout)
        return PreparedPublish(place, envelope, mandatory, limit, span)

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

    def _lacks_ladder(self, levels: int) -> bool:
        """Whether a delay needs levels of the ladder that are yet to be declared."""
        return recorded is None and self._declare and levels > self._levels

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


def destination(
    exchanges: ExchangeFamily,
    routing_key: str,
    delay: Duration | None = None,
    deliver_at: datetime | None = None,
) -> Destination:
    """Return where to publish a message for the subscribers of `routing_key`: for now, after a
    delay, or at a time; a past time means now.

    Raises:
        ConfigurationError: both are given, the delay is negative or longer than the ladder, the
            time has no time zone, or the key is too long for a delayed message.
    """
    if delay is None and deliver_at is None:
        return Destination(exchanges.main, routing_key)
    wait = wait_until(delay, deliver_at, datetime.now(UTC))
    if not wait:
        return Destination(exchanges.main, routing_key)
    ladder = Ladder(exchanges)
    return Destination(*ladder.way(wait, "p", routing_key), ladder.levels_for(wait))


def envelope_of(
    body: object,
    routing_key: str,
    headers: Mapping[str, FieldValue] | None = None,
    message_id: str | None = None,
    extras: Extras = NO_EXTRAS,
    tags: Collection[str] = (),
    codec: Codec = "json",
) -> Envelope:
    """Make a persistent message from a body, with an id, a timestamp and its original routing key.

    In PHP's envelope a message has a second id, which also becomes the message id if none is given,
    so that all services use the same id for it.

    Raises:
        ConfigurationError: the body, the routing key, a header or a property can't be sent over
            AMQP.
    """
    if tags:
        headers = {**(headers or _NO_HEADERS), **headers_of(tags)}
    if codec == "php-envelope":
        envelope_id = php_envelope.new_id()
        encoded, content_type = encode_enveloped(body, envelope_id)
        message_id = message_id or envelope_id
    else:
        encoded, content_type = encode_body(body)
        message_id = message_id or str(uuid.uuid4())
    now = int(time.time())
    if headers or extras is not NO_EXTRAS:
        properties = _properties(
            content_type, routing_key, message_id, now, headers or _NO_HEADERS, extras
        ).encode()
    else:
        properties = _plain(content_type, routing_key) + encode_id_and_timestamp(message_id, now)
    return Envelope(message_id, routing_key, properties, encoded)


@lru_cache(maxsize=1024)
def _plain(content_type: str, routing_key: str) -> bytes:
    """Return the encoded properties of a message without headers and extras, up to its id; the same
    for all messages with this content type and key."""
    encoded = _properties(content_type, routing_key, "", 0, _NO_HEADERS, NO_EXTRAS).encode()
    return encoded[: -len(encode_id_and_timestamp("", 0))]


def _properties(
    content_type: str,
    routing_key: str,
    message_id: str,
    timestamp: int,
    headers: Mapping[str, FieldValue],
    extras: Extras,
) -> Properties:
    check_routing_key(routing_key)
    properties = Properties(
        content_type=extras.content_type or content_type,
        content_encoding=extras.content_encoding,
        delivery_mode=PERSISTENT,
        priority=extras.priority,
        correlation_id=extras.correlation_id,
        reply_to=extras.reply_to,
        message_id=message_id,
        timestamp=timestamp,
        type=extras.type,
        app_id=extras.app_id,
    )
    return fresh(properties, headers, routing_key)
