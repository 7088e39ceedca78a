"""The causes and jobs from the journal, cached for pages."""

import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field

from redrive.errors import RedriveError
from redrive.failures.jobs.cause_remark import CauseRemark
from redrive.failures.jobs.cause_remarks import CauseRemarks
from redrive.failures.jobs.job_record import JobRecord
from redrive.failures.jobs.journal import Journal

_FRESH = 5.0
"""Seconds for which the cache is used: reading the journal queries the broker."""
_MOST_JOBS = 1000
Opened = Callable[[], AbstractContextManager[Journal]]


@dataclass(frozen=True, slots=True)
class CachedJournal:
    """What was read from the journal.

    Args:
        book: the notes on causes.
        jobs: the jobs, latest first; a thousand at most.
        problem: why the journal could not be read; empty otherwise.
    """

    book: CauseRemarks = field(default_factory=CauseRemarks)
    jobs: list[JobRecord] = field(default_factory=list)
    problem: str = ""


class JournalCache:
    """The causes and jobs from the journal, read again when they are a few seconds old."""

    def __init__(self, opened: Opened) -> None:
        self._opened = opened
        self._reading = threading.Lock()
        self._known: CachedJournal | None = None
        self._read_at = float("-inf")

    @property
    def known(self) -> CachedJournal:
        """What was read from the journal, a few seconds ago at most. While one caller reads it
        again, the others get the previous state."""
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
    def book(self) -> CauseRemarks:
        """The notes on causes."""
        return self.known.book

    def say(self, remark: CauseRemark) -> None:
        """Write a note on a cause to the journal."""
        with self._opened() as journal:
            journal.remark(remark)
        self.forget()

    def forget(self) -> None:
        """Make the next page read the journal again."""
        self._read_at = float("-inf")

    def _read(self) -> CachedJournal:
        try:
            with self._opened() as journal:
                return CachedJournal(journal.causes(), journal.jobs(_MOST_JOBS))
        except RedriveError as error:
            return CachedJournal(problem=str(error).partition("\n")[0])
