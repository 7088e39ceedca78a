"""Failed messages as JSON values and as text, in the one form that every command prints."""

import json
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from textwrap import indent

from redrive.cli.output import Cell, Printer, TableColumn
from redrive.failures import wording
from redrive.failures.message.cause import cause_of
from redrive.failures.message.failed_message import FailedMessage
from redrive.failures.message.readable_values import body_of, headers_of
from redrive.failures.message.way import way_of
from redrive.number_text import count_of, size_in_words
from redrive.redaction import in_one_line
from redrive.topology import headers

SHORT_ID = 8
"""Length of an id in a table: enough to tell thousands of random ids apart."""

_TOLD_APART = frozenset(
    {
        headers.FAILURE_ID,
        headers.RETRIES,
        headers.ERROR_TYPE,
        headers.ERROR_MESSAGE,
        headers.ERROR_TRACEBACK,
        headers.REASON,
        headers.FAILED_AT,
        headers.FIRST_FAILED_AT,
        headers.HOST,
        headers.COUNT,
        headers.JOB,
        headers.X_DEATH,
        "x-acquired-count",
        "x-delivery-count",
        "message_id",
        "timestamp",
    }
)
"""Headers and properties that `tell` prints elsewhere, and delivery counts, which grow with each
look."""

_SHORTEST_ERROR, _SHORTEST_KEY = 24, 12

_WIDE = 100
"""Number of columns from which a table has room for the year and the seconds."""


def columns(printer: Printer) -> dict[TableColumn, Callable[[FailedMessage], str | Cell]]:
    """Return the columns of a table of messages; on a narrow terminal the time is shorter, to leave
    more room for the error."""
    short = is_narrow(printer)
    return {
        TableColumn("id"): lambda one: one.failure_id[:SHORT_ID],
        TableColumn("failed (UTC)"): lambda one: moment_of(one.failed_at, short=short),
        TableColumn("retries", "right", hide=2): lambda one: str(one.retries),
        TableColumn("error", give=True, least=_SHORTEST_ERROR): lambda one: error_of(
            one, short=True
        ),
        TableColumn("routing key", give=True, least=_SHORTEST_KEY): lambda one: one.routing_key,
        TableColumn("size", "right", hide=1): lambda one: size_in_words(one.size),
    }


def table(printer: Printer, shown: Sequence[FailedMessage]) -> None:
    """Print messages as a table."""
    printer.table_of(shown, columns(printer))


def is_narrow(printer: Printer) -> bool:
    """Return whether tables go to a terminal without room for full times."""
    return printer.width is not None and printer.width < _WIDE


def tell_shared_ids(printer: Printer, count: int) -> None:
    """Print how many failure ids are shared by messages that differ, if any."""
    if count:
        printer.say(wording.shared_ids(count), "yellow")


def json_of(message: FailedMessage) -> dict[str, object]:
    """Return a message as JSON values."""
    body, encoding = body_of(message)
    return {
        "failure_id": message.failure_id,
        "digest": message.digest,
        "message_id": message.message_id,
        "queue": message.queue,
        "dead_letter_queue": message.dead_letter_queue,
        "way_back": None if message.way_back is None else message.way_back._asdict(),
        "dialect": message.dialect,
        "exchange": message.exchange,
        "routing_key": message.routing_key,
        "reason": message.reason,
        "retries": message.retries,
        "error": {
            "type": message.error_type,
            "message": message.error_message,
            "traceback": message.traceback,
        },
        "failed_at": _iso(message.failed_at),
        "first_failed_at": _iso(message.first_failed_at),
        "published_at": _iso(message.published_at),
        "host": message.host,
        "redrive_count": message.redrive_count,
        "job": message.job,
        "group_id": cause_of(message).group_id,
        "way": way_of(message),
        "properties": properties_of(message),
        "headers": headers_of(message),
        "size": message.size,
        "body": body,
        "body_encoding": encoding,
    }


def properties_of(message: FailedMessage) -> dict[str, object]:
    """Return the properties that are set, without the headers."""
    values = {
        name: value
        for name, value in message.properties._asdict().items()
        if name != "headers" and value is not None
    }
    if message.published_at is not None:
        values["timestamp"] = _iso(message.published_at)
    return values


def error_of(message: FailedMessage, *, short: bool = False) -> str:
    """Return the error as text, or a dash if none is recorded; if short, without the module of the
    error's class."""
    kind = (
        message.error_type.rpartition(".")[2]
        if message.error_type and short
        else message.error_type
    )
    return ": ".join(part for part in (kind, message.error_message) if part) or "–"


def moment_of(moment: datetime | None, *, short: bool = False) -> str:
    """Return a time as text, in UTC and to the second; if short, without the year and the
    seconds."""
    form = "%m-%d %H:%M" if short else "%Y-%m-%d %H:%M:%S"
    return "–" if moment is None else moment.astimezone(UTC).strftime(form)


def _words_of(value: object) -> str:
    """Return a value as text to follow a colon: a list has a line for each item, and the lines of a
    text are indented."""
    match value:
        case str():
            return " " + value.replace("\n", "\n    ")
        case list() if value:
            return "".join(f"\n  - {json.dumps(item, ensure_ascii=False)}" for item in value)
        case _:
            return f" {json.dumps(value, ensure_ascii=False)}"


def _iso(moment: datetime | None) -> str | None:
    return None if moment is None else moment.astimezone(UTC).isoformat()


def tell(printer: Printer, message: FailedMessage) -> None:
    """Print a message in full."""
    for name, value in _facts(message):
        printer.say(f"{name:<14}{in_one_line(value)}")
    printer.say("\nRoute", "bold")
    for stage in way_of(message):
        printer.say(f"  {in_one_line(stage)}")
    for title, values in (("Properties", properties_of(message)), ("Headers", headers_of(message))):
        printer.say(f"\n{title}", "bold")
        for name, content in values.items():
            if name not in _TOLD_APART:
                printer.block(indent(f"{in_one_line(name)}:{_words_of(content)}", "  "))
    body, encoding = body_of(message)
    printer.say(f"\nBody: {encoding}, {size_in_words(message.size)}", "bold")
    printer.block(
        indent(
            str(body) if encoding != "json" else json.dumps(body, indent=2, ensure_ascii=False),
            "  ",
        )
    )
    if message.traceback:
        printer.say("\nTraceback", "bold")
        printer.block(indent(message.traceback.rstrip(), "  "))


def _facts(message: FailedMessage) -> list[tuple[str, str]]:
    facts = [
        ("failure id", message.failure_id),
        ("message id", message.message_id or "–"),
        ("queue", message.queue),
        ("routing key", message.routing_key),
        ("published at", moment_of(message.published_at)),
        ("failed at", moment_of(message.failed_at)),
        ("reason", message.reason or "–"),
        ("retries", str(message.retries)),
        ("error", error_of(message)),
        ("group", cause_of(message).group_id),
        ("host", message.host or "–"),
        ("digest", message.digest),
    ]
    if message.first_failed_at not in (None, message.failed_at):
        facts.insert(5, ("first failed", moment_of(message.first_failed_at)))
    if message.redrive_count:
        facts.append(
            (
                "requeued",
                (
                    f"{count_of(message.redrive_count, 'time')} before, last by job "
                    f"{message.job or '–'}"
                ),
            )
        )
    return facts
