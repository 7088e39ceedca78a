"""The page of the journal: who has done what with failed messages, when, and why."""

from starlette.responses import Response

from redrive.failures.job_record import JobRecord
from redrive.web.asked import Asked, QueuePlace
from redrive.web.desk import Desk

_MOST = 200


def show(desk: Desk, asked: Asked) -> Response:
    """The jobs, the latest first; of one queue, or with a word in them."""
    queue, word = asked.text("queue"), asked.text("word").casefold()
    with desk.worker.journal() as journal:
        noted = journal.jobs()
        desk.ask_rights({QueuePlace(job.queue, job.literal) for job in noted})
        jobs = [job for job in noted if desk.may_see(job)]
        is_shared = journal.is_shared
    found = [job for job in jobs if (not queue or job.queue == queue) and _has(job, word)]
    return desk.page(
        "journal",
        asked,
        "Journal",
        {
            "jobs": found[:_MOST],
            "more": max(0, len(found) - _MOST),
            "queue": queue,
            "word": asked.text("word"),
            "is_shared": is_shared,
            "is_empty": not jobs,
            "command": "redrive jobs list",
        },
    )


def _has(job: JobRecord, word: str) -> bool:
    """Whether a word stands in what people read of a job."""
    texts = (job.id, job.queue, job.who, job.user, job.reason, job.kind, job.state, job.problem)
    return not word or any(word in text.casefold() for text in texts)
