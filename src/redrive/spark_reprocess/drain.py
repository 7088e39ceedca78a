"""Draining failed queues into an archive: shares for tasks, round after round, until what was there
at the beginning is in it."""

import uuid
from collections.abc import Iterator, Sequence
from collections.abc import Set as AbstractSet
from typing import TYPE_CHECKING

from redrive.errors import ConfigurationError
from redrive.pubsub.blocking.connection import Connector
from redrive.pubsub.blocking.declarer import declaring
from redrive.pubsub.lifecycle import default_name
from redrive.pubsub.url import BrokerURL
from redrive.spark_reprocess.archive import Archive, Run, messages_folder, rows_of, session_of
from redrive.spark_reprocess.archive_reader import distinct_ids
from redrive.spark_reprocess.drain_task import DrainTask, Share
from redrive.spark_reprocess.progress import OnProgress, tell_nobody, watching
from redrive.spark_reprocess.session import check_reads
from redrive.spark_reprocess.settings import TIMEOUT
from redrive.spark_reprocess.spark_errors import explained
from redrive.topology.names import ExchangeFamily, check_queue_name, failed_queue

if TYPE_CHECKING:
    import pyarrow
    from pyspark.sql import SparkSession

FILE_ROWS = 2000
"""Messages in a file. A larger one costs less, and leaves more in both places when a task dies."""
_MOST_ROUNDS = 20


def depths_of(url: str, queues: Sequence[str]) -> dict[str, int]:
    """How many messages are ready in the failed queue of each.

    Raises:
        ConfigurationError: there is none of that name.
        BrokerUnavailable, PermissionDenied: the broker can't be reached.
    """
    depths: dict[str, int] = {}
    connector = Connector(url, default_name("spark"))
    with declaring(connector) as declarer:
        for queue in queues:
            check_queue_name(queue)
            depth = declarer.depth(failed_queue(queue))
            if depth is None:
                raise ConfigurationError(
                    f"there is no queue {failed_queue(queue)!r} at {connector.url.address}",
                    "Check the name of the main queue, the virtual host, and whether it was "
                    "declared.",
                )
            depths[queue] = depth.messages
    return depths


def drain(
    spark: "SparkSession",
    archive: Archive,
    url: str,
    queues: Sequence[str],
    *,
    exchanges: ExchangeFamily | None = None,
    tasks: int | None = None,
    file_rows: int = FILE_ROWS,
    timeout: float = TIMEOUT,
    on_progress: OnProgress = tell_nobody,
) -> Run:
    """Takes what is in the failed queues into the archive, as one run; goes on with a run that was
    broken off.

    A message is acked only once the file that holds it is complete and visible. What arrives
    meanwhile is left.

    Args:
        spark: the session.
        archive: where to.
        url: the broker's address.
        queues: the main queues.
        exchanges: their exchange family, for the run; None for redrive's default.
        tasks: competing consumers for each queue; the cluster's cores where none are given.
        file_rows: messages in a file.
        timeout: seconds for which the broker may be away.
        on_progress: is called with the phase, how many messages are through it, of how many.

    Returns:
        The run.

    Raises:
        ConfigurationError: there is no such queue, the archive can't be written, or it has an
            unfinished run of something else.
        BrokerUnavailable: the broker was away for too long. Each message is in its queue or in the
            archive.
    """
    check_reads(spark, archive.storage)
    found = depths_of(url, queues)
    run = _unfinished(archive, BrokerURL.parse(url).address, queues) or archive.begin(
        BrokerURL.parse(url).address, found, exchanges
    )
    task = DrainTask(url, archive.storage, run.id, file_rows, timeout)
    swept: set[str] = set()
    for _ in range(_MOST_ROUNDS):
        broken_off = _broken_off(archive, run)
        shares = _shares(
            spark, archive, run, depths_of(url, run.queues), tasks, broken_off.keys() - swept
        )
        if not shares:
            break
        with (
            watching(
                lambda: on_progress(
                    "draining", rows_drained(archive, run), sum(run.depths.values())
                )
            ),
            explained(),
        ):
            _run(spark, task, shares)
        swept |= broken_off.keys()
    rows = rows_drained(archive, run)
    on_progress("draining", rows, rows)
    archive.end_draining(run, rows)
    return run


def rows_drained(archive: Archive, run: Run) -> int:
    """How many rows are in the files of a run, by their names."""
    return sum(
        rows_of(name)
        for queue in run.queues
        for name in archive.storage.names(messages_folder(queue, run.id))
    )


def _unfinished(archive: Archive, address: str, queues: Sequence[str]) -> Run | None:
    """The run to go on with."""
    for run in archive.runs():
        if archive.is_drained(run):
            continue
        if run.address != address or sorted(run.queues) != sorted(queues):
            raise ConfigurationError(
                f"the archive {archive.storage.uri} has an unfinished draining {run.id} of "
                f"{', '.join(run.queues)} at {run.address}",
                "Finish it with the same queues and address, or use another archive.",
            )
        return run
    return None


def _broken_off(archive: Archive, run: Run) -> dict[str, tuple[str, int]]:
    """The sessions that did not come to their end: the queue and the rows of each. Such a row may
    be in its queue as well."""
    settled = set(archive.storage.names(f"runs/{run.id}/settled"))
    found: dict[str, tuple[str, int]] = {}
    for queue in run.queues:
        for name in archive.storage.names(messages_folder(queue, run.id)):
            session = session_of(name)
            if session not in settled:
                found[session] = (queue, found.get(session, (queue, 0))[1] + rows_of(name))
    return found


def _shares(
    spark: "SparkSession",
    archive: Archive,
    run: Run,
    depths: dict[str, int],
    tasks: int | None,
    sweep: AbstractSet[str],
) -> list[Share]:
    """What is left to take: what was there at the beginning and is not in the archive, and what may
    be in both."""
    shares: list[Share] = []
    count = tasks or max(1, spark.sparkContext.defaultParallelism)
    broken_off = _broken_off(archive, run)
    round_ = uuid.uuid4().hex[:8]
    for queue in run.queues:
        rows = sum(rows_of(name) for name in archive.storage.names(messages_folder(queue, run.id)))
        if any(other == queue for other, _ in broken_off.values()):
            rows = min(rows, distinct_ids(spark, archive, run, queue))
        left_over = sum(
            rows
            for session, (other, rows) in broken_off.items()
            if other == queue and session in sweep
        )
        wanted = min(depths[queue], max(0, run.depths[queue] - rows) + left_over)
        for index in range(min(count, wanted)):
            shares.append(
                Share(
                    queue,
                    wanted // count + (index < wanted % count),
                    f"part-{round_}-{len(shares):05d}",
                )
            )
    return shares


def _run(spark: "SparkSession", task: DrainTask, shares: list[Share]) -> None:
    def take(batches: "Iterator[pyarrow.RecordBatch]") -> "Iterator[pyarrow.RecordBatch]":
        import pyarrow
        from pyspark import TaskContext

        context = TaskContext.get()
        attempt = context.taskAttemptId() if context is not None else 0
        for batch in batches:
            for index in batch.column(0).to_pylist():
                yield pyarrow.RecordBatch.from_pydict(
                    {"taken": [task.take(shares[index], attempt)]}
                )

    spark.range(0, len(shares), 1, len(shares)).mapInArrow(take, "taken long").collect()
