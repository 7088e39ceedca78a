"""`redrive jobs list`: lists the jobs in the journal."""

from typing import Annotated

import typer

from redrive.cli import job_options, messages, options
from redrive.cli.output import Cell, Printer, RowsFormat, TableColumn
from redrive.failures.jobs.job_record import State
from redrive.failures.wording import job_json
from redrive.number_text import count_of

_LONGEST_NAME = 48
_SHORTEST_REASON = 12
_STYLES = {
    State.WAITING: "yellow",
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
    output: options.RowsOutput = RowsFormat.TABLE,
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
    is_narrow = messages.is_narrow(printer)
    printer.rows(
        found,
        job_json,
        {
            TableColumn("job"): lambda job: job.id[: messages.SHORT_ID],
            TableColumn("begun (UTC)"): lambda job: messages.moment_of(
                job.begun_at, short=is_narrow
            ),
            TableColumn("action", hide=4): lambda job: job.kind,
            TableColumn("queue", give=True, wrap=True, least=_LONGEST_NAME): lambda job: job.queue,
            TableColumn("state"): lambda job: Cell(job.state.value, _STYLES[job.state]),
            TableColumn("messages", "right", hide=3): lambda job: f"{job.sent:,}",
            TableColumn("who", give=True, hide=1): lambda job: job.who,
            TableColumn("why", give=True, least=_SHORTEST_REASON, hide=2): lambda job: (
                job.reason or "–"
            ),
        },
    )
    if len(found) < count:
        more = f"The {len(found):,} newest of {count_of(count, 'job')}; --limit {count} shows all."
        (printer.note if printer.for_programs else printer.say)(more)
    elif not found and not printer.for_programs:
        printer.say(f"There is no job in {where}.")
