"""Runs a requeue job and reports it, for `failed requeue`, `jobs resume` and `jobs approve`."""

from collections.abc import Callable

import typer

from redrive.cli import guards, messages
from redrive.cli.interrupt import ended_by_signals
from redrive.cli.job_options import RecordedJobOptions
from redrive.cli.look_output import asked, held_by_others
from redrive.cli.output import Printer, TableColumn
from redrive.failures import wording
from redrive.failures.failed_queue import FailedQueue
from redrive.failures.jobs.job import Job
from redrive.failures.jobs.job_record import JobRecord, State
from redrive.failures.jobs.run_reporter import RunReporter
from redrive.failures.message.cause import Cause
from redrive.failures.message.route import WayBack
from redrive.failures.queue.failed_queue_base import source_of, whereabouts_of
from redrive.failures.queue.order import Order
from redrive.failures.queue.outcome_watch import MessageCounts
from redrive.failures.queue.plan import Plan
from redrive.failures.store.filter import Filter, OpenFilter
from redrive.number_text import count_of
from redrive.pubsub.reports import RequeueProgress, RequeueReport
from redrive.redaction import in_one_line
from redrive.topology.names import ExchangeFamily

_MOST_SHOWN = 20
_MOST_PLACES = 10
_INTERRUPTED = 130
_NO_PLACE = dict.fromkeys(WayBack._fields)


def failed_queue_of(printer: Printer, job: JobRecord, broker: RecordedJobOptions) -> FailedQueue:
    """Return the job's failed queue, with the exchange family that the job was started with, except
    for the parts that options override."""
    family = job.family
    if family is None:
        family = ExchangeFamily()
        if broker.exchange is None:
            printer.note(
                f"An older version did not store the exchange family of job {job.id}: assuming "
                f"{family.main!r}; --exchange names another."
            )
    return FailedQueue(
        broker.url,
        job.queue,
        broker.over(family),
        management_url=broker.management_url,
        literal=job.literal,
    )


def places_of(failed: FailedQueue, queue: str | None, plan: Plan) -> list[MessageCounts]:
    """Return the message counts and consumers of the queues that messages go to."""
    if queue is not None:
        return [whereabouts_of(failed, queue)]
    judge = plan.direction.judge
    return [whereabouts_of(failed, one, judge) for one in plan.queues[:_MOST_PLACES]]


def where_to(plan: Plan) -> str:
    """Return where messages go, as text."""
    if len(plan.ways) == 1:
        return in_one_line(str(next(iter(plan.ways))))
    return f"{len(plan.ways):,} queues"


def run_job(
    printer: Printer,
    failed: FailedQueue,
    order: Order,
    plan: Plan,
    run: Callable[..., Job],
    reporter: RunReporter | None = None,
) -> None:
    """Run a job to its end and print the result. Exit with 130 after Ctrl-C, and with 1 if some
    messages could not be sent or looked at, or if the job was stopped."""
    with ended_by_signals() as cancel, printer.progress("requeueing", plan.count) as done:

        def on_progress(so_far: RequeueProgress) -> None:
            done(so_far.requeued)
            if reporter is not None:
                reporter.progress(so_far)

        def on_notice(notice: str) -> None:
            printer.note(notice)
            if reporter is not None:
                reporter.notice(notice)

        job = run(
            on_progress=on_progress,
            on_notice=on_notice,
            on_outcome=None if reporter is None else reporter.outcome,
            cancel=cancel,
        )
        done(job.requeued)
        if reporter is not None:
            reporter.end(job.requeued)
    printer.result(json_of(job.record.queue, plan, job))
    _tell(printer, failed, job, order, plan)
    if job.cancelled:
        raise typer.Exit(_INTERRUPTED)
    if job.state is State.STOPPED and not printer.for_programs:
        tell_failed_again(printer, failed, job.record)
    if job.failed or job.held != 0 or job.state is State.STOPPED:
        raise typer.Exit(1)


def tell_failed_again(printer: Printer, failed: FailedQueue, job: JobRecord) -> None:
    """Print why messages of a job failed again."""
    with OpenFilter(Filter(lambda message: message.job == job.id)) as of_job:
        groups, _ = asked(
            printer, failed, source_of(failed).queue, lambda look: look.groups(filter_=of_job)
        )
    columns = (
        TableColumn("group"),
        TableColumn("failed again", "right"),
        TableColumn("cause", give=True, wrap=True),
    )
    rows = [
        (group.key.group_id, f"{group.count:,}", group.key.in_words)
        for group in groups.largest_first
        if isinstance(group.key, Cause)
    ]
    if rows:
        printer.table(columns, rows)


def json_of(queue: str, plan: Plan, job: Job | None) -> dict[str, object]:
    """Return what a job planned and did, as JSON values; without a job, what it would do."""
    done = job or RequeueReport(job="")
    return {
        "queue": queue,
        "planned": plan.count,
        "too_often": plan.too_often,
        "no_way_back": plan.no_way_back,
        "contradicted": plan.contradicted,
        "unchecked": plan.unchecked,
        "ways": [{**way._asdict(), "count": count} for way, count in plan.ways.most_common()],
        "routes": [
            {
                **(_NO_PLACE if route.way is None else route.way._asdict()),
                "verdict": route.verdict.value,
                "reason": route.reason,
                "count": count,
            }
            for route, count in plan.routes.most_common()
        ],
        "shared_ids": plan.shared_ids,
        "groups": [
            {"group_id": cause.group_id, **cause._asdict(), "count": count}
            for cause, count in plan.groups.most_common()
        ],
        "job": done.job or None,
        "state": None if job is None else job.state.value,
        "problem": None if job is None else job.problem or None,
        "requeued": done.requeued,
        "skipped": done.skipped,
        "possible_duplicates": 0 if job is None else job.record.possible_duplicates,
        "cancelled": done.cancelled,
        "not_tried": done.not_tried,
        "held": done.held,
        "failed": [
            {"failure_id": one.failure_id, "message_id": one.message_id, "error": str(one.error)}
            for one in done.failed
        ],
    }


def _tell(
    printer: Printer,
    failed: FailedQueue,
    job: Job,
    order: Order,
    plan: Plan,
) -> None:
    source = source_of(failed).queue
    where = order.to or job.record.queue if not plan.ways else where_to(plan)
    if job.state is State.STOPPED:
        printer.say(
            f"Stopped: {job.problem}. Nothing else was requeued: the rest is in {source}.", "red"
        )
        again = (
            f"with a new canary of {order.guards.canary:,}"
            if order.guards.canary
            else f"and stop again at {order.guards.stop_at or 0:.1%}"
        )
        printer.say(f"Once that is fixed, continue {again}: redrive jobs resume {job.id}")
    elif job.state is State.INTERRUPTED:
        printer.say(
            f"{job.problem.replace('stopped', 'Stopped', 1) or 'Stopped'}: "
            f"{job.requeued:,} of {count_of(plan.count, 'message')} requeued to "
            f"{where}, the rest is in {source}. To continue: redrive jobs resume {job.id}"
        )
    else:
        printer.say(
            f"{job.requeued:,} of {count_of(plan.count, 'message')} requeued to {where}, as job "
            f"{job.id}."
        )
    if not plan.looked_at:
        guards.tell_too_often(printer, job.skipped)
    twice = job.record.possible_duplicates
    if twice:
        printer.say(wording.possible_duplicates(twice), "yellow")
    if job.failed:
        printer.say(
            f"{count_of(len(job.failed), 'message')} could not be sent and stayed in {source}:",
            "red",
        )
        printer.table(
            (
                TableColumn("id"),
                TableColumn("message id", give=True),
                TableColumn("error", give=True, wrap=True),
            ),
            [
                (one.failure_id[: messages.SHORT_ID], one.message_id or "–", str(one.error))
                for one in job.failed[:_MOST_SHOWN]
            ],
        )
        if len(job.failed) > _MOST_SHOWN:
            printer.say(f"… and {len(job.failed) - _MOST_SHOWN:,} more; --output json prints all.")
    if job.not_tried:
        printer.say(
            f"After so many failures, {count_of(job.not_tried, 'message')} behind them were not "
            "tried.",
            "red",
        )
    if job.held != 0:
        printer.say(held_by_others(source, job.held, "still there, not looked at"), "yellow")
