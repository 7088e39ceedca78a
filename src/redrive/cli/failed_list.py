"""`redrive failed list`: lists the messages of a failed queue."""

from typing import Annotated

import typer

from redrive.cli import cause_options, index_options, message_options, messages, options
from redrive.cli.output import Printer, RowsFormat
from redrive.errors import ConfigurationError
from redrive.failures.store.filter import OpenFilter
from redrive.failures.store.look import Look
from redrive.number_text import count_of


@options.expanded
@index_options.answered
def list_(
    source: message_options.QueueOrFile,
    where: message_options.Where = None,
    groups: message_options.Group = None,
    limit: Annotated[
        int, typer.Option("--limit", metavar="N", min=1, help="How many messages to show.")
    ] = 20,
    newest: Annotated[
        bool,
        typer.Option("--newest", help="Show the newest first. This reads the whole queue."),
    ] = False,
    look_at: message_options.LookAt = None,
    *,
    index: index_options.IndexOptions,
    broker: options.SourceOptions,
    output: options.RowsOutput = RowsFormat.TABLE,
) -> None:
    """List failed messages, oldest first.

    The messages stay in the queue. While the command reads them, other consumers don't get them.

    \b
    Example:
      redrive failed list ucenter@user --where "error_type = 'KeyError'"
    """
    printer = Printer(output)
    filter_ = cause_options.resolved(broker.url, message_options.filter_of(where, groups))
    if newest and look_at is not None:
        raise ConfigurationError(
            "--newest and --look-at exclude each other",
            "Leave out --look-at: it reads the oldest messages only.",
        )
    with OpenFilter(filter_) as open_filter:
        opened = message_options.Source(printer, source, broker)
        most = limit if filter_.is_all and not newest else look_at
        (shown, count), look = opened.ask(
            lambda look: look.first(limit, open_filter, newest=newest),
            most,
            by_time=open_filter.is_by_time,
            index=index,
        )
    message_options.check_groups(groups, count, opened.name)
    printer.rows(
        shown,
        messages.json_of,
        messages.columns(printer),
        lambda rows: {
            "queue": source,
            **look.as_json(),
            "matching": None if filter_.is_all else count,
            "messages": rows,
        },
    )
    if not printer.for_programs:
        which = "newest" if newest else "oldest"
        printer.say(
            _tally(opened.name, look, len(shown), which)
            if filter_.is_all
            else _matches(opened.name, look, len(shown), which, count)
        )


def _tally(name: str, look: Look, shown: int, which: str) -> str:
    if not look.total:
        return f"{name} is empty." if look.missing == 0 else f"No message of {name} could be read."
    if shown >= look.total:
        return f"{count_of(look.total, 'message')} in {name}."
    return (
        f"The {shown:,} {which} of {count_of(look.total, 'message')} in {name}; --limit "
        f"{look.total} shows all."
    )


def _matches(name: str, look: Look, shown: int, which: str, count: int) -> str:
    more = f", the {shown:,} {which} shown; --limit {count} shows all" if shown < count else ""
    verb = "matches" if count == 1 else "match"
    if look.is_partial:
        return (
            f"{count:,} of the {look.looked_at:,} oldest messages in {name} {verb}{more}; "
            f"{look.total - look.looked_at:,} newer were not read: leave out --look-at."
        )
    return f"{count:,} of {count_of(look.looked_at, 'message')} in {name} {verb}{more}."
