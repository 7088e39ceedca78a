"""`redrive status`: how many messages are in the queues of each subscription."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from types import MappingProxyType
from typing import Annotated

import typer

from redrive.cli import completion, dead_letter_output, options
from redrive.cli.output import Cell, OutputFormat, Printer, TableColumn
from redrive.errors import ConfigurationError, PermissionDenied, RedriveError
from redrive.failures.queue.failed_count import dead_lettering, depths, held_back
from redrive.number_text import count_of
from redrive.pubsub.admin import dead_letter_survey
from redrive.pubsub.admin.dead_letter_survey import CountedQueue
from redrive.pubsub.admin.management_api import QUICK_TIMEOUT, ManagementAPI
from redrive.pubsub.admin.queue_metrics import WorkerTexts, worker_outages, worker_texts
from redrive.pubsub.blocking import control
from redrive.pubsub.blocking.connection import Connector, default_name
from redrive.pubsub.blocking.declarer import Depth, Waiting, declaring, waiting
from redrive.topology import dead_letter_names, names
from redrive.topology.control import Control
from redrive.topology.names import ExchangeFamily

COLUMNS = (
    TableColumn("queue", give=True, wrap=True),
    TableColumn("main", "right"),
    TableColumn("retry", "right"),
    TableColumn("failed", "right"),
    TableColumn("consumers", "right"),
)

Depths = Mapping[str, Depth | None]
"""Depths of the main, the retry and the failed queue, by these names."""


@options.expanded
def status(
    queues: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="QUEUE",
            help="Main queues, or dead-letter queues. Default: all subscriptions, and the "
            "dead-letter queues that redrive did not make.",
            autocompletion=completion.queues,
            show_default=False,
        ),
    ] = None,
    ladder: Annotated[
        bool,
        typer.Option(
            "--ladder", help="Show the messages on the delay ladder instead, by when they are due."
        ),
    ] = False,
    *,
    broker: options.FamilyOptions,
    output: options.Output = OutputFormat.TABLE,
) -> None:
    """Show how many messages are in the queues.

    It prints the messages and consumers of each subscription, and the messages on the delay ladder.
    In the main and the retry queue only ready messages count, not those that a worker is handling.
    In the failed queue, messages that somebody is reading count too, as the management API reports
    them, up to five seconds late. It exits with 1 if a queue is missing.

    It also prints how often running workers retry, and after how long they give up. Workers report
    this when they connect; the management API shows it to users who may see connections. It also
    says which workers wait for something that is down (see docs/outages.md), and who has paused a
    subscription (redrive pause).

    Below, it lists the dead-letter queues that redrive did not make (see redrive dlq scan). JSON
    includes them only if they are named.

    \b
    Examples:
      redrive status ucenter@user
      redrive status orders.dlq
    """
    printer = Printer(output)
    connector = Connector(broker.url, default_name("status"))
    if ladder:
        _show_ladder(printer, waiting(connector, broker.family))
        return
    for queue in queues or ():
        names.check_queue_name(queue)
    wanted = (
        list(dict.fromkeys(queues)) if queues else _subscriptions(connector, broker.management_url)
    )
    found = {queue: depths(connector, queue, broker.management_url) for queue in wanted}
    others = _named(connector, broker.management_url, found) if queues else []
    for one in others:
        del found[one.queue.name]
    moving = dead_lettering(connector, broker.management_url)
    workers = worker_texts(connector, broker.management_url, found)
    controls = _controls(printer, connector, broker.family)
    outages = worker_outages(connector, broker.management_url, found)
    # Only subscriptions without a retry queue can have messages held back.
    waiting_there = held_back(
        connector,
        broker.management_url,
        [queue for queue, places in found.items() if places["main"] and not places["retry"]],
    )
    printer.result(
        [
            {
                "queue": queue,
                **json_of(places),
                "dead_lettering": _moving(queue, moving),
                "retry_policies": None if workers is None else workers[queue].policies,
                "selects": None if workers is None else workers[queue].selections,
                "paused": controls[queue].as_json() if queue in controls else None,
                "down": None if outages is None else outages[queue],
                **({"held_back": waiting_there[queue]} if queue in waiting_there else {}),
            }
            for queue, places in found.items()
        ]
        + [_json_of_other(one) for one in others]
    )
    if not printer.for_programs and found:
        printer.table(
            COLUMNS, [row_of(queue, places, waiting_there) for queue, places in found.items()]
        )
        _tell_of_workers(printer, workers or {})
        _tell_of_controls(printer, found, controls)
        _tell_of_outages(printer, outages or {})
        _tell_of_held_back(printer, waiting_there)
        _tell_of_held(printer, found)
        _tell_of_dead_lettering(printer, found, moving)
        try:
            _tell_of_ladder(printer, waiting(connector, broker.family))
        except PermissionDenied as denied:
            printer.note(f"Can't see the delay ladder: {denied.problem}.")
    if not printer.for_programs:
        if not queues:
            others = _all_others(printer, connector, broker.management_url)
        _tell_of_others(printer, others, under_a_table=bool(found))
    if not found and not others:
        printer.note(
            "There is no subscription: no queue of this virtual host has a retry or a failed queue."
        )
    gone = [
        _name(queue, place)
        for queue, places in found.items()
        for place, depth in places.items()
        if depth is None and not (place == "retry" and queue in waiting_there)
    ]
    if gone:
        printer.note(
            f"{count_of(len(gone), 'queue')} missing: {', '.join(gone)}. `redrive declare` creates "
            "what a subscription needs."
        )
        raise typer.Exit(1)


def _named(
    connector: Connector, management_url: str | None, found: Mapping[str, Depths]
) -> list[CountedQueue]:
    """Return those of the queues that are dead-letter queues of others: they have no retry or
    failed queue, and the management API or their names identify them."""
    alone = [
        queue
        for queue, places in found.items()
        if places["main"] is not None and places["retry"] is None and places["failed"] is None
    ]
    if not alone:
        return []
    try:
        with ManagementAPI.of(connector, management_url, QUICK_TIMEOUT) as management:
            listed = {one.queue.name: one for one in dead_letter_survey.over_management(management)}
    except RedriveError:
        listed = {}  # AMQP counts, and the names identify them
    with declaring(connector) as declarer:
        counted = dead_letter_survey.over_amqp(declarer, alone)
    return [
        replace(one, queue=listed[name].queue, oldest=listed[name].oldest)
        if (name := one.queue.name) in listed
        else one
        for one in counted
        if one.queue.name in listed or dead_letter_names.read(one.queue.name) is not None
    ]


def _all_others(
    printer: Printer, connector: Connector, management_url: str | None
) -> list[CountedQueue]:
    """Return the dead-letter queues that redrive did not make; print a note if the management API
    can't list them."""
    try:
        with ManagementAPI(connector.url, management_url) as management:
            return dead_letter_survey.over_management(management)
    except RedriveError as error:
        problem = str(error).partition("\n")[0].rstrip(".")
        printer.note(
            f"Dead-letter queues that redrive did not make can't be listed: {problem}. Name the "
            "ones that you know: redrive status QUEUE…"
        )
        return []


def _tell_of_others(
    printer: Printer, others: Sequence[CountedQueue], *, under_a_table: bool
) -> None:
    if not others:
        return
    if under_a_table:
        printer.say("\nOther queues with failed messages:", "bold")
    printer.table_of(dead_letter_output.fullest_first(others), dead_letter_output.columns())


def _json_of_other(one: CountedQueue) -> dict[str, object]:
    return {"queue": one.queue.name, "dead_letter_queue": dead_letter_output.json_of(one)}


def _tell_of_held(printer: Printer, found: Mapping[str, Depths]) -> None:
    for queue, places in found.items():
        depth = places["failed"]
        if depth is None or depth.held == 0:
            continue
        name = names.failed_queue(queue)
        if depth.held is None:
            who = count_of(depth.consumers, "consumer") if depth.consumers else "a reader"
            printer.say(
                f"An unknown number of messages of {name} is held by {who} and not counted: the "
                "management API has not reported it.",
                "yellow",
            )
        else:
            printer.say(
                f"{count_of(depth.held, 'message')} of {name} {'is' if depth.held == 1 else 'are'} "
                "held by somebody who is reading them.",
                "yellow",
            )


def _tell_of_held_back(printer: Printer, waiting_there: Mapping[str, int | None]) -> None:
    for queue, count in waiting_there.items():
        if count is None:
            printer.say(
                f"{queue} has no retry queue. If the broker holds its failed messages back by "
                "itself, only the management API knows how many, and it did not say.",
                "yellow",
            )
        elif count:
            printer.say(
                f"{count_of(count, 'failed message')} of {queue} {'is' if count == 1 else 'are'} "
                "held back in the main queue by the broker."
            )


def _moving(queue: str, moving: Mapping[str, int] | None) -> int | None:
    """Return how many messages the main and the retry queue are dead-lettering; None if that is
    unknown."""
    if moving is None:
        return None
    if queue not in moving:
        return None  # it was not counted
    return sum(moving.get(name, 0) for name in (queue, names.retry_queue(queue)))


def _tell_of_workers(printer: Printer, workers: Mapping[str, WorkerTexts]) -> None:
    alike: dict[tuple[str, ...], list[str]] = {}
    for queue, found in workers.items():
        alike.setdefault(tuple(found.policies), []).append(queue)
    for policies, queues in alike.items():
        if policies:
            printer.say(f"Workers of {', '.join(queues)}: {'; or '.join(policies)}.")
    for queue, found in workers.items():
        if found.selections:
            printer.say(f"Workers of {queue} select {'; or '.join(found.selections)}.")


def _controls(
    printer: Printer, connector: Connector, exchanges: ExchangeFamily
) -> dict[str, Control]:
    """Return the pauses and rates in force; print a note if they can't be read."""
    try:
        return control.read(connector, exchanges)
    except RedriveError as error:
        problem = str(error).partition("\n")[0].rstrip(".")
        printer.note(f"Can't see who has paused what: {problem}.")
    return {}


def _tell_of_controls(
    printer: Printer, found: Mapping[str, Depths], controls: Mapping[str, Control]
) -> None:
    for queue in found:
        if queue in controls:
            printer.say(f"{queue} is {controls[queue]}.", "yellow")


def _tell_of_outages(printer: Printer, outages: Mapping[str, Sequence[str]]) -> None:
    for queue, found in outages.items():
        if found:
            printer.say(
                f"Workers of {queue} take few messages or none until {', '.join(found)} "
                f"{'answers' if len(found) == 1 else 'answer'} again.",
                "yellow",
            )


def _tell_of_dead_lettering(
    printer: Printer, found: Mapping[str, Depths], moving: Mapping[str, int] | None
) -> None:
    for queue in found:
        for name in (queue, names.retry_queue(queue)):
            count = (moving or {}).get(name, 0)
            if count:
                printer.say(
                    f"{count_of(count, 'message')} of {name} {'is' if count == 1 else 'are'} being "
                    "dead-lettered and not counted. If they stay: redrive doctor.",
                    "yellow",
                )


def _tell_of_ladder(printer: Printer, found: Waiting) -> None:
    if found.messages:
        printer.say(
            "On the delay ladder: "
            f"{', '.join(f'{count:,} due {due}' for due, count in _by_due_time(found))}."
        )
    if found.parked:
        printer.say(
            f"In the unrouted queue: {count_of(found.parked, 'message')} for deleted queues.",
            "yellow",
        )


def _show_ladder(printer: Printer, found: Waiting) -> None:
    levels = [
        {"due_within_seconds": due.total_seconds(), "messages": count}
        for due, count in found.levels
    ]
    printer.result({"waiting": found.messages, "levels": levels, "unrouted": found.parked})
    if printer.for_programs:
        return
    if found.parked is None:
        printer.note("There is no delay ladder: no message has been delayed yet.")
        return
    printer.table(
        (TableColumn("due within", "right"), TableColumn("messages", "right")),
        [[str(due), f"{count:,}"] for due, count in found.levels if count] or [["–", "0"]],
    )
    printer.say(f"In the unrouted queue, for deleted queues: {found.parked:,}.")


_RANGES = (timedelta(minutes=1), timedelta(hours=1), timedelta(days=1))


def _by_due_time(found: Waiting) -> list[tuple[str, int]]:
    """Return the messages by rounded time ranges, without empty ones."""
    counts: dict[str, int] = {}
    for due, count in found.levels:
        within = next(
            (
                words
                for end, words in zip(
                    _RANGES, ("within a minute", "within an hour", "within a day"), strict=True
                )
                if due <= end
            ),
            "later",
        )
        counts[within] = counts.get(within, 0) + count
    return [(within, count) for within, count in counts.items() if count]


def row_of(
    queue: str, places: Depths, waiting_there: Mapping[str, int | None] = MappingProxyType({})
) -> list[str | Cell]:
    """Return a subscription as a row of a table with `COLUMNS`. Without a retry queue, its cell
    shows what the broker holds back in the main queue."""
    cells = [
        _held_back_cell(waiting_there[queue])
        if place == "retry" and queue in waiting_there
        else _cell(place, depth)
        for place, depth in places.items()
    ]
    return [queue, *cells, _consumers(places)]


def _held_back_cell(count: int | None) -> Cell:
    return Cell("unknown", "yellow") if count is None else Cell(f"{count:,}")


def json_of(places: Depths) -> dict[str, object]:
    """Return the depths as JSON values, with null for a missing queue and for an unknown number of
    held messages."""
    return {
        place: None if depth is None else _json_of(place, depth) for place, depth in places.items()
    }


def _json_of(place: str, depth: Depth) -> dict[str, object]:
    counted: dict[str, object] = {"messages": depth.total, "consumers": depth.consumers}
    # The number of messages that workers hold is not queried for a main queue.
    return counted | {"held": depth.held} if place == "failed" else counted


def _cell(place: str, depth: Depth | None) -> Cell:
    if depth is None:
        return Cell("missing", "red")
    unknown = " + unknown" if depth.held is None else ""
    return Cell(
        f"{depth.total:,}{unknown}",
        "bold yellow" if place == "failed" and (depth.total or unknown) else "",
    )


def _consumers(places: Depths) -> str:
    """Return the number of consumers of the main queue; consumers of other queues are rare, and
    shown with the queue's role."""
    main = places.get("main")
    others = [
        f"{place} {depth.consumers:,}"
        for place, depth in places.items()
        if place != "main" and depth and depth.consumers
    ]
    return ", ".join(["–" if main is None else f"{main.consumers:,}", *others])


def _name(queue: str, place: str) -> str:
    return {"main": queue, "retry": names.retry_queue(queue), "failed": names.failed_queue(queue)}[
        place
    ]


def _subscriptions(connector: Connector, management_url: str | None) -> list[str]:
    """Return the main queues that have a retry or a failed queue, even those that no longer exist:
    a subscription that lost its main queue is worth seeing."""
    try:
        with ManagementAPI(connector.url, management_url) as management:
            found = management.queue_names()
    except RedriveError as error:
        problem, _, remedy = str(error).partition("\n")
        raise ConfigurationError(
            f"can't list the queues: {problem.rstrip('.')}",
            f"Name the queues: redrive status QUEUE… Or: {remedy}",
        ) from error
    return names.main_queues(found)
