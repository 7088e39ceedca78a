"""`redrive jobs forget`: takes a job that nobody runs off the list."""

from redrive.cli import job_options, options
from redrive.cli.output import OutputFormat, Printer
from redrive.failures.wording import job_json
from redrive.redaction import in_one_line


@options.expanded
def forget(
    id_: job_options.JobId,
    reason: job_options.Reason = "",
    journal: job_options.JournalFile = None,
    *,
    broker: options.BrokerOptions,
    output: options.Output = OutputFormat.TABLE,
) -> None:
    """Forget a job that nobody runs: it is no longer listed or resumed.

    This is for a job that no machine has begun, or whose machine is gone. Messages are not touched,
    and `jobs show` still shows the job. To end a job that is running, use redrive jobs stop.

    \b
    Example:
      redrive jobs forget 3f2a9c1e --reason 'no such machine'
    """
    printer = Printer(output)
    with job_options.opened_journal(printer, journal, broker.url) as opened:
        forgotten = opened.forget(opened.job(id_), reason)
    printer.result(job_json(forgotten))
    printer.say(
        f"Job {forgotten.id} is forgotten: the {in_one_line(forgotten.kind)} of "
        f"{in_one_line(forgotten.queue)} by {in_one_line(forgotten.by)}."
    )
