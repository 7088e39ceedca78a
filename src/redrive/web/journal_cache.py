"""What the journal tells of causes and jobs, as pages ask for it: read anew now and then, and not
for each of them."""

import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field

from redrive.errors import RedriveError
from redrive.failures.cause_note import CauseNote
from redrive.failures.cause_notes import CauseNotes
from redrive.failures.job_record import JobRecord
from redrive.failures.journal import Journal

_FRESH = 5.0
_MOST_JOBS = 1000
"""Seconds for which what was read is shown: to read the journal asks the broker."""
Opened = Callable[[], AbstractContextManager[Journal]]


@dataclass(frozen=True, slots=True)
class CachedJournal:
    """What the journal has told.

    Args:
        book: what was said of causes.
        jobs: the jobs, the latest first; a thousand at most.
        problem: why it has told nothing; empty otherwise.
    """

    book: CauseNotes = field(default_factory=CauseNotes)
    jobs: list[JobRecord] = field(default_factory=list)
    problem: str = ""


class JournalCache:
    """What the journal tells of causes and jobs."""

    def __init__(self, opened: Opened) -> None:
        self._opened = opened
        self._reading = threading.Lock()
        self._known: CachedJournal | None = None
        self._read_at = float("-inf")

    @property
    def known(self) -> CachedJournal:
        """What the journal tells, as it was a few seconds ago at most. While somebody reads it
        anew, the others are told what was known before."""
        known = self._known
        if known is not None and time.monotonic() - self._read_at < _FRESH:
            return known
        if not self._reading.acquire(blocking=known is None):
            return known if known is not None else CachedJournal()
        try:
            if self._known is None or time.monotonic() - self._read_at >= _FRESH:
                self._known = self._read()
                self._read_at = time.monotonic()
            return self._known
        finally:
            self._reading.release()

    @property
    def book(self) -> CauseNotes:
        """What was said of causes."""
        return self.known.book

    def say(self, remark: CauseNote) -> None:
        """Writes down what somebody says of a cause."""
        with self._opened() as journal:
            journal.remark(remark)
        self.forget()

    def forget(self) -> None:
        """Has the journal read anew for the next page."""
        self._read_at = float("-inf")

    def _read(self) -> CachedJournal:
        try:
            with self._opened() as journal:
                return CachedJournal(journal.causes(), journal.jobs(_MOST_JOBS))
        except RedriveError as error:
            return CachedJournal(problem=str(error).partition("\n")[0])
