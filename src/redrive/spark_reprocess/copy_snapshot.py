"""Copy a snapshot into an archive, instead of draining a queue."""

from collections import Counter

from redrive.errors import ConfigurationError
from redrive.failures.message.failed_message import FailedMessage
from redrive.failures.queue.snapshot import Snapshot
from redrive.pubsub.url import BrokerURL
from redrive.spark_reprocess.archive import (
    Archive,
    Run,
    file_name,
    messages_folder,
    new_run,
    settled_mark,
)
from redrive.spark_reprocess.archive_row import parquet_of, table_of_copies
from redrive.spark_reprocess.drain import FILE_ROWS
from redrive.spark_reprocess.progress import OnProgress, tell_nobody
from redrive.topology.names import ExchangeFamily

_SESSION = "copied"


def source_of(snapshot: Snapshot) -> str:
    """Return the `source` of a run that is copied from this snapshot."""
    return str(snapshot.path.absolute())


def copy_snapshot(
    archive: Archive,
    url: str,
    snapshot: Snapshot,
    *,
    exchanges: ExchangeFamily | None = None,
    on_progress: OnProgress = tell_nobody,
) -> Run:
    """Copy the messages of a snapshot into an archive as a new, drained run. The snapshot is left
    as it is.

    The run appears in the archive only once all of its messages are there.
    """
    depths: Counter[str] = Counter()
    dead_letter_queues: set[str] = set()
    for message in snapshot.browse():
        depths[_place_of(message)] += 1
        if message.dead_letter_queue is not None:
            dead_letter_queues.add(message.dead_letter_queue)
    if not depths:
        raise ConfigurationError(f"{snapshot.path} holds no message", "Give another file.")
    address = BrokerURL.parse(url).address
    run = new_run(address, dict(depths), source_of(snapshot), exchanges, dead_letter_queues)
    waiting: dict[str, list[FailedMessage]] = {queue: [] for queue in depths}
    files = rows = 0

    def write(queue: str) -> None:
        nonlocal files, rows
        messages, waiting[queue] = waiting[queue], []
        if not messages:
            return
        name = file_name(_SESSION, files, len(messages))
        archive.storage.write(
            f"{messages_folder(queue, run.id)}/{name}", parquet_of(table_of_copies(messages))
        )
        files, rows = files + 1, rows + len(messages)
        on_progress("copying", rows, depths.total())

    for message in snapshot.browse():
        place = _place_of(message)
        waiting[place].append(message)
        if len(waiting[place]) >= FILE_ROWS:
            write(place)
    for queue in waiting:
        write(queue)
    archive.storage.write(settled_mark(run.id, _SESSION), b"")
    archive.add(run)
    archive.end_draining(run, rows)
    return run


def _place_of(message: FailedMessage) -> str:
    """Return the queue that the archive files a message under: its dead-letter queue, or its main
    queue."""
    place = message.dead_letter_queue
    return message.queue if place is None else place
