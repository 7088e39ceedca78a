"""What became of many messages."""

from dataclasses import dataclass, field
from enum import StrEnum

from redrive.errors import RedriveError, Unroutable

MOST_IDS = 1000
"""Ids of single messages that are kept of a requeue, so that its memory and its journal stay
bounded."""


@dataclass(frozen=True, slots=True)
class FailedPublish:
    """A message of `publish_many` that was not confirmed.

    Args:
        message_id: its id; None where it never got one.
        position: its place in what was given, from 0.
        error: why.
    """

    message_id: str | None
    position: int
    error: RedriveError


@dataclass(slots=True)
class PublishReport:
    """What became of the messages of `publish_many`.

    Args:
        confirmed: how many the broker has confirmed.
        failed: those that it has not, in their order.
        unroutable: how many of the confirmed ones no queue got; with `mandatory=True` they are in
            `failed` instead.
    """

    confirmed: int = 0
    failed: list[FailedPublish] = field(default_factory=list)
    unroutable: int = 0

    def note(
        self, message_id: str | None, position: int, error: RedriveError | None, mandatory: bool
    ) -> bool:
        """Counts one message; `error` is what became of it, None if it was confirmed and routed.

        Returns:
            Whether no queue got it, and that is no error.
        """
        unheard = isinstance(error, Unroutable) and not mandatory
        if unheard:
            self.unroutable += 1
        if error is None or unheard:
            self.confirmed += 1
        else:
            self.failed.append(FailedPublish(message_id, position, error))
        return unheard


@dataclass(frozen=True, slots=True)
class FailedRequeue:
    """A message that could not be requeued; it is still in the failed queue.

    Args:
        failure_id: the failure's identity.
        message_id: the publisher's id for it.
        error: why.
    """

    failure_id: str
    message_id: str | None
    error: RedriveError


@dataclass(slots=True)
class RequeueReport:
    """What became of the messages of a requeue.

    Args:
        job: the requeue's id, which each message it sent carries.
        requeued: how many are confirmed in their main queue.
        skipped: how many were looked at and left where they are.
        too_often: how many of these because they had been requeued too often.
        failed: those that could not be sent; they are left where they are.
        possible_duplicates: how many were on their way when the connection was lost: they were sent
            again, and the first copy may have arrived too.
        cancelled: whether it was stopped before it was through.
        not_tried: how many were not tried, because too many before them could not be sent: as when
            their queue was deleted.
        held: how many somebody else held all the while, so that they were not looked at; None if
            somebody did and how many is unknown. 0 where the limit was reached without them.
        no_way_back: how many of those skipped were left because nothing says which queue they
            failed in.
        contradicted: how many because the broker's topology says otherwise than they do.
        unchecked: how many because the broker could not confirm what they say.
        duplicate_ids: the failure ids of possible duplicates, as far as they are known; a thousand
            at most.
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
        """Count a message that stays for the verdict on its way back."""
        self.skipped += 1
        self.contradicted += verdict == "contradicted"
        self.unchecked += verdict == "unchecked"
        self.no_way_back += verdict == "unknown"

    def doubt(self, failure_id: str) -> None:
        """Counts a message that may be there twice."""
        self.possible_duplicates += 1
        if len(self.duplicate_ids) < MOST_IDS:
            self.duplicate_ids.append(failure_id)


@dataclass(frozen=True, slots=True)
class DiscardReport:
    """What became of the messages of a discard.

    Args:
        discarded: how many were deleted.
        skipped: how many were looked at and left where they are.
        cancelled: whether it was stopped before it was through.
        held: how many somebody else held all the while, so that they were not looked at; None if
            somebody did and how many is unknown. 0 where the limit was reached without them.
    """

    discarded: int
    skipped: int
    cancelled: bool
    held: int | None = 0


@dataclass(frozen=True, slots=True)
class RequeueProgress:
    """How far a requeue is.

    Args:
        total: the messages that were in the queue when it began.
        looked_at: how many it has taken a look at.
        requeued: how many are confirmed in their main queue; of a discard, how many were deleted.
    """

    total: int
    looked_at: int
    requeued: int


class LookStage(StrEnum):
    """What a look at a failed queue does now."""

    WAITING = "waiting"
    LOOKING = "looking"
    READING = "reading"
    """Of a file, or of what an earlier look has found: nothing is held."""
    RETURNING = "returning"
    ENDED = "ended"


@dataclass(frozen=True, slots=True)
class LookProgress:
    """How far a look at a failed queue is.

    Args:
        stage: what it does now: it waits until nobody else holds messages of the queue, looks, or
            returns what it holds; or it reads what is kept elsewhere.
        total: the messages that were in the queue when nobody else held any of them; 0 while that
            is waited for.
        wanted: how many of them it looks at.
        looked_at: how many it has looked at.
        held: how many it holds now.
        missing: how many it can't see because somebody else holds them; None for an unknown number.
        holder: who is waited for, as far as the broker tells.
        returns: how often the queue takes a message back before the broker deletes it, of which a
            look uses up one; None for any number.
    """

    stage: LookStage
    total: int = 0
    wanted: int = 0
    looked_at: int = 0
    held: int = 0
    missing: int | None = 0
    holder: str = ""
    returns: int | None = None
