"""`redrive pause` and `redrive resume`: stop the workers of a subscription from taking messages."""

from typing import Annotated

import typer

from redrive.cli import options
from redrive.cli.output import OutputFormat, Printer
from redrive.failures.queue.pauses import order
from redrive.pubsub.blocking.connection import Connector, default_name
from redrive.pubsub.blocking.declarer import declaring
from redrive.topology.control import Control

Reason = Annotated[
    str, typer.Option("--reason", metavar="TEXT", help="Why; shown wherever the pause is.")
]


@options.expanded
def pause(
    queue: options.Queue,
    reason: Reason = "",
    duration: Annotated[
        str | None,
        typer.Option(
            "--for",
            metavar="DURATION",
            help="How long: 30m, 2h. Default: until redrive resume.",
            show_default=False,
        ),
    ] = None,
    rate: Annotated[
        str | None,
        typer.Option(
            "--rate",
            metavar="N/s",
            help="Go slower instead of stopping: the most messages that all workers together begin "
            "per second, minute or hour, such as 10/s, 30/m, 500/h.",
            show_default=False,
        ),
    ] = None,
    *,
    broker: options.FamilyOptions,
    output: options.Output = OutputFormat.TABLE,
) -> None:
    """Stop a subscription's workers from taking messages.

    Workers notice it wherever they run, within two seconds. They finish what is running, and return
    the rest to the queue uncounted. Workers that start later keep to it. The broker keeps the
    pause, in a small stream of the exchange family (master.control), until redrive resume, or until
    its time is over.

    Workers of a version that does not know pauses go on. So do those whose user may not read the
    stream; they say so in their log.

    \b
    Examples:
      redrive pause ucenter@user --reason "migration of the user table" --for 30m
      redrive pause ucenter@user --rate 10/s
    """
    written = order(
        broker.url,
        broker.family,
        queue,
        "pause",
        reason=reason,
        duration=duration,
        rate=rate,
    )
    _tell(Printer(output), broker.url, written)


@options.expanded
def resume(
    queue: options.Queue,
    reason: Reason = "",
    *,
    broker: options.FamilyOptions,
    output: options.Output = OutputFormat.TABLE,
) -> None:
    """Let a paused subscription go on.

    Its workers take messages as usual. This ends a rate of redrive pause --rate, too.

    \b
    Example:
      redrive resume ucenter@user
    """
    written = order(broker.url, broker.family, queue, "resume", reason=reason)
    _tell(Printer(output), broker.url, written)


def _tell(printer: Printer, url: str, written: Control) -> None:
    with declaring(Connector(url, default_name(written.action, written.queue))) as declarer:
        depth = declarer.depth(written.queue)
    printer.result(
        {
            "queue": written.queue,
            "action": written.action,
            **written.as_json(),
            "consumers": None if depth is None else depth.consumers,
        }
    )
    if printer.for_programs:
        return
    if written.action == "resume":
        printer.say(f"{written.queue} is resumed.")
    else:
        end = "" if written.until is not None else f" It ends with: redrive resume {written.queue}"
        printer.say(f"{written.queue} is {written}.{end}")
    if depth is None:
        printer.note(f"There is no queue {written.queue}; this holds for workers that create it.")
    elif not depth.consumers and written.action == "pause":
        printer.note("Nobody consumes it now; workers that start keep to it.")
