"""The proof of a job: a report of what was chosen, by whom and why, and of the results, to print or
keep."""

import json
from collections.abc import Mapping
from typing import Any, cast

from starlette.responses import Response

from redrive.failures.jobs.job_record import JobRecord
from redrive.redaction import in_one_line
from redrive.web.command_lines import command
from redrive.web.context import ConsoleContext
from redrive.web.download import download
from redrive.web.html import moment_in_words
from redrive.web.job_page import JobTotals, begun_with, causes_of
from redrive.web.page_request import PageRequest, QueuePlace


def show(context: ConsoleContext, request: PageRequest) -> Response:
    """Show the proof of a job, as a page, text or JSON."""
    with context.worker.journal() as journal:
        record = journal.job(request.text("id"))
        context.permissions.check_look(QueuePlace(record.queue, record.literal))
        on_the_way = len(journal.under_way(record.id))
    form = request.text("format")
    if form == "json":
        return download(
            json.dumps(json_of(record, on_the_way), indent=2), "application/json", "proof.json"
        )
    text = text_of(record, on_the_way)
    if form == "text":
        return download(text, "text/plain", "proof.txt")
    title = f"Proof of job {record.id[:8]}"
    return context.page(
        "proof",
        request,
        title,
        {
            "record": record,
            "text": text,
            "sum": JobTotals.of(record),
            "command": command("jobs", "show", record.id),
        },
    )


def json_of(record: JobRecord, not_settled: int) -> dict[str, object]:
    """Return everything the journal has on a job, and its totals."""
    of_job = JobTotals.of(record)
    return {
        **record.as_json(),
        "sum": {name: getattr(of_job, name) for name in of_job.__slots__},
        "adds_up": of_job.adds_up,
        "not_settled": not_settled,
        "begun_with": begun_with(record),
    }


def text_of(record: JobRecord, not_settled: int) -> str:
    """Return the proof as text, one fact per line."""
    of_job = JobTotals.of(record)
    facts: list[tuple[str, str]] = [
        ("job", record.id),
        ("action", record.kind),
        ("queue", record.queue),
        ("broker", record.broker),
        ("who", record.by),
        ("asked for by", record.asked_by),
        ("approved by", record.approved_by),
        ("why", record.reason),
        ("started", moment_in_words(record.begun_at)),
        ("last update", moment_in_words(record.changed_at)),
        ("state", record.state.value),
        ("problem", record.problem),
        ("command", begun_with(record)),
        ("planned", f"{of_job.planned:,}"),
        *_causes_of(record),
        ("succeeded", f"{of_job.succeeded:,}"),
        ("failed again", f"{of_job.failed_again:,}"),
        ("on the way", f"{of_job.on_the_way:,}"),
        ("not sent", f"{of_job.not_sent:,}"),
        ("not tried", f"{of_job.not_tried:,}"),
        ("adds up", "yes" if of_job.adds_up else "NO"),
        ("not settled", f"{not_settled:,}" if not_settled else ""),
        ("maybe twice", _duplicates_of(record)),
        *(("", f"maybe twice: {one}") for one in record.duplicate_ids),
        *(("", f"not sent: {one}") for one in record.not_sent_ids),
    ]
    return "".join(f"{name:<13} {in_one_line(value)}\n" for name, value in facts if value)


def _duplicates_of(record: JobRecord) -> str:
    """Return the number of possible duplicates, and for how many the id is known."""
    count, known = record.possible_duplicates, len(record.duplicate_ids)
    if known >= count:
        return f"{count:,}"
    return f"{count:,}, {known:,} with a known id"


def _causes_of(record: JobRecord) -> list[tuple[str, str]]:
    """Return the chosen causes, and the messages left out. Anybody who may write to the journal
    could have forged the record."""
    stay = cast("Mapping[str, Any]", record.plan).get("stay")
    lines = [("", f"{one.count:,} {one.group_id} {one.what}") for one in causes_of(record)]
    why_they_stay = {
        "requeued_too_often": "left out: requeued too often",
        "no_way_back": "left out: no record of where they failed",
        "contradicted": "left out: the broker contradicts their way back",
        "unchecked": "left out: the broker could not confirm their way back",
    }
    return lines + [
        ("", f"{stay[why]} {words}")
        for why, words in why_they_stay.items()
        if isinstance(stay, dict) and why in stay
    ]
