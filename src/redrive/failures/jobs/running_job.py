"""The requeue of a queue that is running now, according to the journal."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, cast

from redrive.errors import ConfigurationError
from redrive.failures.jobs.job_record import JobRecord, State
from redrive.redaction import in_one_line

if TYPE_CHECKING:
    from redrive.failures.jobs.local_journal import LocalJournal

_MOST_JOBS = 50
_LONGEST = 120


def running_on(journal: "LocalJournal", queue: str) -> JobRecord | None:
    """Return the running requeue of a queue, from any user and machine; None if there is none."""
    found = journal.jobs(_MOST_JOBS, queue=queue, kind="requeue", state=State.RUNNING)
    return next((job for job in found if job.state is State.RUNNING), None)


def check_alone(journal: "LocalJournal", queue: str) -> None:
    """Check that nobody is requeueing messages of a queue now."""
    other = running_on(journal, queue)
    if other is not None:
        raise ConfigurationError(
            in_words(other),
            f"Wait for its end, or stop it: redrive jobs stop {other.id}. Its messages are not "
            f"sent twice. If nobody runs it: redrive jobs forget {other.id}.",
        )


def in_words(job: JobRecord) -> str:
    """Describe a running job: who began it, when, and what it sends."""
    found = job.order.get("selection")
    selection = cast("Mapping[str, Any]", found) if isinstance(found, dict) else {}
    groups = selection.get("groups")
    which = (
        f" of group {', '.join(map(str, groups))}" if isinstance(groups, list) and groups else ""
    )
    which += f" where {selection['where']}" if selection.get("where") else ""
    why = f", because: {job.reason}" if job.reason else ""
    # Start the line with a word, since spaces at its ends would be stripped.
    of_what = in_one_line(f"messages{which[:_LONGEST]}{why[:_LONGEST]}")
    return (
        f"job {job.id} of this queue is running, begun by {in_one_line(job.by)} at "
        f"{job.begun_at:%Y-%m-%d %H:%M:%S} UTC: {job.planned:,} {of_what}"
    )
