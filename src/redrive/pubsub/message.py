"""What a handler gets."""

from collections.abc import Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Protocol, TypeVar, cast

from redrive.amqp.field_table import FieldValue
from redrive.amqp.properties import Properties
from redrive.pubsub import php_envelope
from redrive.pubsub.body import NO_DECODERS, Decoder, Unreadable, json_of, unreadable, utf8_of
from redrive.topology import headers
from redrive.topology.decision import retries_made
from redrive.topology.headers import Delivery

if TYPE_CHECKING:
    from redrive.pubsub.codec import Reader

_Kind = TypeVar("_Kind")
_MOST_READERS = 1000
_READERS: "dict[object, Reader]" = {}


class TimedAttempt(Protocol):
    """An attempt, as far as it can run out of time."""

    timed_out_after: float | None
    """How long it could take, where it was given up on; else None."""


class ReceivedMessage:
    """What a message and a failed message have in common."""

    __slots__ = ("_delivery",)

    def __init__(self, delivery: Delivery) -> None:
        self._delivery = delivery

    @property
    def _decoders(self) -> Mapping[str, Decoder]:
        return NO_DECODERS

    @property
    def body(self) -> bytes:
        """The body, as received."""
        return self._delivery.body

    def _utf8(self) -> bytes:
        """Return the body as a text in UTF-8, its compression undone."""
        delivery = self._delivery
        try:
            return utf8_of(delivery.body, delivery.properties)
        except Unreadable as error:
            problem = str(error)
        raise unreadable(problem, delivery.body, delivery.properties)

    def parse(self, kind: type[_Kind]) -> _Kind:
        """The body as what a handler could ask for: a pydantic model, a dataclass, a TypedDict, a
        msgspec.Struct, `dict`, `str` or `bytes`; by the subscriber's decoder of its content type,
        where it has one.

        Raises:
            InvalidMessage: it is none.
            ConfigurationError: a body can't be read as that.
        """
        reader = _READERS.get(kind)
        if reader is None:
            # pydantic, which no command that only looks at messages needs
            from redrive.pubsub.codec import reader_of

            if len(_READERS) >= _MOST_READERS:
                _READERS.clear()
            reader = _READERS[kind] = reader_of(kind)
        return cast(_Kind, reader(self))

    def json(self) -> object:
        """The body, read as JSON; of PHP's envelope, what is in it.

        Raises:
            InvalidMessage: it is not JSON.
        """
        return json_of(self)

    @property
    def queue(self) -> str:
        """The subscription's main queue."""
        return self._delivery.queue

    @property
    def routing_key(self) -> str:
        """The key that the message was first published with, whatever way it has gone since."""
        return self._delivery.original_routing_key

    @property
    def message_id(self) -> str | None:
        """The publisher's id for the message: the property, else the one in PHP's envelope; None
        where it gave none."""
        own = self._delivery.properties.message_id
        if own is not None:
            return own
        try:
            body = utf8_of(self._delivery.body, self._delivery.properties)
        except Unreadable:
            return None
        envelope = php_envelope.read(body)
        return None if envelope is None else envelope.id

    @property
    def headers(self) -> Mapping[str, FieldValue]:
        """The headers as Python values. Only for looking at: what travels on are the bytes
        received."""
        return self._delivery.properties.headers.to_dict()

    @property
    def properties(self) -> Properties:
        """All properties: content type, correlation id, timestamp and the others."""
        return self._delivery.properties

    @property
    def content_type(self) -> str | None:
        """The MIME type that the publisher gave."""
        return self._delivery.properties.content_type

    @property
    def published_at(self) -> datetime | None:
        """The publisher's timestamp, UTC, to the second."""
        return headers.moment(self._delivery.properties.timestamp)


class Message(ReceivedMessage):
    """A message as a handler sees it."""

    __slots__ = ("_attempt", "_decoders", "_max_retries")

    _decoders: Mapping[str, Decoder]

    def __init__(
        self,
        delivery: Delivery,
        max_retries: int = 0,
        decoders: Mapping[str, Decoder] = NO_DECODERS,
        attempt: TimedAttempt | None = None,
    ) -> None:
        self._delivery = delivery  # one is made of each message: a call less
        self._max_retries = max_retries
        self._decoders = decoders
        self._attempt = attempt

    @property
    def exchange(self) -> str:
        """The exchange that it came through last; empty for a retry or a requeue."""
        return self._delivery.exchange

    @property
    def retries(self) -> int:
        """How many retries were made before this attempt: 0 at the first."""
        return retries_made(self._delivery)

    @property
    def attempt(self) -> int:
        """Which attempt this is: 1 at the first."""
        return self.retries + 1

    @property
    def is_last_attempt(self) -> bool:
        """Whether the policy allows no retry after this attempt. A rule of the policy for the error
        that it fails with may say otherwise, as may `GiveUp` and `Retry`."""
        return self.retries >= self._max_retries

    @property
    def timed_out(self) -> bool:
        """Whether this attempt has taken longer than `handler_timeout`: it counts as failed, and
        the message is handled again, or set aside. A handler that goes on can ask, and stop."""
        return self._time_limit_passed is not None

    @property
    def _time_limit_passed(self) -> float | None:
        """The seconds of `handler_timeout` where they are over, else None."""
        return None if self._attempt is None else self._attempt.timed_out_after

    @property
    def redelivered(self) -> bool:
        """Whether the broker says that it was delivered before. No more than a hint."""
        return self._delivery.redelivered

    def __repr__(self) -> str:
        return (
            f"<Message {self.message_id} routing_key={self.routing_key!r} "
            f"retries={self.retries} {len(self.body)} bytes>"
        )
