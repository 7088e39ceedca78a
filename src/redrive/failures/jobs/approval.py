"""Requeues that one person asks for and another approves; until then they wait in the journal."""

from collections.abc import Iterable
from dataclasses import replace
from typing import TYPE_CHECKING

from redrive.errors import ConfigurationError
from redrive.failures.jobs.approval_rule import waits_for_none
from redrive.failures.jobs.job import Job, as_planned, carried_out, check_whole
from redrive.failures.jobs.job_record import JobRecord, State
from redrive.failures.jobs.requeue_job import Notice, OnOutcome
from redrive.failures.message.failed_message import FailedMessage
from redrive.failures.queue.failed_queue_base import FailedQueueBase, directed
from redrive.failures.queue.message_source import answer_of
from redrive.failures.queue.order import Order
from redrive.failures.queue.plan import Plan, names_same_causes, plan_of
from redrive.failures.queue.requeue import Cancel, Progress
from redrive.failures.store.filter import Filter

if TYPE_CHECKING:
    from redrive.failures.jobs.local_journal import LocalJournal


def ask(
    failed: FailedQueueBase,
    journal: "LocalJournal",
    order: Order,
    messages: Iterable[FailedMessage],
    *,
    reason: str,
) -> JobRecord:
    """Ask for somebody else's approval; return the waiting job."""
    return ask_as_planned(
        failed, journal, order, plan_to_ask(failed, order, messages), reason=reason
    )


def plan_to_ask(failed: FailedQueueBase, order: Order, messages: Iterable[FailedMessage]) -> Plan:
    """Return what an order would send, with a fingerprint that identifies the messages."""
    direction = directed(failed, order.direction)
    return plan_of(order, messages, direction=direction, with_fingerprint=True)


def ask_as_planned(
    failed: FailedQueueBase, journal: "LocalJournal", order: Order, plan: Plan, *, reason: str
) -> JobRecord:
    """Ask for approval of a plan; return the waiting job."""
    return journal.ask(as_planned(failed, order, plan, reason))


def approve(
    failed: FailedQueueBase,
    journal: "LocalJournal",
    record: JobRecord,
    *,
    on_progress: Progress | None = None,
    on_notice: Notice | None = None,
    on_outcome: OnOutcome | None = None,
    cancel: Cancel | None = None,
) -> Job:
    """Run a job that somebody else asked for.

    The queue is read first: the job sends exactly the messages that were asked for, or none.
    """
    if record.state is not State.ASKED:
        raise waits_for_none(record)
    check_whole(record)
    order = Order.from_json(record.order)
    direction = directed(failed, order.direction)
    plan, look = answer_of(
        failed,
        lambda look: plan_of(order, look, direction=direction, with_fingerprint=True),
    )
    plan.total, plan.missing = look.total, look.missing
    _check_same(record, plan)
    # Send exactly these messages, not those that match the filter by the time they are sent.
    these = Filter(digests=frozenset(plan.digests), now=order.filter.now)
    return carried_out(
        failed,
        journal,
        replace(record, approved_by="whoever begins it"),
        replace(order, filter=these),
        plan,
        on_progress=on_progress,
        on_notice=on_notice,
        on_outcome=on_outcome,
        cancel=cancel,
    )


def _check_same(record: JobRecord, plan: Plan) -> None:
    """Raise ConfigurationError unless the plan covers exactly the messages that were asked for."""
    if (plan.count, plan.fingerprint) != (record.planned, record.plan.get("fingerprint")):
        raise ConfigurationError(
            f"the queue has changed since job {record.id} was asked for: its filter no longer "
            f"matches the same messages ({plan.count:,} of {record.planned:,} messages)",
            "Decline the job, and ask for it again.",
        )
    if not names_same_causes(plan, record.plan):
        raise ConfigurationError(
            f"job {record.id} names other causes than its messages have",
            "Decline the job, and ask for it again.",
        )
