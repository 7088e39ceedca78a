"""`redrive jobs stop`: stops a running job."""

from redrive.cli import job_options, options
from redrive.cli.output import OutputFormat, Printer
from redrive.failures.jobs.job_stop import stop as stop_job
from redrive.failures.wording import job_json
from redrive.number_text import count_of
from redrive.redaction import in_one_line


@options.expanded
def stop(
    id_: job_options.JobId,
    journal: job_options.JournalFile = None,
    *,
    broker: options.BrokerOptions,
    output: options.Output = OutputFormat.TABLE,
) -> None:
    """Stop a running requeue, on any machine.

    It may run in a terminal or in a console. Messages in flight are settled first, and the rest
    stays where it is: `redrive jobs resume` continues with it. The journal records who stopped it.

    \b
    Example:
      redrive jobs stop 3f2a9c1e
    """
    printer = Printer(output)
    with job_options.opened_journal(printer, journal, broker.url) as opened:
        stop_job(opened, opened.job(id_))
    # Read it again: the process that ran it has recorded meanwhile how far it got.
    with job_options.opened_journal(printer, journal, broker.url) as opened:
        stopped = opened.job(id_)
    printer.result(job_json(stopped))
    printer.say(
        f"Job {stopped.id} of {in_one_line(stopped.queue)} is {stopped.state.value}: "
        f"{stopped.sent:,} of {count_of(stopped.planned, 'message')} requeued. To continue: "
        f"redrive jobs resume {stopped.id}"
    )
