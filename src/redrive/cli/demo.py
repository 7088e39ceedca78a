"""`redrive demo`: a handful of orders on their way through a bug and its fix, on a real broker."""

import logging
from typing import Annotated

import typer

from redrive.cli import options
from redrive.cli.output import Form, Printer
from redrive.cli.story import Story


def demo(
    url: Annotated[
        str | None,
        typer.Option(
            "--url",
            envvar=options.URL_VARIABLE,
            metavar="URL",
            show_default=False,
            help="A broker to use, in queues of the demo's own that it deletes again; without one, a private broker is started.",
        ),
    ] = None,
    exchange: Annotated[
        str | None,
        typer.Option("--exchange", metavar="NAME", show_default=False, help="The main exchange; without one, a new one of the demo's own."),
    ] = None,
    output: options.Output = Form.TABLE,
) -> None:
    """Watch a handful of messages fail, wait, be tried again, be set aside, and come back after the fix.

    It starts a private RabbitMQ, which is gone afterwards, and takes less than half a minute. With --output json the last line holds what
    was counted. It exits with 1 if a message was lost.

    \b
    Example:
      redrive demo
    """
    printer = Printer(output)
    # The worker's warnings are part of the story here, and it tells them itself.
    logging.getLogger("redrive").addHandler(logging.NullHandler())
    if url is not None:
        tally = Story(printer, url, exchange).tell()
    else:
        from redrive.testing import private_broker

        printer.say("Starting a private RabbitMQ. This takes some seconds.")
        with private_broker() as broker:
            tally = Story(printer, broker.url, exchange).tell()
    raise typer.Exit(1 if tally.lost else 0)
