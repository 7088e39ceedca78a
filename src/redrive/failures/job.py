"""A requeue as people handle it: what its last run has done, what became of its messages, and how
it is taken up again."""

import logging
import threading
from dataclasses import fields, replace
from datetime import timedelta
from typing import TYPE_CHECKING

from redrive.errors import ConfigurationError
from redrive.failures.canary import Unknown, longest_watch
from redrive.failures.failed_queue_access import FailedQueueAccess
from redrive.failures.failed_queue_facts import directed, source_of
from redrive.failures.job_record import JobOutcome, JobRecord, State
from redrive.failures.journal_entry import EDITS_LEFT_OUT
from redrive.failures.look_reporter import OnLook
from redrive.failures.message_source import answer_of
from redrive.failures.order import Order
from redrive.failures.plan import Plan, plan_of
from redrive.failures.requeue import Cancel, Progress
from redrive.failures.requeue_job import Notice, OnOutcome, RequeueJob
from redrive.pubsub.reports import RequeueReport
from redrive.topology.durations import Duration, duration_of

if TYPE_CHECKING:
    from redrive.failures.local_journal import LocalJournal

logger = logging.getLogger("redrive")


class Job(RequeueReport):
    """A requeue of failed messages. What it has of a `RequeueReport` is of its last run.

    Args:
        failed: the failed queue.
        journal: where it is written down.
        record: what is written there of it.
        order: what it was told to do; None to read it there.
        report: what its last run has done.
    """

    def __init__(
        self,
        failed: FailedQueueAccess,
        journal: "LocalJournal",
        record: JobRecord,
        order: Order | None,
        report: RequeueReport,
    ) -> None:
        super().__init__(**{one.name: getattr(report, one.name) for one in fields(RequeueReport)})
        self._failed = failed
        self._journal = journal
        self._order = order
        self.record = record

    @classmethod
    def written_down(cls, failed: FailedQueueAccess, journal: "LocalJournal", id_: str) -> "Job":
        """A requeue that a journal has, whoever has begun it, and wherever.

        Args:
            failed: the failed queue that it is of.
            journal: the journal.
            id_: the job's id, or its first characters.

        Raises:
            ConfigurationError: there is no such job, or it is another queue's or broker's, or no
                requeue.
        """
        record = journal.job(id_)
        if record.kind != "requeue":
            raise ConfigurationError(
                f"job {record.id} is a {record.kind}, not a requeue",
                "Run its command again: it takes the rest.",
            )
        if not journal.belongs_to(record, failed._address):
            raise ConfigurationError(
                f"job {record.id} belongs to {record.broker}, and the URL names {failed._address}",
                "Give the URL that it was begun with.",
            )
        if not failed._is_of(record.queue):
            raise ConfigurationError(
                f"job {record.id} is of {record.queue!r}, not of {source_of(failed).name!r}",
                "Name that queue.",
            )
        report = RequeueReport(
            record.id,
            record.sent,
            possible_duplicates=record.possible_duplicates,
            cancelled=record.state is State.INTERRUPTED,
        )
        return cls(failed, journal, record, None, report)

    @property
    def id(self) -> str:
        """Its id, which each message that it sent carries."""
        return self.record.id

    @property
    def state(self) -> State:
        """Where it stood when its last run ended: `done`, `interrupted` or `stopped`."""
        return self.record.state

    @property
    def problem(self) -> str:
        """Why it stopped; empty where it did not."""
        return self.record.problem

    @property
    def order(self) -> Order:
        """What it was told to do.

        Raises:
            ConfigurationError: the journal has not all of it.
        """
        if self._order is None:
            check_whole(self.record)
            self._order = Order.from_json(self.record.order)
        return self._order

    def outcome(
        self, *, on_progress: OnLook | None = None, patience: Duration | None = None
    ) -> JobOutcome:
        """What has become of its messages by now: what subscribers have told since it was asked
        last, and which of them are in the failed queue, which is looked at.

        "Succeeded" is only what a subscriber has told. Consumers without redrive tell nothing; and
        of a job without a journal, a canary or a share to stop at, what is told is not kept.

        Args:
            on_progress: told about ten times a second how far the look is.
            patience: how long another's look is waited for.

        Raises:
            PermissionDenied: the user may not read what subscribers tell.
            BrokerUnavailable: no broker answered.
        """
        told = self._failed._heard(self.id)
        here, _ = answer_of(
            self._failed,
            lambda look: sum(message.job == self.id for message in look),
            on_progress=on_progress,
            patience=patience,
        )
        self.record = self._journal.heard(self.id, told, here)
        return self.record.outcome

    def told(self) -> JobOutcome:
        """What has become of its messages, as far as subscribers have told it by now. The failed
        queue is not looked at: what nobody tells of is as it was when `outcome` was asked last.

        Raises:
            PermissionDenied: the user may not read what subscribers tell.
            BrokerUnavailable: no broker answered.
        """
        told = self._failed._heard(self.id)
        known = self._journal.job(self.id)
        self.record = self._journal.heard(self.id, told, known.failed_here) if told else known
        return self.record.outcome

    def left(self, *, on_progress: OnLook | None = None) -> Plan:
        """What it would still send. The failed queue is looked at.

        Raises:
            ConfigurationError: the journal has not all of it, or there is no such queue.
            BrokerUnavailable: the connection was lost.
        """
        under_way, order = self._journal.under_way(self.id), self.order
        direction = directed(self._failed, order.direction)
        plan, look = answer_of(
            self._failed,
            lambda look: plan_of(order, look, under_way, self.id, direction=direction),
            on_progress=on_progress,
        )
        plan.total, plan.missing = look.total, look.missing
        if order.limit is not None:
            plan.count = min(plan.count, max(0, order.limit - self.record.sent))
        return plan

    def resume(
        self,
        plan: Plan | None = None,
        *,
        watch: Duration | None = None,
        unknown: Unknown | None = None,
        on_progress: Progress | None = None,
        on_notice: Notice | None = None,
        on_outcome: OnOutcome | None = None,
        cancel: Cancel | None = None,
    ) -> "Job":
        """Goes on where it was interrupted or stopped, with a new canary if it had one. What it has
        sent is not sent again, but for what was in flight when it ended: that is counted as
        possible duplicates.

        Args:
            plan: what `left` has said; asked again by default.
            watch: how long the canary is watched at most; as it was begun by default.
            unknown: what to do if the outcome of some of the canary is unknown when the watch ends;
                as it was begun by default.
            on_progress: told about ten times a second how far it is.
            on_notice: is told, in a sentence, what people may want to know meanwhile.
            on_outcome: told about ten times a second what is known of what this run has sent, where
                a canary or a share to stop at has it watched.
            cancel: once set, it stops; what is on its way is settled first.

        Returns:
            The job after this run; itself, where it was done before.

        Raises:
            ConfigurationError: somebody else runs it, or the journal has not all of it.
            BrokerUnavailable: the connection was lost and did not come back.
        """
        if self.state is State.DONE:
            return self
        if self.record.approved_by:
            raise ConfigurationError(
                f"job {self.id} was approved by {self.record.approved_by}, for the messages that "
                "were there then",
                "Ask for the approval of what is left.",
            )
        order = self.order
        guards = order.guards
        order = replace(
            order,
            guards=replace(
                guards,
                watch=guards.watch if watch is None else duration_of(watch, "watch"),
                unknown=guards.unknown if unknown is None else unknown,
            ),
        )
        return carried_out(
            self._failed,
            self._journal,
            self.record,
            order,
            self.left() if plan is None else plan,
            on_progress=on_progress,
            on_notice=on_notice,
            on_outcome=on_outcome,
            cancel=cancel,
        )


def carried_out(
    failed: FailedQueueAccess,
    journal: "LocalJournal",
    record: JobRecord,
    order: Order,
    plan: Plan | None,
    *,
    on_progress: Progress | None = None,
    on_notice: Notice | None = None,
    on_outcome: OnOutcome | None = None,
    cancel: Cancel | None = None,
) -> Job:
    """Runs a job to its end, new or taken up again.

    Args:
        failed: the failed queue.
        journal: where it is written down.
        record: the job.
        order: what it is to do.
        plan: what it would send; None where nobody has looked.
        on_progress: told about ten times a second how far it is.
        on_notice: is told, in a sentence, what people may want to know meanwhile; the log by
            default.
        on_outcome: told about ten times a second what is known of what this run has sent.
        cancel: once set, it stops; what is on its way is settled first.

    Raises:
        RedriveError: it could not go on; that is written down too.
    """
    requeueing = RequeueJob(
        failed,
        journal,
        record,
        order,
        some_stay=plan is not None and _some_stay(order, plan),
        watch=None if plan is None else _watch(failed, order, plan),
        arrivals=() if plan is None else plan.arrivals,
        listens=journal.is_kept or order.guards.are_up,
        on_notice=on_notice or logger.info,
        on_outcome=on_outcome or (lambda _: None),
    )
    record, report = requeueing.run(on_progress or (lambda _: None), cancel or threading.Event())
    return Job(failed, journal, record, order, report)


def _some_stay(order: Order, plan: Plan) -> bool:
    """Whether some of the messages that are read may not be sent: they were requeued too often, or
    may have been if nobody looked."""
    return bool(plan.too_often) or (not plan.looked_at and order.most_redrives is not None)


def _watch(failed: FailedQueueAccess, order: Order, plan: Plan) -> timedelta | None:
    """How long the canary is watched at most, unless the order says it."""
    if not order.guards.canary or order.guards.watch is not None:
        return None
    return longest_watch(failed._retry_delay(order.to), plan.retries, plan.retried_for)


def check_whole(record: JobRecord) -> None:
    """Check that the shared journal has all that a job needs.

    Raises:
        ConfigurationError: it has not.
    """
    if not record.order:
        raise ConfigurationError(
            f"the beginning of job {record.id} is not in the shared journal any more, or never was",
            f"Resume it where it was begun ({record.who}), or begin a new one.",
        )
    if record.order.get(EDITS_LEFT_OUT):
        raise ConfigurationError(
            f"the bodies that job {record.id} sends are not in the shared journal",
            f"Resume it where it was begun: {record.who} has them.",
        )
