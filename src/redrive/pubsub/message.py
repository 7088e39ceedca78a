"""The message that a handler gets, and which one is being handled."""

from collections.abc import Callable, Mapping
from contextvars import ContextVar, Token
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
    """An attempt that can time out."""

    timed_out_after: float | None
    """The time limit in seconds, if the attempt has exceeded it; else None."""


class ReceivedMessage:
    """Base of messages and failed messages."""

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
        """Return the body decompressed and as UTF-8."""
        delivery = self._delivery
        try:
            return utf8_of(delivery.body, delivery.properties)
        except Unreadable as error:
            problem = str(error)
        raise unreadable(problem, delivery.body, delivery.properties)

    def parse(self, kind: type[_Kind]) -> _Kind:
        """Return the body as any type that a handler could ask for: a pydantic model, a dataclass,
        a TypedDict, a msgspec.Struct, `dict`, `str` or `bytes`.

        If the subscriber has a decoder for the content type, the body is read with it.

        Raises:
            InvalidMessage: the body does not fit the type.
            ConfigurationError: bodies can't be read as this type.
        """
        reader = _READERS.get(kind)
        if reader is None:
            # imports pydantic, which commands that only look at messages don't need
            from redrive.pubsub.codec import reader_of

            if len(_READERS) >= _MOST_READERS:
                _READERS.clear()
            reader = _READERS[kind] = reader_of(kind)
        return cast(_Kind, reader(self))

    def json(self) -> object:
        """Return the body parsed as JSON; for PHP's envelope, the value inside it.

        Raises:
            InvalidMessage: the body is not JSON.
        """
        return json_of(self)

    @property
    def queue(self) -> str:
        """The subscription's main queue."""
        return self._delivery.queue

    @property
    def routing_key(self) -> str:
        """The key that the message was first published with, regardless of retries and requeues."""
        return self._delivery.original_routing_key

    @property
    def message_id(self) -> str | None:
        """The publisher's id for the message: the property, else the id in PHP's envelope; None if
        there is neither."""
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
        """The headers as Python values. For reading only: when the message is moved, the original
        bytes are sent."""
        return self._delivery.properties.headers.to_dict()

    @property
    def properties(self) -> Properties:
        """All properties: content type, correlation id, timestamp and the others."""
        return self._delivery.properties

    @property
    def content_type(self) -> str | None:
        """The MIME type that the publisher set."""
        return self._delivery.properties.content_type

    @property
    def published_at(self) -> datetime | None:
        """The publisher's timestamp, in UTC, to the second."""
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
        self._delivery = delivery  # no super().__init__(): saves a call per message
        self._max_retries = max_retries
        self._decoders = decoders
        self._attempt = attempt

    @property
    def exchange(self) -> str:
        """The exchange that the message last came through; empty for a retry or a requeue."""
        return self._delivery.exchange

    @property
    def retries(self) -> int:
        """Number of retries before this attempt: 0 at the first."""
        return retries_made(self._delivery)

    @property
    def attempt(self) -> int:
        """Number of this attempt: 1 at the first."""
        return self.retries + 1

    @property
    def is_last_attempt(self) -> bool:
        """Whether the policy allows no retry after this attempt. A rule for the error that it fails
        with may decide otherwise, as may `GiveUp` and `Retry`."""
        return self.retries >= self._max_retries

    @property
    def timed_out(self) -> bool:
        """Whether this attempt has exceeded `handler_timeout`. It then counts as failed, and the
        message is retried or set aside; a handler that is still running can check this, and
        stop."""
        return self._time_limit_passed is not None

    @property
    def _time_limit_passed(self) -> float | None:
        """The `handler_timeout` in seconds if it has passed, else None."""
        return None if self._attempt is None else self._attempt.timed_out_after

    @property
    def redelivered(self) -> bool:
        """Whether the broker marks the message as delivered before. Only a hint."""
        return self._delivery.redelivered

    def __repr__(self) -> str:
        return (
            f"<Message {self.message_id} routing_key={self.routing_key!r} "
            f"retries={self.retries} {len(self.body)} bytes>"
        )


class CurrentAttempt:
    """One run of a handler.

    Args:
        message: the message.
        is_async: whether the handler runs on an event loop.
    """

    __slots__ = ("before_ack", "is_async", "message")

    def __init__(self, message: Message, is_async: bool) -> None:
        self.message = message
        self.is_async = is_async
        self.before_ack: list[Callable[[], object]] | None = []
        """Actions that must succeed after the handler has returned and before the message is acked.
        For a handler on an event loop, each returns an awaitable. None once the handler has
        returned."""

    def returned(self) -> list[Callable[[], object]]:
        """Record that the handler has returned, and return the actions to run before the ack."""
        acts, self.before_ack = self.before_ack or [], None
        return acts


_current: ContextVar[CurrentAttempt | None] = ContextVar("redrive_message", default=None)


def begin_handling(message: Message, *, is_async: bool) -> Token[CurrentAttempt | None]:
    """Make a message the current one of this thread or task; return the token for
    `end_handling`."""
    return _current.set(CurrentAttempt(message, is_async))


def end_handling(token: Token[CurrentAttempt | None]) -> None:
    """Restore the previous current message."""
    handling = _current.get()
    if handling is not None:
        handling.returned()
    _current.reset(token)


current_handling = _current.get
"""Return the handler run of this thread or task; None outside of one."""


def current_message() -> Message | None:
    """Return the message that this thread or task is handling; None outside of a handler.

    A thread that a handler starts has no current message, unless it runs in the handler's context
    (`contextvars.copy_context().run`), as `asyncio.to_thread` does.
    """
    handling = _current.get()
    return None if handling is None else handling.message
