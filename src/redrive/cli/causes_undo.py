"""`redrive causes undo`: undoes a remark on a cause."""

from typing import Annotated

import typer

from redrive.cli import cause_options, job_options, options
from redrive.cli.output import OutputFormat, Printer
from redrive.failures.jobs.cause_remark import CauseRemark, RemarkKind


@options.expanded
def undo(
    remark: Annotated[
        str,
        typer.Argument(
            metavar="REMARK",
            help="The remark's id or its first characters; see `redrive causes list`.",
        ),
    ],
    journal: job_options.JournalFile = None,
    *,
    broker: options.BrokerOptions,
    output: options.Output = OutputFormat.TABLE,
) -> None:
    """Undo a remark on a cause.

    \b
    Example:
      redrive causes undo 8f14e45f
    """
    printer = Printer(output)
    with job_options.opened_journal(printer, journal, broker.url) as opened:
        undone = opened.causes().named(remark)
        opened.remark(CauseRemark(RemarkKind.UNDO, undone.group, undone.words, undoes=undone.id))
    printer.result({"undone": undone.id})
    printer.say(f"Undone for {undone.group}: {cause_options.words_of(undone)}")
