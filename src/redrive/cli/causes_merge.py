"""`redrive causes merge`: merges two causes."""

from typing import Annotated

import typer

from redrive.cli import job_options, options
from redrive.cli.causes_say import GroupId
from redrive.cli.output import OutputFormat, Printer
from redrive.failures.jobs.cause_remark import CauseRemark, RemarkKind


@options.expanded
def merge(
    group: GroupId,
    into: Annotated[str, typer.Argument(metavar="INTO", help="The cause to merge it into.")],
    journal: job_options.JournalFile = None,
    *,
    broker: options.BrokerOptions,
    output: options.Output = OutputFormat.TABLE,
) -> None:
    """Merge two causes.

    Their messages are one group from then on, for everybody who uses this broker, and either id
    stands for the whole group. `redrive causes undo` undoes it.

    \b
    Example:
      redrive causes merge 230fc6233ca4 70659076489f
    """
    printer = Printer(output)
    remark = CauseRemark(RemarkKind.MERGE, group, into=into)
    with job_options.opened_journal(printer, journal, broker.url) as opened:
        opened.remark(remark)
    printer.result({"id": remark.id, **remark.as_json()})
    printer.say(f"{group} is the same as {into} now. Undo: redrive causes undo {remark.id[:8]}")
