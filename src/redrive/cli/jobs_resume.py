"""`redrive jobs resume`: continues a job that was interrupted or stopped."""

from functools import partial
from typing import Annotated

import typer

from redrive.cli import guards, job_options, job_run, jobs_show, options, spark_command
from redrive.cli.look_output import check_read, showing, tell_missing
from redrive.cli.output import OutputFormat, Printer
from redrive.errors import ConfigurationError
from redrive.failures.jobs.job_record import State
from redrive.failures.queue.canary import Unknown
from redrive.failures.queue.failed_queue_base import source_of
from redrive.number_text import count_of
from redrive.redaction import in_one_line


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
            "Default: what the job was started with.",
        ),
    ] = None,
    *,
    broker: job_options.RecordedJobOptions,
    output: options.Output = OutputFormat.TABLE,
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
        record = opened.job(id_)
        is_on_spark = spark_command.is_on_spark(record)
        if is_on_spark and record.state is not State.DONE:
            raise ConfigurationError(
                f"job {record.id} is a {in_one_line(record.kind)}: its messages are in the archive "
                f"{in_one_line(record.file)}",
                f"Continue it there: {spark_command.command_of(record)}",
            )
        if (record.kind == "requeue" or is_on_spark) and record.state is State.DONE:
            printer.result(record.as_json())
            printer.say(f"Job {record.id} is done: nothing to resume.")
            return
        failed = job_run.failed_queue_of(printer, record, broker)
        job = failed.job(record.id, opened)
        order = job.order
        if order.function is not None:
            # The journal may be somebody else's, and importing a module runs it.
            printer.note(
                f"Job {job.id} changes bodies by the function {order.function}: its module will be "
                "imported and run."
            )
            if not printer.confirm(f"Run {order.function}?", yes=yes):
                printer.note("Nothing was requeued.")
                raise typer.Exit(1)
        name = source_of(failed).queue
        with showing(printer, name) as told:
            plan = job.left(on_progress=told)
        tell_missing(printer, name, plan.missing)
        check_read(name, plan.looked_at, plan.missing)
        left = f"{count_of(plan.count, 'message')} {'is' if plan.count == 1 else 'are'} left"
        jobs_show.tell_facts(printer, jobs_show.order_of(record))
        printer.say(f"Job {job.id} has requeued {count_of(record.sent, 'message')}; {left}.")
        one_way = order.to or (None if order.via else source_of(failed).main)
        places = job_run.places_of(failed, one_way, plan)
        guards.tell(printer, places)
        if not guards.ask(printer, plan.count, places, guarded=order.guards.are_up, yes=yes):
            printer.note("Nothing was requeued.")
            raise typer.Exit(1)
        run = partial(job.resume, plan, watch=watch, unknown=unknown)
        job_run.run_job(printer, failed, order, plan, run)
