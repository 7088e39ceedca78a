"""`redrive jobs decline`: declines a job that waits for approval."""

from redrive.cli import job_options, options
from redrive.cli.output import OutputFormat, Printer
from redrive.failures.jobs.approval_rule import is_same
from redrive.failures.wording import job_json
from redrive.number_text import count_of
from redrive.redaction import in_one_line


@options.expanded
def decline(
    id_: job_options.JobId,
    reason: job_options.Reason = "",
    journal: job_options.JournalFile = None,
    *,
    broker: options.BrokerOptions,
    output: options.Output = OutputFormat.TABLE,
) -> None:
    """Decline a job that somebody asked for, so that it never runs.

    Whoever asked for a job can withdraw it this way. To send the messages after all, ask for a new
    job.

    \b
    Example:
      redrive jobs decline 3f2a9c1e --reason 'wait for the fix of plans'
    """
    printer = Printer(output)
    with job_options.opened_journal(printer, journal, broker.url) as opened:
        declined = opened.decline(opened.job(id_), reason)
        is_own = is_same(declined, opened.signed(declined))
    printer.result(job_json(declined))
    what = f"the requeue of {count_of(declined.planned, 'message')} of "
    printer.say(
        f"Job {declined.id} is {'withdrawn' if is_own else 'declined'}: {what}"
        f"{in_one_line(declined.queue)}, asked for by {in_one_line(declined.by)}."
    )
