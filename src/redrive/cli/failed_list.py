"""`redrive failed list`: the messages of a failed queue, one a line."""

import heapq
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Annotated

import typer

from redrive.cli import index_options, message_options, messages, options
from redrive.cli.look_output import Look
from redrive.cli.message_lookup import check_groups
from redrive.cli.output import Form, Printer, count_of
from redrive.errors import ConfigurationError
from redrive.failures.failed_message import FailedMessage
from redrive.failures.filter import OpenFilter
from redrive.failures.kept_messages import KeptMessages, matching


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
    output: options.Output = Form.TABLE,
) -> None:
    """List failed messages, oldest first.

    The messages stay in the queue. While the command reads them, other consumers don't get them.

    \b
    Example:
      redrive failed list ucenter@user --where "error_type = 'KeyError'"
    """
    printer = Printer(output)
    filter_ = message_options.filter_of(where, groups)
    if newest and look_at is not None:
        raise ConfigurationError(
            "--newest and --look-at exclude each other",
            "Leave out --look-at: it reads the oldest messages only.",
        )
    with OpenFilter(filter_) as open_filter:
        opened = message_options.Source(printer, source, broker)
        most = limit if filter_.is_all and not newest else look_at
        with opened.looking(most, by_time=open_filter.is_by_time, index=index) as (
            messages_,
            look,
        ):
            shown, count = _shown(matching(messages_, open_filter), limit, newest=newest)
    check_groups(groups, count, opened.name)
    printer.result(
        {
            "queue": source,
            **message_options.facts_of(look),
            "matching": None if filter_.is_all else count,
            "messages": [messages.json_of(message) for message in shown],
        }
    )
    if not printer.as_json:
        if shown:
            messages.table(printer, shown)
        which = "newest" if newest else "oldest"
        printer.say(
            _tally(opened.name, look, len(shown), which)
            if filter_.is_all
            else _matches(opened.name, look, len(shown), which, count)
        )


def _shown(
    found: Iterator[FailedMessage], limit: int, *, newest: bool
) -> tuple[list[FailedMessage], int]:
    """Return the messages that are shown, and how many there are in all."""
    if isinstance(found, KeptMessages):
        return found.first(limit, newest=newest), found.count()
    counted = _Counted(found)
    shown = _newest(counted, limit) if newest else list(islice(counted, limit))
    for _ in counted:
        pass
    return shown, counted.count


class _Counted:
    """Messages, counted as they pass."""

    def __init__(self, messages: Iterator[FailedMessage]) -> None:
        self._messages = messages
        self.count = 0

    def __iter__(self) -> Iterator[FailedMessage]:
        for message in self._messages:
            self.count += 1
            yield message


def _newest(found: Iterable[FailedMessage], limit: int) -> list[FailedMessage]:
    """Return the messages that failed last, newest first; those without a time come last, by their
    place in the queue."""
    latest = heapq.nlargest(
        limit, enumerate(found), key=lambda numbered: (_when(numbered[1]), numbered[0])
    )
    return [message for _, message in latest]


def _when(message: FailedMessage) -> float:
    return message.failed_at.timestamp() if message.failed_at is not None else float("-inf")


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
