"""`redrive failed try`: runs a handler over copies of failed messages, before any is requeued."""

import shlex
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import Annotated

import typer

from redrive.cli import cause_options, completion, message_options, options
from redrive.cli.look_output import asked
from redrive.cli.output import OutputFormat, Printer, TableColumn
from redrive.errors import ConfigurationError
from redrive.failures.message.failed_message import FailedMessage
from redrive.failures.queue.snapshot import Snapshot
from redrive.failures.rehearsal.rehearsal import Handler, HandlerRefused, Rehearsal, rehearse
from redrive.failures.store.filter import Filter, OpenFilter
from redrive.failures.store.look import FirstMessages
from redrive.number_text import count_of
from redrive.topology.durations import duration_of

_MOST_CAUSES = 20


@options.expanded
def try_(
    queue: Annotated[
        str,
        typer.Argument(
            metavar="QUEUE",
            help="The main queue's name, such as ucenter@user, or any dead-letter queue's.",
            autocompletion=completion.queues,
        ),
    ],
    handler: Annotated[
        str | None,
        typer.Option(
            "--handler",
            metavar="MODULE:NAME",
            show_default=False,
            help="The app that handles them, or a subscriber or a function: shop.service:app.",
        ),
    ] = None,
    command: Annotated[
        str | None,
        typer.Option(
            "--command",
            metavar="COMMAND",
            show_default=False,
            help="Instead of --handler: a command that reads messages as lines of JSON and answers "
            "each with a line.",
        ),
    ] = None,
    within: Annotated[
        str | None,
        typer.Option(
            "--within",
            metavar="MODULE:NAME",
            show_default=False,
            help="A function that returns a context manager for a message, such as a transaction "
            "that is rolled back. The handler runs inside it.",
        ),
    ] = None,
    where: message_options.Where = None,
    groups: message_options.Group = None,
    archive: message_options.Archive = None,
    limit: Annotated[
        int,
        typer.Option("--limit", metavar="N", min=1, help="How many messages to try, oldest first."),
    ] = 100,
    jobs: Annotated[
        int,
        typer.Option("--jobs", metavar="N", min=1, max=256, help="How many to try at a time."),
    ] = 4,
    timeout: Annotated[
        str,
        typer.Option(
            "--timeout",
            metavar="DURATION",
            help="How long a handler may run that has no handler_timeout.",
        ),
    ] = "60s",
    junit: Annotated[
        Path | None,
        typer.Option(
            "--junit",
            metavar="FILE",
            show_default=False,
            help="Also write the result to this file, as the XML that pipelines read.",
        ),
    ] = None,
    console: Annotated[
        str | None,
        typer.Option(
            "--console",
            metavar="URL",
            show_default=False,
            help="Also print the address of the plan, in the console at this address, of the "
            "messages that would succeed.",
        ),
    ] = None,
    yes: options.Yes = False,
    *,
    broker: options.SourceOptions,
    output: options.Output = OutputFormat.TABLE,
) -> None:
    """Try a handler on failed messages, before any is requeued.

    The handler runs over copies of the messages, with its dependencies, middleware and decoders as
    in the worker, each time in a process that may hang or die. The messages stay where they are:
    nothing is sent or acked, and what the app would publish is only counted. All other effects are
    real, such as writes to a database: --within puts the handler into a context that undoes them.
    Without it, the command asks first. It exits with 1 if a message would fail.

    \b
    Example:
      redrive failed try ucenter@user --handler shop.service:app --within tests.rehearsal:undone
    """
    printer = Printer(output)
    tried = Handler(
        handler or "",
        tuple(shlex.split(command or "")),
        within or "",
        duration_of(timeout, "the timeout").total_seconds(),
    )
    found, name = chosen_messages(
        printer,
        queue,
        broker,
        message_options.filter_of(where, groups),
        archive,
        lambda left: (list(islice(left, limit)), sum(1 for _ in left)),
    )
    chosen = found.messages
    if found.matching > len(chosen):
        printer.note(
            f"Trying the {len(chosen):,} oldest of {count_of(found.matching, 'message')}; "
            f"--limit {found.matching} tries all."
        )
    if (
        chosen
        and not within
        and not printer.confirm(
            "Only what redrive publishes is held back; other effects of the handler are real, "
            f"unless --within undoes them. Run it over {count_of(len(chosen), 'message')}?",
            yes=yes,
        )
    ):
        printer.note("Nothing was tried.")
        raise typer.Exit(1)
    with printer.progress("trying", len(chosen)) as done:
        try:
            result = rehearse(chosen, tried, queue=queue, jobs=jobs, on_progress=done)
        except HandlerRefused as refused:
            if refused.traceback and not printer.for_programs:
                printer.block(refused.traceback)
            raise
    if junit is not None:
        _write(junit, result.junit())
    printer.result(result.as_json())
    if not chosen:
        printer.say(f"No message of {name} matches: nothing to try.")
        return
    _tell(printer, result)
    if console is not None and result.good:
        link = result.plan_link(console, literal=broker.literal)
        printer.say(
            f"\nPlan of what would succeed: {link}"
            if link
            else "\nThey are too many for an address: redrive failed requeue --rehearsed FILE "
            "requeues what would succeed."
        )
    if not result.is_good:
        raise typer.Exit(1)


def chosen_messages(
    printer: Printer,
    queue: str,
    broker: options.SourceOptions,
    filter_: Filter,
    archive: Path | None,
    choose: Callable[[Iterator[FailedMessage]], tuple[list[FailedMessage], int]],
) -> tuple[FirstMessages, str]:
    """Return messages that a queue or a file has of this queue, and the name of either.

    `choose` takes some of those that match, and counts the others.
    """

    def chosen_of(found: Iterator[FailedMessage]) -> FirstMessages:
        some, more = choose(found)
        return FirstMessages(some, len(some) + more)

    if archive is None:
        filter_ = cause_options.resolved(broker.url, filter_)
    with OpenFilter(filter_) as open_filter:
        if archive is None:
            opened = message_options.Source(printer, queue, broker, is_queue=True)
            name = opened.name
            found, _ = opened.ask(lambda look: chosen_of(look.matching(open_filter)))
        else:
            name = str(archive)
            found, _ = asked(
                printer,
                Snapshot(archive),
                name,
                lambda look: chosen_of(_of_queue(queue, look.matching(open_filter))),
            )
    message_options.check_groups(filter_.groups, found.matching, name)
    return found, name


def _of_queue(queue: str, messages: Iterator[FailedMessage]) -> Iterator[FailedMessage]:
    for message in messages:
        if queue in (message.queue, message.failed_queue):
            yield message


def _tell(printer: Printer, result: Rehearsal) -> None:
    """Print the result: a table by cause, then sentences."""
    if result.tried:
        columns = (
            TableColumn("group"),
            TableColumn("succeed", "right"),
            TableColumn("same", "right"),
            TableColumn("new", "right"),
            TableColumn("cause as recorded", give=True, wrap=True),
        )
        printer.table(
            columns,
            [
                (
                    row.cause.group_id,
                    f"{row.succeed:,}",
                    f"{row.same:,}",
                    f"{row.new:,}",
                    row.cause.in_words,
                )
                for row in result.causes[:_MOST_CAUSES]
            ],
        )
        printer.say()
    for sentence in result.sentences():
        printer.say(sentence)
    shown = next((one for one in result.tried if one.comparison == "new cause"), None)
    if shown is not None:
        printer.say(f"\nThe first with a new cause is {shown.failure_id}, at the {shown.stage}:")
        printer.block((shown.traceback or shown.error).rstrip())
        if shown.output:
            printer.say("It printed:")
            printer.block(shown.output.rstrip())


def _write(path: Path, text: str) -> None:
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise ConfigurationError(
            f"{path} can't be written: {error.strerror}", "Name another file."
        ) from error
