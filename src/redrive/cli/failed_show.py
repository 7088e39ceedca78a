"""`redrive failed show`: shows one failed message in full."""

from typing import Annotated

import typer

from redrive.cli import index_options, message_options, messages, options
from redrive.cli.look_output import held_by_others
from redrive.cli.output import OutputFormat, Printer
from redrive.failures.message.failed_message import FailedMessage
from redrive.failures.store.look import Look, NothingFound


@options.expanded
@index_options.answered
def show(
    source: message_options.QueueOrFile,
    id_: Annotated[
        str,
        typer.Argument(
            metavar="ID",
            help="The failure id or its first characters, as `redrive failed list` shows them, or "
            "a message id.",
        ),
    ],
    *,
    index: index_options.IndexOptions,
    broker: options.SourceOptions,
    output: options.Output = OutputFormat.TABLE,
) -> None:
    """Show one failed message in full.

    It prints the message's error, route, headers, body and traceback. It exits with 1 if there is
    no such message.

    \b
    Example:
      redrive failed show ucenter@user 3f2a9c1e
    """
    printer = Printer(output)
    opened = message_options.Source(printer, source, broker)

    def named(look: Look) -> FailedMessage:
        try:
            return look.named(id_)
        except NothingFound as error:
            if look.missing == 0:
                raise
            held = held_by_others(opened.name, look.missing, "missing from this answer")
            raise NothingFound(
                f"none of the {look.looked_at:,} messages of {opened.name!r} that could be read "
                f"has the id {id_!r}\n{held} Try again when that has ended."
            ) from error

    message, look = opened.ask(named, index=index)
    as_of = None if look.as_of is None else look.as_of.isoformat()
    printer.result(
        {**messages.json_of(message), "answered_from": look.answered_from, "as_of": as_of}
    )
    if not printer.for_programs:
        messages.tell(printer, message)
