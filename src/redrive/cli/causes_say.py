"""`redrive causes say`: sets the state of a cause."""

from typing import Annotated

import typer

from redrive.cli import completion, job_options, options
from redrive.cli.output import OutputFormat, Printer
from redrive.errors import ConfigurationError
from redrive.failures.jobs.cause_remark import SAYABLE, CauseRemark, CauseState, RemarkKind

GroupId = Annotated[
    str,
    typer.Argument(
        metavar="GROUP",
        help="The cause: all twelve digits, as `redrive failed groups` prints them.",
        autocompletion=completion.groups,
    ),
]


@options.expanded
def say(
    group: GroupId,
    state: Annotated[
        str,
        typer.Option(
            "--state",
            metavar="STATE",
            help=f"The state: {', '.join(SAYABLE)}. The console hides muted causes unless asked to "
            "show them, and says when a fixed cause fails again.",
        ),
    ] = CauseState.KNOWN.value,
    fixed_in: Annotated[
        str,
        typer.Option(
            "--fixed-in",
            metavar="VERSION",
            help="The version that fixes it.",
            show_default=False,
        ),
    ] = "",
    note: Annotated[
        str, typer.Option("--note", metavar="TEXT", help="A note.", show_default=False)
    ] = "",
    journal: job_options.JournalFile = None,
    *,
    broker: options.BrokerOptions,
    output: options.Output = OutputFormat.TABLE,
) -> None:
    """Set the state of a cause.

    Everybody who uses this broker sees it, in the console too. The latest state counts.

    \b
    Example:
      redrive causes say 4d0f05134958 --state fixed --fixed-in 2.3.1 --note "plans are deployed"
    """
    printer = Printer(output)
    if state not in SAYABLE:
        raise ConfigurationError(
            f"there is no state {state!r}", f"Give one of {', '.join(SAYABLE)}."
        )
    remark = CauseRemark(
        RemarkKind.STATE, group, state=CauseState(state), fixed_in=fixed_in, note=note
    )
    with job_options.opened_journal(printer, journal, broker.url) as opened:
        opened.remark(remark)
    printer.result({"id": remark.id, **remark.as_json()})
    printer.say(f"{group} is {state}{f' in {fixed_in}' if fixed_in else ''}.")
