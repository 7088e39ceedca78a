"""The proof of a job: a report of what was chosen, by whom and why, and of the results, to print or
keep."""

import json
from dataclasses import asdict

from starlette.responses import Response

from redrive.failures.jobs.job_record import JobRecord
from redrive.failures.wording import JobTotals, job_facts, job_json, result_facts, status_facts
from redrive.redaction import in_one_line
from redrive.web.command_lines import command
from redrive.web.context import ConsoleContext
from redrive.web.download import download
from redrive.web.job_page import begun_with
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
        **job_json(record),
        "sum": asdict(of_job),
        "adds_up": of_job.adds_up,
        "not_settled": not_settled,
        "begun_with": begun_with(record),
    }


def text_of(record: JobRecord, not_settled: int) -> str:
    """Return the proof as text, one fact per line."""
    of_job = JobTotals.of(record)
    facts = [
        *job_facts(record),
        *status_facts(record),
        ("command", begun_with(record)),
        *result_facts(record),
        ("adds up", "" if record.kind != "requeue" else "yes" if of_job.adds_up else "NO"),
        ("not settled", f"{not_settled:,}" if not_settled else ""),
        *(("", f"maybe twice: {one}") for one in record.duplicate_ids),
        *(("", f"not sent: {one}") for one in record.not_sent_ids),
    ]
    return "".join(f"{name:<13} {in_one_line(value)}\n" for name, value in facts if value)
