"""The ledger: what became of which message, written down while it happens.

It is not the ledger of a requeue on one machine (`failures.journal_ledger`): that one is a table of
SQLite, and the tasks of a distributed run share no disk and no lock, only the archive's store.

    ledger/run=<run>/job=<job>/<part>-<attempt>-<n>-<outcomes>.parquet

Before a task publishes a chunk it notes the ids as `sending`, and once that is confirmed, as
`sent`. What was noted as `sending` and never as `sent`, because its task died, is sent again by the
next attempt, and counted as possibly sent twice. Each note is a file that is there whole or not at
all, so the ledger can be on a store that can't append.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum

import pyarrow
import pyarrow.parquet

from redrive.spark_reprocess.storage import Storage


class Event(StrEnum):
    """What can become of a message."""

    SENDING = "sending"
    """It is about to be requeued."""
    SENT = "sent"
    """Its main queue has it."""
    RESTORING = "restoring"
    """It is about to be restored."""
    RESTORED = "restored"
    """Its failed queue has it again."""
    REFUSED = "refused"
    """It can't be sent; it stays in the archive."""
    DISCARDED = "discarded"
    """Nobody wants it; it stays in the archive and is not sent any more."""


@dataclass(frozen=True, slots=True)
class Entry:
    """A line of the ledger.

    Args:
        id: the message's id in the archive.
        event: what became of it.
        detail: why it was refused.
        again: whether it may be there twice: a connection was lost before its confirm came.
    """

    id: str
    event: Event
    detail: str = ""
    again: bool = False


SCHEMA = pyarrow.schema(
    [
        ("id", pyarrow.string()),
        ("event", pyarrow.string()),
        ("detail", pyarrow.string()),
        ("again", pyarrow.bool_()),
    ]
)
_INTENTIONS = (Event.SENDING, Event.RESTORING)


@dataclass(frozen=True, slots=True)
class ArchiveLedger:
    """The ledger of one job.

    Args:
        storage: the archive's place.
        run: whose messages they are.
        job: the job's id.
    """

    storage: Storage
    run: str
    job: str

    @property
    def folder(self) -> str:
        """Where its files are."""
        return f"ledger/run={self.run}/job={self.job}"

    def write(self, part: str, attempt: int, number: int, entries: Sequence[Entry]) -> None:
        """Notes what an attempt at a part has to say; `number` counts its notes."""
        table = pyarrow.Table.from_pydict(
            {
                "id": [entry.id for entry in entries],
                "event": [str(entry.event) for entry in entries],
                "detail": [entry.detail for entry in entries],
                "again": [entry.again for entry in entries],
            },
            SCHEMA,
        )
        sink = pyarrow.BufferOutputStream()
        pyarrow.parquet.write_table(table, sink, compression="zstd")
        outcomes = sum(entry.event not in _INTENTIONS for entry in entries)
        self.storage.write(
            f"{self.folder}/{part}-{attempt}-{number:06d}-{outcomes}.parquet",
            sink.getvalue().to_pybytes(),
        )

    def entries(self, part: str = "") -> Iterator[Entry]:
        """What is noted of a part, or of all of them."""
        for name in self.storage.names(self.folder):
            if name.startswith(f"{part}-" if part else ""):
                data = self.storage.read(f"{self.folder}/{name}")
                if data is not None:
                    for line in pyarrow.parquet.read_table(pyarrow.BufferReader(data)).to_pylist():
                        yield Entry(line["id"], Event(line["event"]), line["detail"], line["again"])

    def settled(self, part: str) -> set[str]:
        """The ids of a part that an attempt at it has settled."""
        return {entry.id for entry in self.entries(part) if entry.event not in _INTENTIONS}

    def outcomes(self) -> int:
        """How many messages are settled so far, by the names of the files."""
        return sum(
            int(name.rsplit("-", 1)[1].partition(".")[0])
            for name in self.storage.names(self.folder)
        )

    def possible_duplicates(self) -> int:
        """Count the messages of this job that may have been delivered twice: a connection or an
        attempt was lost while they were on their way. It is the rule of `ArchivedMessages.states`,
        for a few messages and without Spark."""
        again: set[str] = set()
        unsettled: Counter[str] = Counter()
        for entry in self.entries():
            if entry.again:
                again.add(entry.id)
            unsettled[entry.id] += 1 if entry.event in _INTENTIONS else -1
        return len(again | {id_ for id_, count in unsettled.items() if count > 0})

    def stop(self, reason: str) -> None:
        """Tells every task to send no more."""
        self.storage.write(f"runs/{self.run}/stopped/{self.job}", reason.encode())

    def stopped(self) -> str | None:
        """Why tasks are to send no more; None where they may."""
        reason = self.storage.read(f"runs/{self.run}/stopped/{self.job}")
        return None if reason is None else reason.decode()
