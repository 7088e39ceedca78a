"""What a failed queue shows."""

from datetime import datetime

from redrive.failures.dialects.clues import moment_of
from redrive.failures.dialects.failure_notes import FailureNotes
from redrive.failures.dialects.known import notes_of
from redrive.pubsub.message import ReceivedMessage
from redrive.topology import headers
from redrive.topology.digest import digest_of
from redrive.topology.headers import Delivery


class FailedMessage(ReceivedMessage):
    """A message in a failed queue. What neither redrive nor another framework wrote is None."""

    __slots__ = ("_digest", "_failure_id", "_notes")

    def __init__(self, delivery: Delivery) -> None:
        super().__init__(delivery)
        self._digest: str | None = None
        self._failure_id: str | None = None
        self._notes: FailureNotes | None = None

    @property
    def failure_id(self) -> str:
        """What the failure is called; of a peer's message, a fingerprint of all of it."""
        if self._failure_id is None:
            self._failure_id = headers.failure_id(self._delivery)
        return self._failure_id

    @property
    def own_failure_id(self) -> str | None:
        """The failure id in the headers; None if a peer set it aside. Whoever may write into the
        failed queue may have made it up."""
        return self._text(headers.FAILURE_ID)

    @property
    def digest(self) -> str:
        """A SHA-256 of all that the message is: two messages of one failure id that differ have
        different digests."""
        if self._digest is None:
            self._digest = digest_of(
                self._delivery.routing_key, self._delivery.properties.encode(), self._delivery.body
            )
        return self._digest

    @property
    def retries(self) -> int:
        """How many retries were made before it was set aside."""
        written = self._delivery.properties.headers.scalar(headers.RETRIES)
        return (
            headers.counted(written)
            if written is not None
            else self._told.retries
            if self._told.retries is not None
            else headers.death_count(self._delivery.deaths, self.queue)
        )

    @property
    def dialect(self) -> str:
        """Whose words it tells of its failure in: `redrive`, `celery`, `symfony` and others, or
        `unknown`."""
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
        """The traceback of the last attempt, shortened where the headers had no room for it."""
        own = self._text(headers.ERROR_TRACEBACK)
        return self._told.traceback if own is None else own

    @property
    def reason(self) -> str | None:
        """Why it was set aside: one of `redrive.topology.decision.REASONS`, or what another
        implementation wrote."""
        return self._text(headers.REASON)

    @property
    def failed_at(self) -> datetime | None:
        """When it was set aside, UTC."""
        return moment_of(self._text(headers.FAILED_AT)) or self._told.failed_at

    @property
    def first_failed_at(self) -> datetime | None:
        """When its first attempt failed, UTC; it survives a requeue."""
        return moment_of(self._text(headers.FIRST_FAILED_AT))

    @property
    def host(self) -> str | None:
        """The host of the worker that set it aside."""
        own = self._text(headers.HOST)
        return self._told.host if own is None else own

    @property
    def exchange(self) -> str | None:
        """The exchange that it was first published to."""
        return self._text(headers.ORIG_EXCHANGE)

    @property
    def redrive_count(self) -> int:
        """How many times it was requeued before."""
        return headers.counted(self._delivery.properties.headers.scalar(headers.COUNT))

    @property
    def job(self) -> str | None:
        """The job that requeued it last."""
        return self._text(headers.JOB)

    @property
    def delivery(self) -> Delivery:
        """The message as received, for moving it on."""
        return self._delivery

    @property
    def _told(self) -> FailureNotes:
        if self._notes is None:
            self._notes = notes_of(self._delivery)
        return self._notes

    def _text(self, name: str) -> str | None:
        return headers.text(self._delivery.properties.headers.scalar(name))

    def __repr__(self) -> str:
        return (
            f"<FailedMessage {self.message_id} routing_key={self.routing_key!r} "
            f"{self.error_type}: {self.error_message!r}>"
        )
