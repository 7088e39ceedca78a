"""One task as a process of its own, to be killed:
`python task_program.py drain|fill|send URL PLACE RUN COUNT ATTEMPT`."""

import sys
import time
from collections.abc import Iterator

import pyarrow.parquet

from redrive.errors import RedriveError
from redrive.failures.queue.failed_source import FailedSource
from redrive.spark_reprocess.archive import messages_folder, rows_of
from redrive.spark_reprocess.drain_task import DrainTask, TaskShare
from redrive.spark_reprocess.ledger import ArchiveLedger
from redrive.spark_reprocess.row_message import Mode
from redrive.spark_reprocess.send_task import SendTask, Sent
from redrive.spark_reprocess.storage import Storage

QUEUE = "shop@orders"
FILE_ROWS = 20
BATCH = 40
JOB = "job"


def drain(url: str, storage: Storage, run: str, count: int, attempt: int) -> int:
    """Takes the only share of a run."""
    return DrainTask(url, storage, run, FILE_ROWS, timeout=180).take(
        TaskShare(FailedSource.of_subscription(QUEUE), count, "part-a"), attempt
    )


def send(
    url: str,
    storage: Storage,
    run: str,
    attempt: int,
    *,
    mode: Mode = Mode.REQUEUE,
    rate: float | None = None,
) -> Sent:
    """Sends all that a run has."""
    ledger = ArchiveLedger(storage, run, JOB)
    return SendTask(url, mode, JOB, ledger, batch=BATCH, rate=rate, timeout=180).send(
        rows(storage, run), "part-00000", attempt
    )


def rows(storage: Storage, run: str) -> Iterator[dict[str, object]]:
    """What a run has in its files, each failure once, as a DataFrame would give it."""
    seen: set[object] = set()
    folder = messages_folder(QUEUE, run)
    for name in storage.names(folder):
        data = storage.read(f"{folder}/{name}")
        for row in pyarrow.parquet.read_table(pyarrow.BufferReader(data)).to_pylist():
            if row["failure_id"] not in seen:
                seen.add(row["failure_id"])
                yield {**row, "id": row["failure_id"], "queue": QUEUE}


class SlowStorage(Storage):
    """A storage that takes its time, so that whoever uses it can be killed meanwhile."""

    def write(self, path: str, data: bytes) -> None:
        time.sleep(0.3)
        Storage.write(self, path, data)


if __name__ == "__main__":
    what, url, place, run, count, attempt = sys.argv[1:]
    if what == "fill":
        # Until the disk is full: says why it ended, and how many rows are in files.
        try:
            drain(url, Storage.at(place), run, int(count), int(attempt))
        except RedriveError as error:
            print(error)
        print(sum(rows_of(name) for name in Storage.at(place).names(messages_folder(QUEUE, run))))
    elif what == "drain":
        drain(url, SlowStorage(Storage.at(place).uri), run, int(count), int(attempt))
    else:
        send(url, Storage.at(place), run, int(attempt), rate=50)
