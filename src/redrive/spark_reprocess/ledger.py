"""The ledger: the outcome of each message, written while a job runs.

A requeue on one machine has a different ledger (`failures.journal_ledger`), which is an SQLite
table. The tasks of a distributed run share no disk and no lock, only the archive's storage.

    ledger/run=<run>/job=<job>/<part>-<attempt>-<n>-<outcomes>.parquet

A task records the ids of a chunk as `sending` before it publishes the chunk, and as `sent` once it
is confirmed. If a task dies in between, the next attempt sends these messages again, and they count
as possible duplicates. Each record is a file that is written whole or not at all, so the ledger
works on storage that can't append.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

import pyarrow
import pyarrow.parquet

from redrive.spark_reprocess.storage import Storage


class Event(StrEnum):
    """A step or an outcome of a message, as recorded in the ledger."""

    SENDING = "sending"
    """It is about to be requeued."""
    SENT = "sent"
    """It is in the queue that it was sent to."""
    RESTORING = "restoring"
    """It is about to be restored."""
    RESTORED = "restored"
    """It is back in the queue that it was drained from."""
    REFUSED = "refused"
    """It can't be sent, and stays in the archive."""
    DISCARDED = "discarded"
    """It is unwanted: it stays in the archive and is never sent."""


class Entry(NamedTuple):
    """A line of the ledger."""

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
    """The ledger of one job."""

    storage: Storage
    run: str
    job: str

    @property
    def folder(self) -> str:
        """The folder of the ledger's files."""
        return f"ledger/run={self.run}/job={self.job}"

    def write(self, part: str, attempt: int, number: int, entries: Sequence[Entry]) -> None:
        """Write entries of an attempt at a part; `number` counts the files of the attempt."""
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
        """Yield the entries of a part, or of all parts."""
        for name in self.storage.names(self.folder):
            if name.startswith(f"{part}-" if part else ""):
                data = self.storage.read(f"{self.folder}/{name}")
                if data is not None:
                    for line in pyarrow.parquet.read_table(pyarrow.BufferReader(data)).to_pylist():
                        yield Entry(line["id"], Event(line["event"]), line["detail"], line["again"])

    def wait_until_listed(self, files: Mapping[str, int]) -> None:
        """Wait until so many files of each attempt are listed."""

        def is_listed(names: Sequence[str]) -> bool:
            found = Counter(name.rsplit("-", 2)[0] for name in names)
            return all(found[attempt] >= count for attempt, count in files.items())

        if any(files.values()):
            self.storage.wait_until_listed(self.folder, is_listed)

    def settled(self, part: str) -> dict[str, Event]:
        """Return the ids of a part that earlier attempts have settled, and how."""
        return {
            entry.id: entry.event for entry in self.entries(part) if entry.event not in _INTENTIONS
        }

    def outcomes(self) -> int:
        """Count the messages settled so far, by the file names."""
        return sum(
            int(name.rsplit("-", 1)[1].partition(".")[0])
            for name in self.storage.names(self.folder)
        )

    def possible_duplicates(self) -> int:
        """Count the messages of this job that may have been delivered twice, because a connection
        or an attempt was lost while they were in flight. Applies the rule of
        `ArchivedMessages.states` to a few messages, without Spark."""
        again: set[str] = set()
        unsettled: Counter[str] = Counter()
        for entry in self.entries():
            if entry.again:
                again.add(entry.id)
            unsettled[entry.id] += 1 if entry.event in _INTENTIONS else -1
        return len(again | {id_ for id_, count in unsettled.items() if count > 0})

    def stop(self, reason: str) -> None:
        """Tell every task to stop sending."""
        self.storage.write(f"runs/{self.run}/stopped/{self.job}", reason.encode())

    def stopped(self) -> str | None:
        """Return why tasks must stop sending; None if they may go on."""
        reason = self.storage.read(f"runs/{self.run}/stopped/{self.job}")
        return None if reason is None else reason.decode()
