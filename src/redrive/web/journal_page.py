"""The page of the journal: who did what with failed messages, when, why and from where."""

import json
from collections.abc import Sequence
from dataclasses import dataclass

from starlette.responses import Response

from redrive.failures.jobs.approval_rule import is_same
from redrive.failures.jobs.job_record import JobRecord, State
from redrive.failures.jobs.journal import Journal
from redrive.topology.doctor.act_rights import OperatorAct
from redrive.web.context import ConsoleContext
from redrive.web.download import download, download_csv
from redrive.web.page_request import PageRequest, QueuePlace

_MOST = 200
_MOST_READ = 1000
"""How many jobs a page searches."""
_MOST_REMARKS = 50
_MOST_WAITING = 20
_CHOICES = ("state", "kind", "who", "origin")
_EXPORTED = (
    "id",
    "kind",
    "queue",
    "state",
    "begun_at",
    "changed_at",
    "who",
    "user",
    "origin",
    "reason",
    "planned",
    "sent",
    "succeeded",
    "failed_again",
    "retrying",
    "unknown",
    "not_sent",
    "possible_duplicates",
    "file",
    "problem",
)


@dataclass(frozen=True, slots=True)
class WaitingJob:
    """A job that is waiting for approval.

    Args:
        record: the job in the journal.
        is_own: whether this user requested it, and so can't approve it.
        may: whether this user may requeue messages of its queue.
    """

    record: JobRecord
    is_own: bool
    may: bool


def show(context: ConsoleContext, request: PageRequest) -> Response:
    """Show the matching jobs, latest first, as a page, CSV or JSON."""
    with context.worker.journal() as journal:
        noted = [
            *journal.jobs(state=State.ASKED, limit=_MOST_READ),
            *journal.jobs(_MOST_READ),
        ]
        noted = list({job.id: job for job in noted}.values())
        context.permissions.ask_rights({QueuePlace(job.queue, job.literal) for job in noted})
        jobs = [job for job in noted if context.permissions.may_see(job)]
        # Notes quote messages of all queues without naming the queue.
        remarks = [] if context.permissions.has_login else list(reversed(journal.causes().remarks))
        waiting = _waiting(context, journal, jobs)
        is_shared = journal.is_shared
    found = [job for job in jobs if _is_asked_for(job, request)]
    match request.text("format"):
        case "csv":
            return download_csv(_EXPORTED, map(_row_of, found), "journal.csv")
        case "json":
            rows = [_row_of(job) for job in found]
            return download(json.dumps(rows, ensure_ascii=True), "application/json", "journal.json")
    here = {name: request.text(name) for name in ("queue", "word", *_CHOICES)}
    return context.page(
        "journal",
        request,
        "Journal",
        {
            "waiting": waiting[:_MOST_WAITING],
            "more_waiting": max(0, len(waiting) - _MOST_WAITING),
            "jobs": found[:_MOST],
            "more": max(0, len(found) - _MOST),
            "here": here,
            "is_filtered": any(here.values()),
            "choices": {name: _choices_of(jobs, name) for name in _CHOICES},
            "remarks": remarks[:_MOST_REMARKS],
            "is_shared": is_shared,
            "is_empty": not jobs,
            "command": "redrive jobs list",
        },
    )


def _waiting(
    context: ConsoleContext, journal: Journal, jobs: Sequence[JobRecord]
) -> list[WaitingJob]:
    """Return the jobs that are waiting for approval, the oldest first."""
    return [
        WaitingJob(
            job,
            is_same(job, journal.signed(job)),
            context.permissions.may(OperatorAct.REQUEUE, QueuePlace(job.queue, job.literal)),
        )
        for job in reversed(jobs)
        if job.state is State.ASKED
    ]


def _is_asked_for(job: JobRecord, request: PageRequest) -> bool:
    queue = request.text("queue")
    return (
        (not queue or job.queue == queue)
        and _has(job, request.text("word").casefold())
        and all(request.text(name) in ("", str(getattr(job, name))) for name in _CHOICES)
    )


def _choices_of(jobs: Sequence[JobRecord], name: str) -> list[str]:
    """Return the values to choose from: each value that a job has."""
    return sorted({str(getattr(job, name)) for job in jobs} - {""})


def _has(job: JobRecord, word: str) -> bool:
    """Return whether the visible texts of a job contain a word."""
    texts = (
        job.id,
        job.queue,
        job.who,
        job.user,
        job.reason,
        job.kind,
        job.state,
        job.problem,
        job.origin,
    )
    return not word or any(word in text.casefold() for text in texts)


def _row_of(job: JobRecord) -> dict[str, object]:
    row = {name: getattr(job, name) for name in _EXPORTED}
    return {**row, "begun_at": job.begun_at.isoformat(), "changed_at": job.changed_at.isoformat()}
