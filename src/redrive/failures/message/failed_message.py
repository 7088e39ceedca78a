"""A message in a failed queue."""

import json
from dataclasses import asdict, replace
from datetime import datetime
from typing import Self

from redrive.errors import ConfigurationError
from redrive.failures.message.dialects.clues import moment_of
from redrive.failures.message.dialects.failure_notes import FailureNotes
from redrive.failures.message.dialects.known import notes_of
from redrive.failures.message.route import (
    Claims,
    WayBack,
    claims_of,
    first_way_of,
    origin_of,
    way_back_of,
)
from redrive.pubsub.message import ReceivedMessage
from redrive.topology import headers, names
from redrive.topology.digest import digest_of
from redrive.topology.headers import Delivery


class FailedMessage(ReceivedMessage):
    """A message in a failed queue. Attributes that neither redrive nor another framework wrote are
    None."""

    __slots__ = (
        "_as_received",
        "_cause",
        "_digest",
        "_failure_id",
        "_known_id",
        "_notes",
        "_size",
    )

    def __init__(self, delivery: Delivery, notes: FailureNotes | None = None) -> None:
        super().__init__(delivery)
        self._digest: str | None = None
        self._failure_id: str | None = None
        self._known_id: str | None = None
        self._notes = notes
        self._as_received: bytes | None = None
        self._cause: tuple[str, str, str] | None = None
        self._size: int | None = None

    @classmethod
    def of_dead_letter(cls, delivery: Delivery) -> Self:
        """Return a message of a dead-letter queue that redrive did not create, with the queue that
        it failed in if the message says so."""
        notes = notes_of(delivery)
        origin = origin_of(delivery, notes)
        return cls(delivery if origin is None else replace(delivery, queue=origin), notes)

    @property
    def has_body(self) -> bool:
        """Whether the body is available; false if the message was kept without it."""
        return self._size is None

    @property
    def body(self) -> bytes:
        """The body, as received.

        Raises:
            ConfigurationError: the message was kept without its body.
        """
        if self._size is not None:
            raise ConfigurationError(
                f"the body of message {self.failure_id!r} was not kept",
                "Use the command line, which looks at the queue itself.",
            )
        return super().body

    def _utf8(self) -> bytes:
        """Return the body as UTF-8, decompressed."""
        return super()._utf8() if self.has_body else self.body

    @property
    def size(self) -> int:
        """The body's length in bytes, even if the message was kept without it."""
        return len(self._delivery.body) if self._size is None else self._size

    @property
    def message_id(self) -> str | None:
        """The publisher's id for the message: the property, or the id in PHP's envelope; None if
        the publisher gave none. Available even if the body was not kept."""
        return super().message_id if self._known_id is None else self._known_id

    @property
    def queue(self) -> str:
        """The queue that the message failed in: the subscription's main queue, or the queue that a
        message of a dead-letter queue names. If it names none, the dead-letter queue itself."""
        return self._delivery.queue

    @property
    def dead_letter_queue(self) -> str | None:
        """The queue that the message was read from, if redrive did not create it."""
        return self._delivery.dead_letter_queue or None

    @property
    def failed_queue(self) -> str:
        """The queue of failed messages that the message is in."""
        return self._delivery.dead_letter_queue or names.failed_queue(self.queue)

    @property
    def way_back(self) -> WayBack | None:
        """The queue, or the exchange and key, to send the message to for another attempt, according
        to the message itself; None if it does not say."""
        return way_back_of(self._delivery, self._told)

    @property
    def claims(self) -> Claims:
        """Everything that the message says about its origin."""
        return claims_of(self._delivery, self._told)

    @property
    def first_way(self) -> WayBack | None:
        """The exchange and key by which the message was first published; None if unknown."""
        exchange, key = self._text(headers.ORIG_EXCHANGE), self._delivery.noted_routing_key
        if exchange is not None and key is not None:
            return WayBack(exchange, key)
        return first_way_of(self._delivery, self._told)

    @property
    def routing_key(self) -> str:
        """The key that the message was first published with. If a message of a dead-letter queue
        does not say, the key that it was delivered with."""
        noted, told = self._delivery.noted_routing_key, self._told.routing_key
        return told if noted is None and told is not None else self._delivery.original_routing_key

    @property
    def failure_id(self) -> str:
        """The id of the failure; for a peer's message without one, a fingerprint of the whole
        message."""
        if self._failure_id is None:
            self._failure_id = headers.failure_id(self._delivery)
        return self._failure_id

    @property
    def own_failure_id(self) -> str | None:
        """The failure id in the headers; None if a peer set the message aside. Anyone who may write
        to the failed queue can forge it."""
        return self._text(headers.FAILURE_ID)

    @property
    def digest(self) -> str:
        """A SHA-256 of the whole message. Messages with the same failure id but different content
        have different digests."""
        if self._digest is None:
            self._digest = digest_of(
                self._delivery.routing_key, self._delivery.properties.encode(), self._delivery.body
            )
        return self._digest

    @property
    def retries(self) -> int:
        """Number of retries before the message was set aside."""
        written = self._delivery.properties.headers.scalar(headers.RETRIES)
        return (
            headers.counted(written)
            if written is not None
            else self._told.retries
            if self._told.retries is not None
            else self._deaths_before
        )

    @property
    def _deaths_before(self) -> int:
        """Number of attempts that failed before the last one, as the broker counted them. The
        broker counts the last one if it brought the message to a dead-letter queue."""
        deaths = headers.death_count(self._delivery.deaths, self.queue)
        return max(0, deaths - 1) if self._delivery.dead_letter_queue else deaths

    @property
    def dialect(self) -> str:
        """The framework whose headers describe the failure: `redrive`, `celery`, `symfony` and
        others, or `unknown`."""
        return self._told.dialect

    @property
    def error_type(self) -> str | None:
        """The class of the last attempt's exception."""
        own = self._text(headers.ERROR_TYPE)
        return self._told.error_type if own is None else own

    @property
    def error_message(self) -> str | None:
        """The text of the last attempt's exception."""
        own = self._text(headers.ERROR_MESSAGE)
        return self._told.error_message if own is None else own

    @property
    def traceback(self) -> str | None:
        """The traceback of the last attempt, shortened if it did not fit into the headers."""
        own = self._text(headers.ERROR_TRACEBACK)
        return self._told.traceback if own is None else own

    @property
    def reason(self) -> str | None:
        """Why the message was set aside: one of `redrive.topology.decision.REASONS`, or what
        another implementation wrote."""
        own = self._text(headers.REASON)
        if own is not None or not self._delivery.dead_letter_queue:
            return own
        deaths = self._delivery.deaths.entries
        return headers.text(deaths[0].get("reason")) if deaths else None

    @property
    def failed_at(self) -> datetime | None:
        """When the message was set aside, in UTC."""
        return moment_of(self._text(headers.FAILED_AT)) or self._told.failed_at or self._died_at

    @property
    def _died_at(self) -> datetime | None:
        """When a message of a dead-letter queue arrived there, by the broker's clock."""
        if not self._delivery.dead_letter_queue:
            return None
        deaths = self._delivery.deaths.entries
        return moment_of(deaths[0].get("time")) if deaths else None

    @property
    def first_failed_at(self) -> datetime | None:
        """When the first attempt failed, in UTC; a requeue keeps it."""
        return moment_of(self._text(headers.FIRST_FAILED_AT))

    @property
    def host(self) -> str | None:
        """The host of the worker that set the message aside."""
        own = self._text(headers.HOST)
        return self._told.host if own is None else own

    @property
    def exchange(self) -> str | None:
        """The exchange that the message was first published to."""
        own = self._text(headers.ORIG_EXCHANGE)
        if own is not None or not self._delivery.dead_letter_queue:
            return own
        return None if self.first_way is None else self.first_way.exchange

    @property
    def redrive_count(self) -> int:
        """How many times the message was requeued before."""
        return headers.counted(self._delivery.properties.headers.scalar(headers.COUNT))

    @property
    def job(self) -> str | None:
        """The id of the job that last requeued the message."""
        return self._text(headers.JOB)

    @property
    def delivery(self) -> Delivery:
        """The message as received, for publishing it again."""
        return self._delivery

    @property
    def _told(self) -> FailureNotes:
        if self._notes is None:
            self._notes = notes_of(self._delivery)
        return self._notes

    def _text(self, name: str) -> str | None:
        value = self._delivery.properties.headers.scalar(name)
        return value if isinstance(value, str) else None

    def __repr__(self) -> str:
        return (
            f"<FailedMessage {self.message_id} routing_key={self.routing_key!r} "
            f"{self.error_type}: {self.error_message!r}>"
        )


def received_with(message: FailedMessage, properties: bytes) -> FailedMessage:
    """Return the message with its encoded property flags and properties kept: encoding them again
    would cost a third of reading them."""
    message._as_received = properties
    return message


def property_bytes_of(message: FailedMessage) -> bytes:
    """Return the encoded property flags and properties of a message, as received."""
    known = message._as_received
    return message.delivery.properties.encode() if known is None else known


def remember_cause(message: FailedMessage, cause: tuple[str, str, str]) -> None:
    """Keep the cause in the message: finding it costs as much as reading everything else."""
    message._cause = cause


def cause_known_of(message: FailedMessage) -> tuple[str, str, str] | None:
    """Return the cause of a message if it was kept."""
    return message._cause


def told_of(message: FailedMessage) -> str:
    """Return facts about a message that are lost without its body, as JSON.

    These are its ids, its size, and its framework's failure notes: some frameworks write them into
    the body, like Symfony in its PHP envelope.
    """
    notes = asdict(message._told)
    if message._told.failed_at is not None:
        notes["failed_at"] = message._told.failed_at.isoformat()
    ids = (message.queue, message.failure_id, message.digest, message.message_id)
    return json.dumps([*ids, message.size, notes])


def with_told(message: FailedMessage, told: str) -> FailedMessage:
    """Restore the facts about a message that was rebuilt without its body."""
    try:
        queue, failure_id, digest, message_id, size, notes = json.loads(told)
        if notes["failed_at"] is not None:
            notes["failed_at"] = datetime.fromisoformat(notes["failed_at"])
        found = FailedMessage(replace(message.delivery, queue=queue), FailureNotes(**notes))
    except (TypeError, LookupError, RecursionError) as error:
        raise ValueError(str(error)) from error
    found._failure_id, found._digest, found._known_id = failure_id, digest, message_id
    found._size = size
    return found
