"""Runs a job that sends messages back, and tells of it: what `failed requeue` and `jobs resume` share."""

from datetime import timedelta
from pathlib import Path
from typing import Annotated

import typer

from redrive.cli import messages
from redrive.cli.grouping import cause_in_words
from redrive.cli.interrupting import interruptible
from redrive.cli.looking import looking
from redrive.cli.output import Column, Printer, count_of
from redrive.failures.canary import longest_watch
from redrive.failures.cause import Cause
from redrive.failures.groups import Groups
from redrive.failures.job import Requeueing
from redrive.failures.journal import Journal
from redrive.failures.order import Order
from redrive.failures.plan import Plan
from redrive.failures.record import Job, State
from redrive.pubsub.blocking.failed import FailedQueue
from redrive.pubsub.report import RequeueReport
from redrive.topology.moves import MOST_REDRIVES
from redrive.topology.names import failed_queue

_MOST_SHOWN = 20
_INTERRUPTED = 130

JournalFile = Annotated[
    Path | None,
    typer.Option(
        "--journal", metavar="FILE", show_default=False, help="The journal of jobs; without it, one in the user's state directory."
    ),
]


def carry_out(printer: Printer, failed: FailedQueue, journal: Journal, job: Job, order: Order, plan: Plan) -> None:
    """Runs a job to its end, and says what became of it. It exits with 130 after Ctrl-C, and with 1 where not all could be sent."""
    with interruptible() as cancel, printer.progress("sending back", plan.count) as done:
        requeueing = Requeueing(
            failed, journal, job, order, some_stay=_some_stay(order, plan), watch=_longest_watch(failed, order, plan), note=printer.note
        )
        job, report = requeueing.run(lambda so_far: done(so_far.requeued), cancel)
        done(report.requeued)
    printer.result(json_of(job.queue, plan, job, report))
    _tell(printer, job, order, plan, report)
    if report.cancelled:
        raise typer.Exit(_INTERRUPTED)
    if job.state is State.STOPPED:
        tell_failed_again(printer, failed, job)
    if report.failed or job.state is State.STOPPED:
        raise typer.Exit(1)


def _some_stay(order: Order, plan: Plan) -> bool:
    """Whether messages may be among those taken that are not to go: were sent back too often, or may have been where nobody looked."""
    return bool(plan.too_often) or (not plan.looked_at and order.most_redrives is not None)


def _longest_watch(failed: FailedQueue, order: Order, plan: Plan) -> timedelta | None:
    """How long the canary is watched at most, where nobody said."""
    if not order.canary or order.watch is not None:
        return None
    return longest_watch(failed.retry_delay(order.to), plan.retries, plan.retried_for)


def tell_failed_again(printer: Printer, failed: FailedQueue, job: Job) -> None:
    """Why messages of a job were set aside again."""
    groups = Groups()
    with looking(printer, failed, failed_queue(job.queue)) as (messages_, _):
        groups.add(message for message in messages_ if message.job == job.id)
    if not printer.as_json:
        columns = (Column("group"), Column("failed again", "right"), Column("cause", give=True, wrap=True))
        rows = [
            (group.key.group_id, f"{group.count:,}", cause_in_words(group.key))
            for group in groups.largest_first
            if isinstance(group.key, Cause)
        ]
        if rows:
            printer.table(columns, rows)


def json_of(queue: str, plan: Plan, job: Job | None, report: RequeueReport | None) -> dict[str, object]:
    """What a job plans to do, and did: nothing yet where there is none."""
    done = report or RequeueReport(job="")
    return {
        "queue": queue,
        "planned": plan.count,
        "too_often": plan.too_often,
        "shared_ids": plan.shared_ids,
        "groups": [{"group_id": cause.group_id, **cause._asdict(), "count": count} for cause, count in plan.groups.most_common()],
        "job": done.job or None,
        "state": None if job is None else job.state.value,
        "problem": None if job is None else job.problem or None,
        "requeued": done.requeued,
        "skipped": done.skipped,
        "possible_duplicates": 0 if job is None else job.possible_duplicates,
        "cancelled": done.cancelled,
        "not_tried": done.not_tried,
        "failed": [{"failure_id": one.failure_id, "message_id": one.message_id, "error": str(one.error)} for one in done.failed],
    }


def _tell(printer: Printer, job: Job, order: Order, plan: Plan, report: RequeueReport) -> None:
    where, source = order.to or job.queue, failed_queue(job.queue)
    if job.state is State.STOPPED:
        printer.say(f"Stopped: {job.problem}. Nothing else was sent: the rest is in {source}.", "red")
        again = f"with a new canary of {order.canary:,}" if order.canary else f"and stops again at {order.stop_at or 0:.1%}"
        printer.say(f"When that is solved: redrive jobs resume {job.id} goes on, {again}.")
    elif job.state is State.INTERRUPTED:
        printer.say(
            f"Stopped: {report.requeued:,} of {count_of(plan.count, 'message')} sent back to {where}, the rest is in {source}. "
            f"To go on: redrive jobs resume {job.id}"
        )
    else:
        printer.say(f"{report.requeued:,} of {count_of(plan.count, 'message')} sent back to {where}, as job {job.id}.")
    if report.skipped and not plan.looked_at:
        printer.say(
            f"{count_of(report.skipped, 'message')} stay: sent back {MOST_REDRIVES} times already; --force sends them all the same.",
            "yellow",
        )
    if job.possible_duplicates:
        printer.say(
            f"{count_of(job.possible_duplicates, 'message')} may be there twice: the connection or the process was lost while they were on "
            "their way.",
            "yellow",
        )
    if report.failed:
        printer.say(f"{count_of(len(report.failed), 'message')} could not be sent, and stay in {source}:", "red")
        printer.table(
            (Column("id"), Column("message id", give=True), Column("error", give=True, wrap=True)),
            [(one.failure_id[: messages.SHORT_ID], one.message_id or "–", str(one.error)) for one in report.failed[:_MOST_SHOWN]],
        )
        if len(report.failed) > _MOST_SHOWN:
            printer.say(f"… and {len(report.failed) - _MOST_SHOWN:,} more; --output json has all of them.")
    if report.not_tried:
        printer.say(f"After so many that could not be sent, {count_of(report.not_tried, 'message')} behind them were not tried.", "red")
