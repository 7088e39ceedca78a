"""`redrive scheduled`: shows how many messages wait for their time, and until when."""

from datetime import timedelta

from redrive.cli import options
from redrive.cli.output import OutputFormat, Printer, TableColumn
from redrive.duration_text import format_duration
from redrive.pubsub.admin import scheduled as admin
from redrive.pubsub.admin.scheduled import Scheduled
from redrive.pubsub.blocking.connection import Connector, default_name


@options.expanded
def scheduled(
    queue: options.Queue,
    *,
    broker: options.FamilyOptions,
    output: options.Output = OutputFormat.TABLE,
) -> None:
    """Show how many messages wait for their time, and until when.

    It counts failed messages before their next attempt, in the retry queue or held back by RabbitMQ
    itself, and those on the delay ladder: retries with delays of their own, and messages that were
    published with a delay. It takes no message, so it can't tell which queues those on the ladder
    are for.

    \b
    Example:
      redrive scheduled ucenter@user
    """
    printer = Printer(output)
    connector = Connector(broker.url, default_name("scheduled", queue))
    found = admin.scheduled(connector, broker.management_url, queue, broker.family)
    exchange = broker.family.main
    printer.result(_json_of(queue, exchange, found))
    if printer.for_programs:
        return
    rows = [
        (one.queue, "unknown" if one.messages is None else f"{one.messages:,}", one.due_within)
        for one in (found.retry, found.held_back)
        if one is not None
    ]
    rows += [
        (f"delay ladder of {exchange}", f"{count:,}", due)
        for due, count in found.ladder.levels
        if count
    ]
    printer.table(
        (TableColumn("waiting in"), TableColumn("messages", "right"), TableColumn("due")),
        [[place, count, _due(due)] for place, count, due in rows],
    )
    if found.ladder.messages:
        printer.note(
            f"Messages on the delay ladder are for all queues of {exchange}; which of them are for "
            f"{queue} is not known."
        )
    if found.ladder.parked:
        printer.note(f"{found.ladder.parked:,} in the unrouted queue are for deleted queues.")
    if found.is_ordered:
        printer.note(
            f"{queue} is ordered: its messages wait for a retry in their place, and only the "
            "worker that holds them knows which."
        )
    if found.problem:
        printer.note(f"Delays, and what RabbitMQ holds back, are not known: {found.problem}.")


def _due(within: timedelta | None) -> str:
    return "unknown" if within is None else f"within {format_duration(within)}"


def _json_of(queue: str, exchange: str, found: Scheduled) -> dict[str, object]:
    ladder = found.ladder
    return {
        "queue": queue,
        "retry": None if found.retry is None else found.retry.as_json(),
        "held_back": None if found.held_back is None else found.held_back.as_json(),
        "is_ordered": found.is_ordered,
        "ladder": {
            "exchange": exchange,
            "messages": ladder.messages,
            "for_this_queue": None if ladder.messages else 0,
            "levels": [
                {"due_within_seconds": due.total_seconds(), "messages": count}
                for due, count in ladder.levels
            ],
            "unrouted": ladder.parked,
        },
        "problem": found.problem or None,
    }
