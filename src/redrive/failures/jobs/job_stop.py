"""Stopping a job, by its own process or by anyone else through the journal."""

import threading
import time
from typing import TYPE_CHECKING, Self

from redrive.errors import ConfigurationError, RedriveError
from redrive.failures.jobs.job_record import JobRecord, State
from redrive.failures.queue.requeue import Cancel
from redrive.redaction import in_one_line

if TYPE_CHECKING:
    from redrive.failures.jobs.local_journal import LocalJournal
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, cast

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


_ASKED_EVERY = 0.2
_AFTER_TROUBLE = 5.0
_TOLD_EVERY = 60.0
"""Seconds between signs of life from a run that holds no lock at the broker."""
_ASKED_AGAIN_EVERY = 10.0
"""Seconds until the request is repeated: a run that had just begun may have missed it."""
_STOPS_WITHIN = 60.0
"""Seconds to wait for a job to stop after it was asked to."""


class Stopper:
    """A context manager that tells whether a run must stop, and polls the journal meanwhile."""

    def __init__(self, journal: "LocalJournal", job: JobRecord, cancel: Cancel) -> None:
        self._journal = journal
        self._job = job
        self._cancel = cancel
        self._by = ""
        self._through = threading.Event()
        self._asking = threading.Thread(target=self._ask, name="redrive-stop", daemon=True)

    def is_set(self) -> bool:
        """Check whether the run must stop."""
        return bool(self._by) or self._cancel.is_set()

    @property
    def problem(self) -> str:
        """A line that says who asked for the stop; empty if nobody did."""
        return f"stopped by {in_one_line(self._by)}" if self._by else ""

    def _ask(self) -> None:
        told_at = time.monotonic()
        while not self._by and not self._through.wait(_ASKED_EVERY):
            try:
                self._by = self._journal.stop_asked_by(self._job)
                if not self._job.locked and time.monotonic() > told_at + _TOLD_EVERY:
                    told_at = time.monotonic()
                    self._journal.still_runs(self._job.id)
            except RedriveError:
                # The job's own process can still stop it.
                self._through.wait(_AFTER_TROUBLE)

    def __enter__(self) -> Self:
        self._asking.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._through.set()
        self._asking.join()


def ask_to_stop(journal: "LocalJournal", record: JobRecord) -> None:
    """Ask a job's process to stop, wherever it runs; it settles the messages in flight first."""
    if record.kind != "requeue":
        raise ConfigurationError(
            f"job {record.id} ({record.kind}) is not a requeue, and can only be stopped where "
            f"it runs: {record.by}",
            "Stop it there with Ctrl-C.",
        )
    journal.ask_to_stop(record)


def stop(journal: "LocalJournal", record: JobRecord) -> None:
    """Ask a job to stop, and wait until it has."""
    ask_to_stop(journal, record)
    asked_at = time.monotonic()
    until = asked_at + _STOPS_WITHIN
    while journal.job(record.id).state is State.RUNNING:
        if time.monotonic() > until:
            raise ConfigurationError(
                f"job {record.id} was asked to stop, but did not within {_STOPS_WITHIN:g} s",
                f"Check whether it still runs, and stop it there: {record.by}. If nobody runs it: "
                f"redrive jobs forget {record.id}.",
            )
        if time.monotonic() > asked_at + _ASKED_AGAIN_EVERY:
            asked_at = time.monotonic()
            journal.ask_to_stop_again(record)
        time.sleep(_ASKED_EVERY)
