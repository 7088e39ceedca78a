"""`redrive causes split`: makes some messages of a cause one of their own."""

from typing import Annotated

import typer

from redrive.cli import job_options, options
from redrive.cli.causes_say import GroupId
from redrive.cli.output import Form, Printer
from redrive.failures.cause_book import part_id
from redrive.failures.cause_remark import CauseRemark, RemarkKind
from redrive.failures.filter import Filter, OpenFilter


@options.expanded
def split(
    group: GroupId,
    where: Annotated[
        str,
        typer.Option(
            "--where", metavar="SQL", help="Which of its messages: body->>'$.country' = 'DE'"
        ),
    ],
    name: Annotated[
        str, typer.Option("--name", metavar="TEXT", help="What the new cause is called.")
    ],
    journal: job_options.JournalFile = None,
    *,
    broker: options.BrokerOptions,
    output: options.Output = Form.TABLE,
) -> None:
    """Make some messages of a cause another one.

    Those that match the filter have a group id of their own from then on, for everybody at this
    broker; the rest keeps the former one. `redrive causes undo` takes it back.

    \b
    Example:
      redrive causes split 70659076489f --where "body->>'$.country' = 'DE'" --name Germany
    """
    printer = Printer(output)
    remark = CauseRemark(RemarkKind.SPLIT, group, where=where, name=name)
    with OpenFilter(Filter(where)):  # what is no expression is told now
        pass
    with job_options.opened_journal(printer, journal, broker.url) as opened:
        opened.remark(remark)
    new = part_id(group, name)
    printer.result({"id": remark.id, **remark.as_json(), "new_group": new})
    printer.say(f"{name} is {new} now. Undo: redrive causes undo {remark.id[:8]}")
