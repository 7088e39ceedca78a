"""`redrive jobs approve`: approves and runs a job that somebody else has asked for."""

from functools import partial

import typer

from redrive.cli import job_options, job_run, options
from redrive.cli.output import Form, Printer, count_of
from redrive.failures.approval import approve as approve_job
from redrive.failures.approval_rule import check_may_approve, waits_for_none
from redrive.failures.job_record import State
from redrive.failures.order import Order
from redrive.failures.plan import Plan
from redrive.redaction import in_one_line


@options.expanded
def approve(
    id_: job_options.JobId,
    journal: job_options.JournalFile = None,
    yes: options.Yes = False,
    *,
    broker: job_options.RecordedJobOptions,
    output: options.Output = Form.TABLE,
) -> None:
    """Approve a job that somebody else has asked for, and run it.

    It sends the very messages that were asked for, or none: the failed queue is looked at first.
    Who has asked can't approve: you need a broker account of your own.

    \b
    Example:
      redrive jobs approve 3f2a9c1e
    """
    printer = Printer(output)
    with job_options.opened_journal(printer, journal, broker.url) as opened:
        record = opened.job(id_)
        if record.state is not State.ASKED:
            raise waits_for_none(record)
        check_may_approve(record, opened.signed(record))
        printer.say(
            f"{in_one_line(record.by)} asks to requeue {count_of(record.planned, 'message')} of "
            f"{in_one_line(record.queue)}: {in_one_line(record.reason) or 'no reason given'}. "
            f"See: redrive jobs show {record.id}."
        )
        if not printer.confirm("Approve, and start it?", yes=yes):
            printer.note("Nothing was requeued.")
            raise typer.Exit(1)
        failed = job_run.failed_queue_of(printer, record, broker)
        run = partial(approve_job, failed, opened, record)
        plan = Plan(looked_at=record.planned, count=record.planned)
        job_run.run_job(printer, failed, Order.from_json(record.order), plan, run)
