"""A job's messages that are known by id, with the result of each, as CSV or JSON."""

import json
from collections.abc import Sequence
from dataclasses import asdict

from starlette.responses import Response

from redrive.errors import ConfigurationError
from redrive.failures.jobs.job_record import JobRecord
from redrive.failures.queue.message_source import checked_query
from redrive.failures.store.look import NothingKept
from redrive.failures.wording import JobTotals
from redrive.web.context import ConsoleContext
from redrive.web.download import download, download_csv
from redrive.web.job_page import sent_by
from redrive.web.page_request import PageRequest, QueuePlace

_COLUMNS = ("failure_id", "message_id", "outcome", "failed_at", "error_type")
Row = dict[str, object]


def show(context: ConsoleContext, request: PageRequest) -> Response:
    """Return a requeue's messages that failed again, could not be sent or may be duplicates."""
    with context.worker.journal() as journal:
        record = journal.job(request.text("id"))
    place = QueuePlace(record.queue, record.literal)
    context.permissions.check_look(place)
    if record.kind != "requeue":
        raise ConfigurationError(
            f"job {record.id} is a {record.kind}, not a requeue",
            "Its messages are in its file, if it has one.",
        )
    rows = rows_of(record, _failed_again(context, place, record))
    if request.text("format") == "csv":
        return download_csv(_COLUMNS, rows, "messages.csv")
    return download(json.dumps(json_of(record, rows)), "application/json", "messages.json")


def rows_of(record: JobRecord, failed_again: Sequence[Row]) -> list[Row]:
    """Return the messages known by id, those that failed again first."""
    return [
        *({**_row("", "failed again"), **row} for row in failed_again),
        *(_row(one, "could not be sent") for one in record.not_sent_ids),
        *(_row(one, "possible duplicate") for one in record.duplicate_ids),
    ]


def json_of(record: JobRecord, rows: Sequence[Row]) -> dict[str, object]:
    """Return the messages and the job's totals: most messages are only counted there."""
    return {
        "job": record.id,
        "queue": record.queue,
        "sum": asdict(JobTotals.of(record)),
        "possible_duplicates": record.possible_duplicates,
        "messages": list(rows),
    }


def _row(id_: str, outcome: str) -> Row:
    return {**dict.fromkeys(_COLUMNS), "failure_id": id_, "outcome": outcome}


def _failed_again(context: ConsoleContext, place: QueuePlace, record: JobRecord) -> list[Row]:
    """Return the job's messages that are known to be in its failed queue."""
    sql, columns = checked_query(
        "select failure_id, message_id, failed_at, error_type from failed "
        f"where {sent_by(record)} order by failed_at, failure_id"
    )
    try:
        found, _ = context.looks.ask(place, lambda look: look.query(sql, columns))
    except NothingKept as error:
        raise ConfigurationError(
            "which messages failed again is not known without a scan of the queue",
            "Check the results on the job's page, or scan the queue.",
        ) from error
    return found.rows
