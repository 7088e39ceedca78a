"""`redrive watch`: alerts somebody when failed queues grow."""

import os
import shlex
import subprocess
from typing import Annotated

import typer

from redrive.cli import completion, options
from redrive.cli.interrupt import interruptible
from redrive.cli.output import OutputFormat, Printer, print_json
from redrive.errors import BrokerUnavailable, ConfigurationError
from redrive.failures.failed_queue import FailedQueue
from redrive.failures.queue.failed_queue_base import source_of
from redrive.number_text import count_of
from redrive.pubsub.blocking.declarer import Depth
from redrive.topology.durations import duration_of

_CALM = 0.9
"""Share of the threshold at which a queue is calm again, so that a queue that goes up and down
around its threshold alerts only once."""


class ThresholdAlarm:
    """An alarm for queues that grow above a threshold, which rearms only once a queue has been
    well below it."""

    def __init__(self, above: int) -> None:
        self._above = above
        self._told: set[str] = set()

    def crosses(self, queue: str, depth: int, *, is_all: bool = True) -> bool:
        """Return whether to alert now: the queue is above the threshold, and has been calm
        since the last alert, if there was one."""
        if is_all and depth <= self._above * _CALM:
            self._told.discard(queue)
        return depth > self._above and queue not in self._told

    def told(self, queue: str) -> None:
        """Record that an alert was sent."""
        self._told.add(queue)


_ALERT_TIMEOUT = 30.0
"""Seconds that a command or a webhook may take."""


@options.expanded
def watch(
    queues: Annotated[
        list[str],
        typer.Argument(
            metavar="QUEUE",
            help="Main queues, such as ucenter@user, or any dead-letter queues.",
            autocompletion=completion.queues,
        ),
    ],
    above: Annotated[
        int,
        typer.Option(
            "--above",
            metavar="N",
            min=0,
            help="Alert when a failed queue has more messages than this.",
        ),
    ],
    command: Annotated[
        str | None,
        typer.Option(
            "--command",
            metavar="COMMAND",
            show_default=False,
            help="A program to run on an alert, with its arguments and without a shell; "
            "REDRIVE_QUEUE, REDRIVE_FAILED and REDRIVE_ABOVE are set for it. For a shell: "
            "\"sh -c '…'\".",
        ),
    ] = None,
    webhook: Annotated[
        str | None,
        typer.Option(
            "--webhook",
            metavar="URL",
            show_default=False,
            help="Where to POST JSON on an alert: queue, failed, above.",
        ),
    ] = None,
    every: Annotated[
        str, typer.Option("--every", metavar="DURATION", help="How often to check.")
    ] = "10s",
    once: Annotated[
        bool,
        typer.Option(
            "--once",
            help="Check once, and exit with 1 on an alert, or 2 if a queue could not be checked: "
            "for cron.",
        ),
    ] = False,
    *,
    broker: options.SourceOptions,
    output: options.Output = OutputFormat.TABLE,
) -> None:
    """Alert when failed queues grow.

    It alerts once when a queue has more messages than --above, and again only after the queue has
    gone down to nine tenths of that. Messages that somebody is reading count too, as the management
    API reports them. If the command or the webhook fails, it is tried again at the next check. It
    runs until Ctrl-C.

    \b
    Example:
      redrive watch ucenter@user --above 100 --command ./page-somebody
    """
    printer = Printer(output)
    pause = duration_of(every).total_seconds()
    words = _words_of(command)
    failed = {
        queue: FailedQueue(
            broker.url,
            queue,
            broker.family,
            management_url=broker.management_url,
            literal=broker.literal,
        )
        for queue in queues
    }
    crossings = ThresholdAlarm(above)
    with interruptible() as stop:
        while not stop.is_set():
            depths = _depths(printer, failed, once=once)
            crossed = [
                (queue, depth.total)
                for queue, depth in depths.items()
                if crossings.crosses(queue, depth.total, is_all=depth.held is not None)
            ]
            for queue, depth in crossed:
                _say(printer, queue, source_of(failed[queue]).queue, depth, above)
                if _tell(printer, queue, depth, above, words, webhook):
                    crossings.told(queue)
            if once:
                raise typer.Exit(1 if crossed else 0 if depths.keys() == failed.keys() else 2)
            stop.wait(pause)
    raise KeyboardInterrupt


def _words_of(command: str | None) -> list[str] | None:
    try:
        words = None if command is None else shlex.split(command)
    except ValueError as error:
        raise ConfigurationError(
            f"the command {command!r} is not quoted correctly: {error}", "Quote it as for a shell."
        ) from error
    if words == []:
        raise ConfigurationError("the command is empty", "Name a program.")
    return words


def _depths(printer: Printer, failed: dict[str, FailedQueue], *, once: bool) -> dict[str, Depth]:
    """Return the depths of the failed queues that the broker reports. A note says why others are
    missing, and that they are checked again unless `once`."""
    found: dict[str, Depth] = {}
    for queue, one in failed.items():
        try:
            depth = one.count()
            if depth is None:
                one.depth()  # raises the reason
            else:
                found[queue] = depth
        except BrokerUnavailable as error:
            reason = str(error).partition("\n")[0]
            printer.note(f"Error: {error}" if once else f"{reason} Checking again later.")
    return found


def _say(printer: Printer, queue: str, place: str, depth: int, above: int) -> None:
    if printer.for_programs:
        print_json(_facts(queue, depth, above))
    else:
        printer.say(
            f"{count_of(depth, 'message')} in {place}: more than {above:,}.",
            "bold yellow",
        )


def _facts(queue: str, depth: int, above: int) -> dict[str, object]:
    return {"queue": queue, "failed": depth, "above": above}


def _tell(
    printer: Printer,
    queue: str,
    depth: int,
    above: int,
    words: list[str] | None,
    webhook: str | None,
) -> bool:
    """Run the command and call the webhook, if given; return whether both worked."""
    done = True
    if words is not None:
        done &= _run(
            printer,
            words,
            {"REDRIVE_QUEUE": queue, "REDRIVE_FAILED": str(depth), "REDRIVE_ABOVE": str(above)},
        )
    if webhook is not None:
        done &= _post(printer, webhook, _facts(queue, depth, above))
    return done


def _run(printer: Printer, words: list[str], environment: dict[str, str]) -> bool:
    try:
        ended = subprocess.run(
            words, env={**os.environ, **environment}, timeout=_ALERT_TIMEOUT, check=False
        ).returncode
    except (OSError, subprocess.TimeoutExpired) as error:
        printer.note(f"The command {words[0]!r} could not be run: {error}")
        return False
    if ended:
        printer.note(f"The command {words[0]!r} ended with {ended}.")
    return not ended


def _post(printer: Printer, webhook: str, facts: dict[str, object]) -> bool:
    import httpx

    try:
        httpx.post(webhook, json=facts, timeout=_ALERT_TIMEOUT).raise_for_status()
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        printer.note(f"The webhook {webhook} could not be reached: {error}")
        return False
    return True
