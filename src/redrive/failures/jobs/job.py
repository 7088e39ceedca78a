"""Requeues as jobs: what the last run did, what became of the messages, and how to resume."""

import logging
import threading
import uuid
from dataclasses import fields, replace
from datetime import timedelta
from typing import TYPE_CHECKING

from redrive.errors import ConfigurationError
from redrive.failures.jobs.job_record import JobOutcome, JobRecord, State
from redrive.failures.jobs.journal_entry import EDITS_LEFT_OUT
from redrive.failures.jobs.requeue_job import Notice, OnOutcome, RequeueJob
from redrive.failures.queue.canary import Unknown, longest_watch
from redrive.failures.queue.failed_queue_base import FailedQueueBase, directed, source_of
from redrive.failures.queue.message_source import answer_of
from redrive.failures.queue.order import Order
from redrive.failures.queue.plan import Plan, plan_of
from redrive.failures.queue.requeue import Cancel, Progress
from redrive.failures.store.look_reporter import OnLook
from redrive.pubsub.reports import RequeueReport
from redrive.topology.durations import Duration, duration_of

if TYPE_CHECKING:
    from redrive.failures.jobs.local_journal import LocalJournal

logger = logging.getLogger("redrive")


class Job(RequeueReport):
    """A requeue of failed messages. The fields of `RequeueReport` describe its last run.

    Args:
        failed: the failed queue.
        journal: the journal that records the job.
        record: the job's record in the journal.
        order: what the job was asked to do; None to read it from the journal.
        report: what its last run did.
    """

    def __init__(
        self,
        failed: FailedQueueBase,
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
    def written_down(cls, failed: FailedQueueBase, journal: "LocalJournal", id_: str) -> "Job":
        """Return a requeue from a journal, begun by any user on any machine.

        Args:
            failed: the failed queue that the job belongs to.
            journal: the journal.
            id_: the job's id, or its first characters.

        Raises:
            ConfigurationError: there is no such job, it belongs to another queue or broker, or it
                isn't a requeue.
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
                f"job {record.id} belongs to {record.queue!r}, not to {source_of(failed).name!r}",
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
        """Its state when its last run ended: `done`, `interrupted` or `stopped`."""
        return self.record.state

    @property
    def problem(self) -> str:
        """Why it stopped; empty if it didn't."""
        return self.record.problem

    @property
    def order(self) -> Order:
        """What the job was asked to do.

        Raises:
            ConfigurationError: the journal doesn't have the complete order.
        """
        if self._order is None:
            check_whole(self.record)
            self._order = Order.from_json(self.record.order)
        return self._order

    def outcome(
        self, *, on_progress: OnLook | None = None, patience: Duration | None = None
    ) -> JobOutcome:
        """Scan the failed queue and return what has become of the job's messages by now.

        This combines what subscribers have reported since the last call with the messages that are
        back in the failed queue.

        A message counts as succeeded only if a subscriber has reported it. Consumers without
        redrive report nothing. Without a journal, a canary or a share to stop at, reports are not
        kept.

        Args:
            on_progress: called about ten times a second with the progress of the look.
            patience: how long to wait for a look by somebody else.

        Raises:
            PermissionDenied: the user may not read what subscribers report.
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
        """Return what has become of the job's messages, from the reports of subscribers alone.

        The failed queue is not scanned: messages without a report count as in the last call of
        `outcome`.

        Raises:
            PermissionDenied: the user may not read what subscribers report.
            BrokerUnavailable: no broker answered.
        """
        told = self._failed._heard(self.id)
        known = self._journal.job(self.id)
        self.record = self._journal.heard(self.id, told, known.failed_here) if told else known
        return self.record.outcome

    def left(self, *, on_progress: OnLook | None = None) -> Plan:
        """Scan the failed queue and return a plan of what the job would still send.

        Raises:
            ConfigurationError: the journal doesn't have the complete order, or there is no such
                queue.
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
        """Continue where the job was interrupted or stopped, with a new canary if it had one.

        Messages that were sent are not sent again, except those in flight when the job ended: they
        are counted as possible duplicates.

        Args:
            plan: the result of `left`; computed anew by default.
            watch: how long to watch the canary at most; the job's own setting by default.
            unknown: what to do if the outcome of some of the canary is unknown when the watch ends;
                the job's own setting by default.
            on_progress: called about ten times a second with the job's progress.
            on_notice: called with sentences that people may want to read meanwhile.
            on_outcome: called about ten times a second with the known outcome of what this run has
                sent, if the order has a canary or a share of failures to stop at.
            cancel: once set, the job stops after settling the messages in flight.

        Returns:
            The job after this run; the job itself if it was done already.

        Raises:
            ConfigurationError: somebody else runs it, or the journal doesn't have the complete
                order.
            BrokerUnavailable: the connection was lost and did not come back.
        """
        if self.state is State.DONE:
            return self
        if self.record.approved_by:
            raise ConfigurationError(
                f"job {self.id} was approved by {self.record.approved_by}, for the messages that "
                "were there then",
                "Ask for approval of the messages that are left.",
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
    failed: FailedQueueBase,
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
    """Run a job to its end, whether it is new or resumed.

    Args:
        failed: the failed queue.
        journal: the journal that records the job.
        record: the job.
        order: what the job does.
        plan: what it would send; None if the queue was not scanned.
        on_progress: called about ten times a second with the job's progress.
        on_notice: called with sentences that people may want to read meanwhile; logs them by
            default.
        on_outcome: called about ten times a second with the known outcome of what this run has
            sent.
        cancel: once set, the job stops after settling the messages in flight.

    Raises:
        RedriveError: the job could not continue; the journal records that too.
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
    """Check whether some of the messages read may stay in the queue.

    They stay if they were requeued too often, which is unknown if nobody scanned the queue.
    """
    return bool(plan.too_often) or (not plan.looked_at and order.most_redrives is not None)


def _watch(failed: FailedQueueBase, order: Order, plan: Plan) -> timedelta | None:
    """Return how long to watch the canary at most; None if the order decides, or without one."""
    if not order.guards.canary or order.guards.watch is not None:
        return None
    return longest_watch(failed._retry_delay(order.to), plan.retries, plan.retried_for)


def record_of(
    failed: FailedQueueBase, order: Order, plan: Plan | None, planned: int, *, id_: str, reason: str
) -> JobRecord:
    """Return the record of a new job."""
    source = source_of(failed)
    return JobRecord(
        id_,
        "requeue",
        source.name,
        failed._address,
        order.as_json(),
        reason=reason,
        planned=planned,
        plan={} if plan is None or not plan.looked_at else plan.noted(),
        exchanges=failed._exchanges.as_json(),
        literal=source.main is None,
    )


def write_down(
    failed: FailedQueueBase, journal: "LocalJournal", order: Order, plan: Plan, *, reason: str
) -> JobRecord:
    """Write a planned job down, for another process on this machine to run; return it."""
    return journal._write_down(as_planned(failed, order, plan, reason))


def as_planned(failed: FailedQueueBase, order: Order, plan: Plan, reason: str) -> JobRecord:
    """Return the record of a new job that sends what was planned, and no more."""
    if not plan.count:
        raise ConfigurationError("there is nothing to requeue", "Look at the queue again.")
    exactly = replace(order, limit=plan.count)
    return record_of(failed, exactly, plan, plan.count, id_=str(uuid.uuid4()), reason=reason)


def check_whole(record: JobRecord) -> None:
    """Check that the shared journal has everything that a job needs.

    Raises:
        ConfigurationError: it doesn't.
    """
    if not record.order:
        raise ConfigurationError(
            f"the order of job {record.id} is no longer in the shared journal, or never was",
            f"Resume it where it was begun ({record.who}), or begin a new one.",
        )
    if record.order.get(EDITS_LEFT_OUT):
        raise ConfigurationError(
            f"the bodies that job {record.id} sends are not in the shared journal",
            f"Resume it where it was begun: {record.who} has them.",
        )
