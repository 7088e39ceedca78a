"""Results and progress of operations on many messages."""

from dataclasses import dataclass, field
from enum import StrEnum

from redrive.errors import RedriveError, Unroutable

MOST_IDS = 1000
"""Message ids kept for each requeue, so that its memory and its journal stay bounded."""


@dataclass(frozen=True, slots=True)
class FailedPublish:
    """A message of `publish_many` that was not confirmed.

    Args:
        message_id: its id; None if it never got one.
        position: its position in the input, from 0.
        error: why it failed.
    """

    message_id: str | None
    position: int
    error: RedriveError


@dataclass(slots=True)
class PublishReport:
    """Result of `publish_many`.

    Args:
        confirmed: number of messages that the broker confirmed.
        failed: the other messages, in order.
        unroutable: number of confirmed messages that reached no queue; with `mandatory=True` they
            are in `failed` instead.
    """

    confirmed: int = 0
    failed: list[FailedPublish] = field(default_factory=list)
    unroutable: int = 0

    def note(
        self, message_id: str | None, position: int, error: RedriveError | None, mandatory: bool
    ) -> bool:
        """Count one message.

        Args:
            message_id: its id; None if it never got one.
            position: its position in the input, from 0.
            error: why it failed; None if it was confirmed and routed.
            mandatory: whether it is an error if it reached no queue.

        Returns:
            Whether it reached no queue without this being an error.
        """
        unrouted = isinstance(error, Unroutable) and not mandatory
        if unrouted:
            self.unroutable += 1
        if error is None or unrouted:
            self.confirmed += 1
        else:
            self.failed.append(FailedPublish(message_id, position, error))
        return unrouted


@dataclass(frozen=True, slots=True)
class FailedRequeue:
    """A message that could not be requeued; it is still in the failed queue.

    Args:
        failure_id: the failure's identity.
        message_id: the id that the publisher gave the message.
        error: why it failed.
    """

    failure_id: str
    message_id: str | None
    error: RedriveError


@dataclass(slots=True)
class RequeueReport:
    """Result of a requeue.

    Args:
        job: the requeue's id, which every message it sent carries.
        requeued: number of messages confirmed in their main queue.
        skipped: number of messages that were looked at and left in place.
        too_often: number of skipped messages that had been requeued too often.
        failed: messages that could not be sent; they are left in place.
        possible_duplicates: number of messages in flight when the connection was lost: they were
            sent again, and the first copy may have arrived too.
        cancelled: whether it was stopped before the end.
        not_tried: number of messages not tried because too many before them could not be sent, for
            example because their queue was deleted.
        held: number of messages that another consumer held the whole time, so that they were not
            looked at; None if this number is unknown. 0 if the limit was reached without them.
        no_way_back: number of skipped messages for which nothing says which queue they failed in.
        contradicted: number of skipped messages that contradict the broker's topology.
        unchecked: number of skipped messages that could not be checked against the topology.
        duplicate_ids: failure ids of possible duplicates, where known; at most a thousand.
    """

    job: str
    requeued: int = 0
    skipped: int = 0
    failed: list[FailedRequeue] = field(default_factory=list)
    possible_duplicates: int = 0
    cancelled: bool = False
    not_tried: int = 0
    too_often: int = 0
    held: int | None = 0
    no_way_back: int = 0
    duplicate_ids: list[str] = field(default_factory=list)
    contradicted: int = 0
    unchecked: int = 0

    def stays(self, verdict: str) -> None:
        """Count a message that stays because of the verdict on its way back."""
        self.skipped += 1
        self.contradicted += verdict == "contradicted"
        self.unchecked += verdict == "unchecked"
        self.no_way_back += verdict == "unknown"

    def doubt(self, failure_id: str) -> None:
        """Count a possible duplicate."""
        self.possible_duplicates += 1
        if len(self.duplicate_ids) < MOST_IDS:
            self.duplicate_ids.append(failure_id)


@dataclass(frozen=True, slots=True)
class DiscardReport:
    """Result of a discard.

    Args:
        discarded: number of deleted messages.
        skipped: number of messages that were looked at and left in place.
        cancelled: whether it was stopped before the end.
        held: number of messages that another consumer held the whole time, so that they were not
            looked at; None if this number is unknown. 0 if the limit was reached without them.
    """

    discarded: int
    skipped: int
    cancelled: bool
    held: int | None = 0


@dataclass(frozen=True, slots=True)
class RequeueProgress:
    """Progress of a requeue.

    Args:
        total: number of messages in the queue at the start.
        looked_at: number of messages looked at so far.
        requeued: number of messages confirmed in their main queue; for a discard, number of deleted
            messages.
    """

    total: int
    looked_at: int
    requeued: int


class LookStage(StrEnum):
    """Stage of a look at a failed queue."""

    WAITING = "waiting"
    LOOKING = "looking"
    READING = "reading"
    """Reading a file or the result of an earlier look: nothing is held."""
    RETURNING = "returning"
    ENDED = "ended"


@dataclass(frozen=True, slots=True)
class LookProgress:
    """Progress of a look at a failed queue.

    Args:
        stage: whether it waits until no other consumer holds messages of the queue, looks, returns
            the messages that it holds, or reads data kept elsewhere.
        total: number of messages in the queue once no other consumer held any; 0 while it waits for
            that.
        wanted: number of messages to look at.
        looked_at: number of messages looked at so far.
        held: number of messages that it holds now.
        missing: number of messages it can't see because another consumer holds them; None if
            unknown.
        holder: who it is waiting for, if the broker says.
        returns: how often a message can return to the queue before the broker deletes it, of which
            a look uses one; None for no limit.
    """

    stage: LookStage
    total: int = 0
    wanted: int = 0
    looked_at: int = 0
    held: int = 0
    missing: int | None = 0
    holder: str = ""
    returns: int | None = None
