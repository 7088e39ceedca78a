"""What both publishers are told, and what they make of it."""

import logging
import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from typing import ClassVar, NamedTuple

from redrive.amqp.field_table import FieldValue
from redrive.errors import ConfigurationError, HandlerTimeout, PublishTimeout, RedriveError
from redrive.pubsub import telemetry
from redrive.pubsub.codec import Codec, check_codec
from redrive.pubsub.confirms import WINDOW, Outbox, Outgoing, Settled
from redrive.pubsub.current_message import current_handling, current_message
from redrive.pubsub.envelope import NO_EXTRAS, Destination, Envelope, Extras, destination, seal
from redrive.pubsub.lifecycle import default_name
from redrive.pubsub.logs import FIELDS
from redrive.pubsub.service_connection import Address
from redrive.pubsub.tls import ContextSource
from redrive.pubsub.url import Credentials, seconds_of
from redrive.pubsub.wire_protocol import Wire
from redrive.topology.durations import Duration
from redrive.topology.names import ExchangeFamily, family_of

logger = logging.getLogger("redrive")

BATCH = 128
DEFAULT_TIMEOUT = 30.0
MOST_UNHEARD_KEYS = 100
"""Routing keys without a queue that a publisher tells of. Where each message has a key of its own,
a line for each would flood the log."""

Publishable = tuple[object, str] | tuple[object, str, Mapping[str, FieldValue]]
"""A body and its routing key, and headers where it has any."""


class Sealed(NamedTuple):
    """A message that is ready to be published.

    Args:
        place: where it goes.
        envelope: the message.
        mandatory: whether it is an error that no queue is bound for it.
        limit: seconds to wait for its confirm.
        ended: to be called when it is confirmed, with None, or when it is not, with why.
    """

    place: Destination
    envelope: Envelope
    mandatory: bool
    limit: float
    ended: Callable[[RedriveError | None], None]

    def outgoing(self, settled: Settled) -> Outgoing:
        """The message for an outbox, which tells `settled` what became of it."""
        return Outgoing(
            self.place.exchange,
            self.place.routing_key,
            self.envelope.properties,
            self.envelope.body,
            self.envelope.message_id,
            settled,
        )


class UnroutedKeys:
    """Says in the log, once for each routing key, that no queue got a message.

    Publishing what nobody subscribes to yet is legitimate, so it is no error unless the caller asks
    for one. But nobody looks for a message that is gone without a word, and the usual reason is a
    subscription that was declared too late, or a typo.
    """

    def __init__(self, exchange: str) -> None:
        self._exchange = exchange
        self._told: set[str] = set()

    def tell(self, routing_keys: Iterable[str]) -> None:
        """Warns of those keys that are new, up to `MOST_UNHEARD_KEYS` of them."""
        for key in routing_keys:
            if key in self._told or len(self._told) >= MOST_UNHEARD_KEYS:
                continue
            self._told.add(
                key
            )  # first of all: a log handler may publish, with a key that nobody hears either
            logger.warning(
                "no queue is bound to exchange %r for routing key %r: the broker dropped the "
                "message. Declare a subscription "
                "first, or publish with mandatory=True to make this an error. (Told once for each "
                "key.)",
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
            if len(self._told) == MOST_UNHEARD_KEYS:
                logger.warning(
                    "there are %d routing keys without a queue; further ones are only counted, in "
                    "`unroutable`",
                    MOST_UNHEARD_KEYS,
                )


class PublisherBase(ABC):
    """The arguments of a publisher, checked, and its messages."""

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
            url: the broker's address, `amqp://user:password@host:5672/virtual-host`, or a
                connection of aio-pika's, whose address, login and TLS settings are used.
            exchange: the main exchange, or a whole family with suffixes of its own.
            timeout: how long to wait for a confirm where a call names no other; .
            declare: whether to declare the exchanges when connecting. Without the right to, it is
                enough that they exist.
            connection_name: what the broker's management page shows.
            credentials: asked for user and password at each connection, in place of the URL's.
            ssl_context: an ssl.SSLContext, or a function that makes one at each connection, in
                place of the URL's certificate files.
            window: messages that may be unconfirmed at a time.
            codec: how bodies are written: `json`, or `php-envelope` for PHP services, `{"body": …,
                "__id": …}`. Subscribers read both.
            patience: how long a broker that does not answer is waited for at the first connection;
                a call does not wait longer for it than its timeout. Once connected, it is waited
                for for ever.
            carry_correlation: whether what is published while a message is handled, and has no
                correlation id of its own, carries that message's, or where it has none its id.

        Raises:
            ConfigurationError: the URL or a name can't be.
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
        self._unheard = UnroutedKeys(self._exchanges.main)
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
        """Makes the shell's connector."""

    @property
    def unroutable(self) -> int:
        """How many messages no queue got, since the publisher was made."""
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
        """Has a message published once the handler that calls this has returned, and the message
        that it handles acked once the broker has confirmed this one. Never awaited.

        Where the handler raises, nothing is published. Where this message is not confirmed, the
        attempt has failed and is made again: what the handler published before may then come
        twice, and never not at all. Several are published in the order of the calls.

        Args:
            body: as for `publish`; what it is now is published, whatever becomes of it later.
            routing_key: as for `publish`, as are all others.
            headers: the user's own.
            message_id: a UUID where none is given.
            mandatory: whether it is an error that no queue is bound for it.
            delay: how long the message waits before its subscribers get it.
            deliver_at: when they get it, an aware datetime.
            timeout: how long to wait for the confirm.
            tags: what subscriptions may ask for.
            extras: correlation id, reply-to and the other properties of a message.

        Returns:
            The message id.

        Raises:
            ConfigurationError: as `publish`; it is not called by a handler, or by one of the other
                shell.
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
        handling.before_ack.append(lambda: self._publish(sealed))
        return sealed.envelope.message_id

    @abstractmethod
    def _publish(self, sealed: Sealed) -> object:
        """Publishes a message, and waits until it is confirmed, or gives what does."""

    def _sealed(
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
    ) -> Sealed:
        """Makes a message of what `publish` is given, and begins to watch it."""
        _check_in_time()
        publication = telemetry.publishing(self._exchanges.main, headers)
        envelope = seal(
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
        return Sealed(place, envelope, mandatory, limit, publication.ended)

    def _outgoing(self, message: Publishable, settled: Settled) -> Outgoing:
        if not isinstance(message, tuple | list) or len(message) not in (2, 3):
            raise ConfigurationError(
                f"publish_many was given {message!r:.80}", "Give pairs of a body and a routing key."
            )
        _check_in_time()
        body, routing_key, *rest = message
        headers = rest[0] if rest else None
        if telemetry.active is not None:
            headers, settled = telemetry.active.watched(self._exchanges.main, headers, settled)
        extras = self._with_correlation(NO_EXTRAS)
        envelope = seal(body, routing_key, headers, extras=extras, codec=self._codec)
        return Outgoing(
            self._exchanges.main,
            routing_key,
            envelope.properties,
            envelope.body,
            envelope.message_id,
            settled,
        )

    def _with_correlation(self, extras: Extras) -> Extras:
        """The properties of a message, with the correlation id of the one that is being handled."""
        message = current_message() if self._carries else None
        if message is None or extras.correlation_id is not None:
            return extras
        return replace(
            extras, correlation_id=message.properties.correlation_id or message.message_id
        )

    def _belongs_here(self) -> None:
        """Ties the publisher to the first process that uses it: what it has then, a fork does not
        share."""
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


class PublisherSession(ABC):
    """A publisher's connection: what a link tells goes to an outbox."""

    def __init__(self, window: int) -> None:
        self.failure: RedriveError | None = None
        self.frame_max = 0
        """The connection's largest frame, in bytes; 0 for no limit."""
        self._outbox = Outbox(resend=True, window=window)
        self._connected = False

    @abstractmethod
    def _begun(self) -> None:
        """It is known whether there is a connection."""

    def timeout_of(self, outgoing: Outgoing, seconds: float) -> PublishTimeout:
        """Why there was no confirm."""
        if self._outbox.blocked is not None:
            why = (
                f"the broker takes no messages now ({self._outbox.blocked}); free its memory or "
                "disk"
            )
        elif not self._connected:
            why = "the connection was lost and did not come back"
        else:
            why = "no confirm came"
        sent = "it was sent, so the broker may have it" if outgoing.sent else "it was not sent"
        return PublishTimeout(
            outgoing.message_id, outgoing.routing_key, f"{why} within {seconds:g} s; {sent}"
        )

    def connected(self, connection: Wire) -> None:
        """The link is up."""
        self._connected = True
        self.frame_max = connection.frame_max
        self._outbox.connected(connection)
        self._begun()

    def disconnected(self, error: RedriveError) -> None:
        """The link is down; it comes back."""
        self._connected = False
        self._outbox.disconnected(error)

    def gave_up(self, error: RedriveError) -> None:
        """There is no link."""
        self.failure = error
        self._begun()

    def ended(self) -> None:
        """The link ends, for whatever reason: nothing is confirmed any more, and the next publish
        begins a session of its own."""
        if self.failure is None:
            self.failure = ConfigurationError(
                "the publisher was closed before the message was confirmed", "Close it later."
            )
        self._outbox.fail_all(self.failure)


def _check_in_time() -> None:
    """Raise HandlerTimeout where a handler publishes though its time is up."""
    message = current_message()
    limit = None if message is None else message._time_limit_passed
    if limit is not None:
        raise HandlerTimeout(
            limit, "what it publishes now is refused, since its attempt has failed"
        )
