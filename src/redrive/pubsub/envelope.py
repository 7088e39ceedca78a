"""A message before its first publish: its properties, body and destination."""

import time
import uuid
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import lru_cache
from typing import NamedTuple

from redrive.amqp.field_table import FieldValue
from redrive.amqp.properties import Properties, encode_id_and_timestamp
from redrive.pubsub import php_envelope
from redrive.pubsub.codec import Codec, encode_body, encode_enveloped
from redrive.topology.delay_route import wait_until
from redrive.topology.durations import Duration
from redrive.topology.ladder import Ladder
from redrive.topology.names import ExchangeFamily, check_routing_key
from redrive.topology.rewrite import fresh
from redrive.topology.tags import headers_of

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
