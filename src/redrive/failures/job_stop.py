"""Stopping a job: by whoever runs it, or by somebody else, who asks for it in the journal."""

import threading
import time
from typing import TYPE_CHECKING, Self

from redrive.errors import ConfigurationError, RedriveError
from redrive.failures.job_record import JobRecord, State
from redrive.failures.requeue import Cancel
from redrive.redaction import in_one_line

if TYPE_CHECKING:
    from redrive.failures.local_journal import LocalJournal

_ASKED_EVERY = 0.2
_AFTER_TROUBLE = 5.0
_TOLD_EVERY = 60.0
"""Seconds after which a run that has no lock at the broker says that it goes on."""
_ASKED_AGAIN_EVERY = 10.0
"""Seconds after which a run is asked once more: one that had just begun may not have heard it."""
_STOPS_WITHIN = 60.0
"""Seconds for which it is waited that a job which was asked to stop has done so."""


class Stopper:
    """Says whether a run of a job is to stop; a context manager. As long as it is open, the journal
    is read now and then."""

    def __init__(self, journal: "LocalJournal", job: JobRecord, cancel: Cancel) -> None:
        self._journal = journal
        self._job = job
        self._cancel = cancel
        self._by = ""
        self._through = threading.Event()
        self._asking = threading.Thread(target=self._ask, name="redrive-stop", daemon=True)

    def is_set(self) -> bool:
        """Whether it is."""
        return bool(self._by) or self._cancel.is_set()

    @property
    def problem(self) -> str:
        """Who has asked for it, in a line; empty where nobody has."""
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
                # Whoever runs the job can still stop it.
                self._through.wait(_AFTER_TROUBLE)

    def __enter__(self) -> Self:
        self._asking.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._through.set()
        self._asking.join()


def ask_to_stop(journal: "LocalJournal", record: JobRecord) -> None:
    """Asks whoever runs a job, in whatever process and on whatever machine, to stop it; what is on
    its way is settled first."""
    if record.kind != "requeue":
        raise ConfigurationError(
            f"job {record.id} ({record.kind}) is no requeue, and is stopped only where it runs: "
            f"{record.by}",
            "Have it stopped there with Ctrl-C.",
        )
    journal.ask_to_stop(record)


def stop(journal: "LocalJournal", record: JobRecord) -> None:
    """Asks for a job to be stopped, as `ask_to_stop`, and returns when it has stopped."""
    ask_to_stop(journal, record)
    asked_at = time.monotonic()
    until = asked_at + _STOPS_WITHIN
    while journal.job(record.id).state is State.RUNNING:
        if time.monotonic() > until:
            raise ConfigurationError(
                f"job {record.id} was asked to stop, and has not within {_STOPS_WITHIN:g} s",
                f"See whether it still runs, and stop it there: {record.by}. If nobody runs it: "
                f"redrive jobs forget {record.id}.",
            )
        if time.monotonic() > asked_at + _ASKED_AGAIN_EVERY:
            asked_at = time.monotonic()
            journal.ask_to_stop_again(record)
        time.sleep(_ASKED_EVERY)
