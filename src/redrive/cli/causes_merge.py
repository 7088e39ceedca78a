"""`redrive causes merge`: makes two causes one."""

from typing import Annotated

import typer

from redrive.cli import job_options, options
from redrive.cli.causes_say import GroupId
from redrive.cli.output import OutputFormat, Printer
from redrive.failures.cause_note import CauseNote, NoteKind


@options.expanded
def merge(
    group: GroupId,
    into: Annotated[str, typer.Argument(metavar="INTO", help="The cause that it is the same as.")],
    journal: job_options.JournalFile = None,
    *,
    broker: options.BrokerOptions,
    output: options.Output = OutputFormat.TABLE,
) -> None:
    """Make two causes one.

    Their messages are one group from then on, for everybody at this broker, and either id means
    all of them. `redrive causes undo` takes it back.

    \b
    Example:
      redrive causes merge 230fc6233ca4 70659076489f
    """
    printer = Printer(output)
    remark = CauseNote(NoteKind.MERGE, group, into=into)
    with job_options.opened_journal(printer, journal, broker.url) as opened:
        opened.remark(remark)
    printer.result({"id": remark.id, **remark.as_json()})
    printer.say(f"{group} is the same as {into} now. Undo: redrive causes undo {remark.id[:8]}")
