"""`redrive status`: how much is in the queues of each subscription."""

from collections.abc import Mapping
from datetime import timedelta
from typing import Annotated

import typer

from redrive.cli import options
from redrive.cli.output import Cell, Column, Form, Printer, count_of
from redrive.errors import ConfigurationError, PermissionDenied, RedriveError
from redrive.pubsub.blocking.connection import Connector, default_name
from redrive.pubsub.blocking.counting import depths
from redrive.pubsub.blocking.declare import Depth, Waiting, waiting
from redrive.pubsub.management import Management
from redrive.topology import names

COLUMNS = (
    Column("queue", give=True, wrap=True),
    Column("main", "right"),
    Column("retry", "right"),
    Column("failed", "right"),
    Column("consumers", "right"),
)

Depths = Mapping[str, Depth | None]
"""What is in the main, the retry and the failed queue, by these names."""


def status(
    queues: Annotated[
        list[str] | None,
        typer.Argument(metavar="QUEUE", help="Main queues; without any, all that have a retry or a failed queue.", show_default=False),
    ] = None,
    ladder: Annotated[bool, typer.Option("--ladder", help="Show what waits on the delay ladder instead, by when it is due.")] = False,
    management_url: options.ManagementUrl = None,
    url: options.Url = options.DEFAULT_URL,
    exchange: options.Exchange = options.DEFAULT_EXCHANGE,
    output: options.Output = Form.TABLE,
) -> None:
    """Show how many messages and consumers each subscription has, and what waits on the delay ladder.

    Counted are the messages that are ready in the main and the retry queue; those that a worker has in hand right now are not. In the
    failed queue those that somebody looks at are counted too, and said; the management API tells them, up to five seconds late.
    It exits with 1 where a queue is not there.

    \b
    Example:
      redrive status ucenter@user
    """
    printer = Printer(output)
    connector = Connector(url, default_name("status"))
    if ladder:
        _show_ladder(printer, waiting(connector, names.family_of(exchange)))
        return
    for queue in queues or ():
        names.check_queue_name(queue)
    wanted = list(dict.fromkeys(queues)) if queues else _subscriptions(connector, management_url)
    found = {queue: depths(connector, queue, management_url) for queue in wanted}
    printer.result([{"queue": queue, **json_of(places)} for queue, places in found.items()])
    if not printer.as_json and found:
        printer.table(COLUMNS, [row_of(queue, places) for queue, places in found.items()])
        _tell_of_held(printer, found)
        try:
            _tell_of_ladder(printer, waiting(connector, names.family_of(exchange)))
        except PermissionDenied as denied:
            printer.note(f"What waits on the delay ladder can't be seen: {denied.problem}.")
    if not found:
        printer.note("No subscription is here: no queue of this virtual host has a retry or a failed queue beside it.")
    gone = [_name(queue, place) for queue, places in found.items() for place, depth in places.items() if depth is None]
    if gone:
        printer.note(f"{count_of(len(gone), 'queue')} not there: {', '.join(gone)}. `redrive declare` makes what a subscription needs.")
        raise typer.Exit(1)


def _tell_of_held(printer: Printer, found: Mapping[str, Depths]) -> None:
    for queue, places in found.items():
        depth = places["failed"]
        if depth is None or depth.held == 0:
            continue
        name = names.failed_queue(queue)
        if depth.held is None:
            who = count_of(depth.consumers, "consumer") if depth.consumers else "a look"
            printer.say(
                f"An unknown number of messages of {name} is held by {who}, and not counted: the management API has not told it.", "yellow"
            )
        else:
            printer.say(f"{count_of(depth.held, 'message')} of {name} {'is' if depth.held == 1 else 'are'} held by a look.", "yellow")


def _tell_of_ladder(printer: Printer, found: Waiting) -> None:
    if found.messages:
        printer.say(f"On the delay ladder: {', '.join(f'{count:,} due within {due}' for due, count in _by_due_time(found))}.")
    if found.parked:
        printer.say(f"{count_of(found.parked, 'delayed message')} for queues that are gone, kept aside in the unrouted queue.", "yellow")


def _show_ladder(printer: Printer, found: Waiting) -> None:
    levels = [{"due_within_seconds": due.total_seconds(), "messages": count} for due, count in found.levels]
    printer.result({"waiting": found.messages, "levels": levels, "unrouted": found.parked})
    if printer.as_json:
        return
    if found.parked is None:
        printer.note("There is no delay ladder: nothing was delayed yet.")
        return
    printer.table(
        (Column("due within", "right"), Column("messages", "right")),
        [[str(due), f"{count:,}"] for due, count in found.levels if count] or [["–", "0"]],
    )
    printer.say(f"In the unrouted queue, for queues that are gone: {found.parked:,}.")


_RANGES = (timedelta(minutes=1), timedelta(hours=1), timedelta(days=1))


def _by_due_time(found: Waiting) -> list[tuple[str, int]]:
    """The messages in ranges that people think in, empty ones left out."""
    counts: dict[str, int] = {}
    for due, count in found.levels:
        within = next((words for end, words in zip(_RANGES, ("a minute", "an hour", "a day"), strict=True) if due <= end), "a longer time")
        counts[within] = counts.get(within, 0) + count
    return [(within, count) for within, count in counts.items() if count]


def row_of(queue: str, places: Depths) -> list[str | Cell]:
    """A subscription as a row of a table with `COLUMNS`."""
    return [queue, *(_cell(place, depth) for place, depth in places.items()), _consumers(places)]


def json_of(places: Depths) -> dict[str, object]:
    """The depths as JSON values; null for a queue that is not there, and for an unknown number of held messages."""
    return {place: None if depth is None else _json_of(place, depth) for place, depth in places.items()}


def _json_of(place: str, depth: Depth) -> dict[str, object]:
    counted: dict[str, object] = {"messages": depth.total, "consumers": depth.consumers}
    # What workers hold of a main queue nobody has asked for.
    return counted | {"held": depth.held} if place == "failed" else counted


def _cell(place: str, depth: Depth | None) -> Cell:
    if depth is None:
        return Cell("not there", "red")
    unknown = " + unknown" if depth.held is None else ""
    return Cell(f"{depth.total:,}{unknown}", "bold yellow" if place == "failed" and (depth.total or unknown) else "")


def _consumers(places: Depths) -> str:
    """Who consumes: of the main queue as a number; a consumer of another queue is rare enough to be named."""
    main = places.get("main")
    others = [f"{place} {depth.consumers:,}" for place, depth in places.items() if place != "main" and depth and depth.consumers]
    return ", ".join(["–" if main is None else f"{main.consumers:,}", *others])


def _name(queue: str, place: str) -> str:
    return {"main": queue, "retry": names.retry_queue(queue), "failed": names.failed_queue(queue)}[place]


def _subscriptions(connector: Connector, management_url: str | None) -> list[str]:
    """The main queues that have a retry or a failed queue, or had: one that lost its main queue is worth seeing."""
    try:
        with Management(connector.url, management_url) as management:
            found = management.queue_names()
    except RedriveError as error:
        problem, _, remedy = str(error).partition("\n")
        raise ConfigurationError(
            f"which queues there are can't be asked: {problem.rstrip('.')}", f"Name the queues: redrive status QUEUE… Or: {remedy}"
        ) from error
    return names.main_queues(found)
