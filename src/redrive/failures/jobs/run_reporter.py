"""How far a run of a job has got, for others on the same machine to read while it runs."""

import contextlib
import threading
import time
from collections import deque
from typing import TYPE_CHECKING

from redrive.errors import RedriveError
from redrive.failures.jobs.job_record import RunProgress
from redrive.failures.jobs.requeue_job import OutcomeCounts
from redrive.pubsub.reports import RequeueProgress

if TYPE_CHECKING:
    from redrive.failures.jobs.local_journal import LocalJournal

_SHOWN_EVERY = 0.2
_RATE_OF = 5.0
"""Seconds that the rate is averaged over."""
_MOST_CAUSES = 20
_MOST_NOTICES = 20


class RunReporter:
    """Records the progress of a run of a job in the journal's file."""

    def __init__(self, journal: "LocalJournal", job_id: str) -> None:
        self._journal = journal
        self._job_id = job_id
        self._lock = threading.Lock()
        self._progress = RunProgress()
        self._shown_at = 0.0
        self._sent: deque[tuple[float, int]] = deque()

    def planned(self, count: int) -> None:
        """Take the number of messages that the run should send."""
        self._progress.planned = count
        self._show(at_once=True)

    def progress(self, so_far: RequeueProgress) -> None:
        """Take what the run has sent."""
        now = time.monotonic()
        self._sent.append((now, so_far.requeued))
        while now - self._sent[0][0] > _RATE_OF:
            self._sent.popleft()
        since, before = self._sent[0]
        if now > since:
            self._progress.rate = round((so_far.requeued - before) / (now - since), 1)
        self._progress.sent, self._progress.looked_at = so_far.requeued, so_far.looked_at
        self._show()

    def notice(self, notice: str) -> None:
        """Take a notice for the user."""
        self._progress.notices = [*self._progress.notices, notice][-_MOST_NOTICES:]
        self._show(at_once=True)

    def outcome(self, seen: OutcomeCounts) -> None:
        """Take what has become of the messages that the run has sent."""
        progress, standing = self._progress, seen.standing
        progress.succeeded, progress.retrying = standing.succeeded, standing.retrying
        progress.failed_again = standing.failed_again
        largest = sorted(seen.causes.items(), key=lambda one: -one[1])[:_MOST_CAUSES]
        progress.causes = [(cause.group_id, cause.what, count) for cause, count in largest]
        self._show()

    def end(self, sent: int) -> None:
        """Take the number of messages that the run has sent in all."""
        self._progress.sent, self._progress.rate = sent, 0.0
        self._show(at_once=True)

    def _show(self, *, at_once: bool = False) -> None:
        with self._lock:
            now = time.monotonic()
            if at_once or now - self._shown_at >= _SHOWN_EVERY:
                self._shown_at = now
                # If the file can't be written, the job itself reports that.
                with contextlib.suppress(RedriveError):
                    self._journal._show_progress(self._job_id, self._progress)
