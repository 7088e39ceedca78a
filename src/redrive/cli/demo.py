"""`redrive demo`: a handful of orders on their way through a bug and its fix, on a real broker."""

import logging
from typing import Annotated

import typer

from redrive.cli import environment, options
from redrive.cli.demo_story import Demo
from redrive.cli.output import OutputFormat, Printer


def demo(
    url: Annotated[
        str | None,
        typer.Option(
            "--url",
            envvar=environment.URL_VARIABLE,
            metavar="URL",
            show_default=False,
            help="A broker to use; the demo creates its own queues there and deletes them. "
            "Default: a private broker that the demo starts.",
        ),
    ] = None,
    exchange: Annotated[
        str | None,
        typer.Option(
            "--exchange",
            metavar="NAME",
            show_default=False,
            help="The main exchange. Default: a new one of the demo's own.",
        ),
    ] = None,
    output: options.Output = OutputFormat.TABLE,
) -> None:
    """Watch messages fail and come back.

    A handful of messages fail, are retried after a delay, are given up, and are requeued after the
    fix. It starts a private RabbitMQ, removes it at the end, and takes less than half a minute.
    With --output json the last line has the counts. It exits with 1 if a message was lost.

    \b
    Example:
      redrive demo
    """
    printer = Printer(output)
    # The worker's warnings are part of the story here, and it tells them itself.
    logging.getLogger("redrive").addHandler(logging.NullHandler())
    if url is not None:
        tally = Demo(printer, url, exchange).tell()
    else:
        from redrive.testing import private_broker

        printer.say("Starting a private RabbitMQ. This takes a few seconds.")
        with private_broker() as broker:
            tally = Demo(printer, broker.url, exchange).tell()
    raise typer.Exit(1 if tally.lost else 0)
