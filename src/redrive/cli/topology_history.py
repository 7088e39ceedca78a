"""`redrive topology history`: keeps a copy of each failure in a stream."""

from typing import Annotated

import typer

from redrive.cli import options
from redrive.cli.output import OutputFormat, Printer
from redrive.duration_text import format_duration
from redrive.pubsub.blocking.connection import Connector, default_name
from redrive.pubsub.blocking.declarer import declaring
from redrive.topology.durations import duration_of
from redrive.topology.history import DEFAULT_MAX_AGE, history_binding, history_queue


@options.expanded
def history(
    max_age: Annotated[
        str,
        typer.Option(
            "--max-age", metavar="DURATION", help="How long a failure is kept: 12h, 7d, 30d."
        ),
    ] = format_duration(DEFAULT_MAX_AGE),
    dry_run: options.DryRun = False,
    *,
    broker: options.FamilyOptions,
    output: options.Output = OutputFormat.TABLE,
) -> None:
    """Keep a copy of each failure for a time, in a stream.

    A console that was not running can then catch up on what has failed in the meantime, without a
    look at any failed queue. Without a history, it uses a queue of its own and only sees failures
    after its start. A second run changes nothing; an existing history keeps its age.

    \b
    Example:
      redrive topology history --max-age 30d
    """
    printer = Printer(output)
    stream = history_queue(broker.family, duration_of(max_age, "--max-age"))
    with declaring(Connector(broker.url, default_name("history", stream.name))) as declarer:
        is_there = declarer.exists(stream)
        if not dry_run:
            if not is_there:
                declarer.declare(stream)
            declarer.declare(history_binding(broker.family))
    state = "exists" if is_there else "would be created" if dry_run else "created"
    printer.result(
        {"stream": stream.name, "state": state, "max_age": format_duration(duration_of(max_age))}
    )
    printer.say(f"Stream {stream.name}: {state}.")
