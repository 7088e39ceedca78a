"""`redrive jobs list`: lists the jobs in the journal."""

from typing import Annotated

import typer

from redrive.cli import job_options, messages, options
from redrive.cli.output import Cell, OutputFormat, Printer, TableColumn, count_of
from redrive.failures.job_record import JobRecord, State

_LONGEST_NAME = 48
_SHORTEST_REASON = 12
_STYLES = {
    State.RUNNING: "cyan",
    State.DONE: "green",
    State.INTERRUPTED: "yellow",
    State.STOPPED: "red",
    State.FAILED: "red",
    State.ASKED: "yellow",
    State.DECLINED: "red",
    State.FORGOTTEN: "red",
}


@options.expanded
def list_(
    limit: Annotated[
        int, typer.Option("--limit", metavar="N", min=1, help="How many jobs to show.")
    ] = 20,
    journal: job_options.JournalFile = None,
    *,
    broker: options.BrokerOptions,
    output: options.Output = OutputFormat.TABLE,
) -> None:
    """List everybody's jobs on a broker, newest first.

    They are read from the journal at the broker. If it can't be read, a note says so, and the jobs
    of the local file are listed.

    \b
    Example:
      redrive jobs list --limit 5
    """
    printer = Printer(output)
    with job_options.opened_journal(printer, journal, broker.url) as opened:
        found = opened.jobs(limit)
        count = opened.count()
        where = f"the journal at {opened.place}" if opened.is_shared else str(opened.path)
        job_options.tell_unread(printer, opened)
    printer.result([job_options.json_of(job) for job in found])
    more = f"The {len(found):,} newest of {count_of(count, 'job')}; --limit {count} shows all."
    if printer.as_json:
        if len(found) < count:
            printer.note(more)
        return
    if not found:
        printer.say(f"There is no job in {where}.")
        return
    columns = (
        TableColumn("job"),
        TableColumn("begun (UTC)"),
        TableColumn("what", hide=4),
        TableColumn("queue", give=True, wrap=True, least=_LONGEST_NAME),
        TableColumn("state"),
        TableColumn("messages", "right", hide=3),
        TableColumn("who", give=True, hide=1),
        TableColumn("why", give=True, least=_SHORTEST_REASON, hide=2),
    )
    printer.table(columns, [_row_of(job, is_narrow=messages.is_narrow(printer)) for job in found])
    if len(found) < count:
        printer.say(more)


def _row_of(job: JobRecord, *, is_narrow: bool) -> list[str | Cell]:
    return [
        job.id[: messages.SHORT_ID],
        messages.moment_of(job.begun_at, short=is_narrow),
        job.kind,
        job.queue,
        Cell(job.state.value, _STYLES[job.state]),
        f"{job.sent:,}",
        job.who,
        job.reason or "–",
    ]
