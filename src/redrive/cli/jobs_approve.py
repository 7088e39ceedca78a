"""`redrive jobs approve`: approves and runs a job that somebody else asked for."""

from functools import partial

from redrive.cli import job_options, job_run, jobs_show, options
from redrive.cli.output import OutputFormat, Printer
from redrive.failures.jobs.approval import approve as approve_job
from redrive.failures.jobs.approval_rule import check_may_approve, waits_for_none
from redrive.failures.jobs.job_record import State
from redrive.failures.queue.order import Order
from redrive.failures.queue.plan import Plan


@options.expanded
def approve(
    id_: job_options.JobId,
    journal: job_options.JournalFile = None,
    digest: job_options.Digest = None,
    yes: options.Yes = False,
    *,
    broker: job_options.RecordedJobOptions,
    output: options.Output = OutputFormat.TABLE,
) -> None:
    """Approve a job that somebody else asked for, and run it.

    It sends exactly the messages that were asked for, or none: it looks at the failed queue first.
    Whoever asked for the job can't approve it: you need a broker account of your own. At a
    terminal, the whole order is shown first. A script names the order that it approves with
    --digest; a different order under the same id is refused.

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
        order = Order.from_json(record.order)
        runs = "" if order.function is None else f", which imports and runs {order.function}"
        question = f"Approve, and start it{runs}?"
        jobs_show.check_shown(printer, record, digest, question, yes=yes)
        failed = job_run.failed_queue_of(printer, record, broker)
        run = partial(approve_job, failed, opened, record)
        plan = Plan(looked_at=record.planned, count=record.planned)
        job_run.run_job(printer, failed, order, plan, run)
