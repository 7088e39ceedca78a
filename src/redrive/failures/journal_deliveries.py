"""Which messages of a job are on their way, written down so that it is known after a kill."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from redrive.failures.local_journal import LocalJournal


class JournalDeliveries:
    """Writes down in a journal which messages of a job are on their way."""

    def __init__(self, journal: "LocalJournal", job_id: str) -> None:
        self._journal = journal
        self._job_id = job_id

    def sending(self, digests: Sequence[str]) -> None:
        """These are about to be sent."""
        self._journal.sending(self._job_id, digests)

    def settled(self, digests: Sequence[str]) -> None:
        """These are no longer on their way."""
        self._journal.settled(self._job_id, digests)
