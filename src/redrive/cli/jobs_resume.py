"""`redrive jobs resume`: continues a job that was interrupted or stopped."""

from dataclasses import replace
from typing import Annotated

import typer

from redrive.cli import guards, job_options, job_run, options, spark_command
from redrive.cli.look_output import looked_at
from redrive.cli.output import Form, Printer, count_of
from redrive.errors import ConfigurationError
from redrive.failures.canary import Unknown
from redrive.failures.job_record import JobRecord, State
from redrive.failures.journal_entry import EDITS_LEFT_OUT
from redrive.failures.order import Order
from redrive.failures.plan import plan_of
from redrive.pubsub.url import BrokerURL
from redrive.redaction import in_one_line
from redrive.topology.durations import duration_of


def _check_whole(job: JobRecord) -> None:
    """Raises ConfigurationError where the shared journal has not all that a job needs."""
    if not job.order:
        raise ConfigurationError(
            f"the beginning of job {job.id} is not in the shared journal any more, or never was",
            f"Resume it where it was begun ({job.who}), or begin a new one.",
        )
    if job.order.get(EDITS_LEFT_OUT):
        raise ConfigurationError(
            f"the bodies that job {job.id} sends are not in the shared journal",
            f"Resume it where it was begun: {job.who} has them.",
        )


@options.expanded
def resume(
    id_: job_options.JobId,
    journal: job_options.JournalFile = None,
    yes: options.Yes = False,
    watch: guards.Watch = None,
    unknown: Annotated[
        Unknown | None,
        typer.Option(
            "--unknown",
            show_default=False,
            help="What to do if the outcome of some of the canary is unknown when the watch ends. "
            "Default: what the job was begun with.",
        ),
    ] = None,
    *,
    broker: job_options.RecordedJobOptions,
    output: options.Output = Form.TABLE,
) -> None:
    """Resume a job that was interrupted or stopped.

    Messages that it has requeued are not sent again, except those that were in flight when it
    ended: they are reported as possible duplicates. Its --canary and --stop-at still apply: it
    starts with a new canary of the same size.

    \b
    Example:
      redrive jobs resume 3f2a9c1e
    """
    printer = Printer(output)
    with job_options.opened_journal(printer, journal, broker.url) as opened:
        job = opened.job(id_)
        is_on_spark = spark_command.is_on_spark(job)
        if is_on_spark and job.state is not State.DONE:
            raise ConfigurationError(
                f"job {job.id} is a {in_one_line(job.kind)}: its messages are in the archive "
                f"{in_one_line(job.file)}",
                f"Continue it there: {spark_command.command_of(job)}",
            )
        if job.kind != "requeue" and not is_on_spark:
            raise ConfigurationError(
                f"job {job.id} is a {job.kind}, not a requeue",
                "Run its command again: it takes the rest.",
            )
        if job.state is State.DONE:
            printer.result(job.as_json())
            printer.say(f"Job {job.id} is done: nothing to resume.")
            return
        if not opened.belongs_to(job, BrokerURL.parse(broker.url).address):
            raise ConfigurationError(
                f"job {job.id} belongs to {job.broker}, and --url names "
                f"{BrokerURL.parse(broker.url).address}",
                "Give the URL that it was begun with.",
            )
        _check_whole(job)
        order = Order.from_json(job.order)
        if order.function is not None:
            # The journal may be somebody else's, and to import is to run.
            printer.note(
                f"Job {job.id} changes bodies by the function {order.function}: its module will be "
                "imported and run."
            )
            if not printer.confirm(f"Run {order.function}?", yes=yes):
                printer.note("Nothing was requeued.")
                raise typer.Exit(1)
        order = replace(
            order,
            guards=replace(
                order.guards,
                watch=order.guards.watch if watch is None else duration_of(watch),
                unknown=order.guards.unknown if unknown is None else unknown,
            ),
        )
        failed = job_run.failed_queue_of(printer, job, broker)
        under_way = opened.under_way(job.id)
        plan = looked_at(
            printer,
            failed,
            failed.source().queue,
            lambda found: plan_of(order, found, under_way, job.id),
        )
        if order.limit is not None:
            plan.count = min(plan.count, max(0, order.limit - job.sent))
        left = f"{count_of(plan.count, 'message')} {'is' if plan.count == 1 else 'are'} left"
        printer.say(f"Job {job.id} has requeued {count_of(job.sent, 'message')}; {left}.")
        one_way = order.to or (None if order.via else failed.source().main)
        places = job_run.places_of(failed, one_way, plan)
        guards.tell(printer, places)
        if not guards.ask(printer, plan.count, places, guarded=order.guards.are_up, yes=yes):
            printer.note("Nothing was requeued.")
            raise typer.Exit(1)
        job = replace(job, order=order.as_json(), exchanges=failed.exchanges.as_json())
        job_run.carry_out(printer, failed, opened, job, order, plan)
