"""`redrive failed show`: one failed message in full."""

from typing import Annotated

import typer

from redrive.cli import index_options, message_options, messages, options
from redrive.cli.message_lookup import NothingFound, find_one
from redrive.cli.output import Form, Printer
from redrive.failures.kept_messages import KeptMessages


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
    output: options.Output = Form.TABLE,
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
    with opened.looking(index=index) as (messages_, look):
        try:
            if isinstance(messages_, KeptMessages):
                messages_ = messages_.named(id_)
            message = find_one(messages_, id_, opened.name)
        except NothingFound as error:
            if not look.what_is_missing:
                raise
            raise NothingFound(
                f"none of the {look.looked_at:,} messages of {opened.name!r} that could be read "
                f"has the id {id_!r}\n"
                f"{look.what_is_missing} Try again when that has ended."
            ) from error
    facts = message_options.facts_of(look)
    printer.result(
        {**messages.json_of(message), **{name: facts[name] for name in ("answered_from", "as_of")}}
    )
    if not printer.as_json:
        messages.tell(printer, message)
