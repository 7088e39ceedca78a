"""Which messages of a job are on their way, written down so that it is known after a kill."""

from collections.abc import Sequence

from redrive.failures.journal import Journal


class JournalLedger:
    """Writes down in a journal which messages of a job are on their way."""

    def __init__(self, journal: Journal, job_id: str) -> None:
        self._journal = journal
        self._job_id = job_id

    def sending(self, digests: Sequence[str]) -> None:
        """These are about to be sent."""
        with self._journal.writing() as sqlite:
            # One that is sent again, after its connection was lost, is written down already.
            new = sqlite.executemany(
                "INSERT OR IGNORE INTO under_way VALUES (?, ?)",
                ((self._job_id, one) for one in digests),
            )
            sqlite.execute(
                "INSERT INTO handed_over VALUES (?, ?) ON CONFLICT (job) DO UPDATE SET messages = "
                "messages + excluded.messages",
                (self._job_id, new.rowcount),
            )

    def settled(self, digests: Sequence[str]) -> None:
        """These are no longer on their way."""
        with self._journal.writing() as sqlite:
            sqlite.executemany(
                "DELETE FROM under_way WHERE job = ? AND failure_id = ?",
                ((self._job_id, one) for one in digests),
            )
