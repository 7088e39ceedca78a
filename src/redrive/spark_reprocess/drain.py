"""Drain failed queues into an archive.

The work is split into shares for tasks, round by round, until every message that was there at the
beginning is in the archive.
"""

import hashlib
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import pyarrow
import pyarrow.compute as pc

from redrive.errors import ConfigurationError
from redrive.failures.queue.failed_source import (
    FailedSource,
    check_source_name,
    no_such_queue,
    source_named,
)
from redrive.failures.queue.return_safety import return_limit
from redrive.failures.store.index import forget
from redrive.failures.store.stored_message import QUEUE
from redrive.pubsub.blocking.connection import Connector
from redrive.pubsub.blocking.declarer import declaring
from redrive.pubsub.lifecycle import default_name
from redrive.pubsub.transfer.delivery_limit import ReturnLimit
from redrive.pubsub.url import BrokerURL
from redrive.spark_reprocess.archive import (
    Archive,
    Run,
    check_folder_name,
    messages_folder,
    rows_of,
    session_of,
)
from redrive.spark_reprocess.archive_reader import distinct_ids
from redrive.spark_reprocess.archived_messages import as_messages
from redrive.spark_reprocess.drain_task import DrainTask, TaskShare
from redrive.spark_reprocess.progress import OnProgress, tell_nobody, watching
from redrive.spark_reprocess.selection import RowJudge, Selection
from redrive.spark_reprocess.settings import TIMEOUT
from redrive.spark_reprocess.spark_errors import explained
from redrive.spark_reprocess.storage import reads_by_spark
from redrive.spark_reprocess.tally import TALLY, TALLY_DDL, Tally, added
from redrive.topology.names import ExchangeFamily

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FILE_ROWS = 2000
"""Messages in a file. Larger files cost less, but leave more duplicates when a task dies."""
_MOST_ROUNDS = 20
_MOST_HASHES = 2_000_000
"""Messages of which the tasks return a hash each, of eight bytes."""
_HASH_SIZE = 8
_HASHES = "hashes"
_SEEN = TALLY.append(pyarrow.field(_HASHES, pyarrow.binary()))


@dataclass(slots=True)
class Drained:
    """What the tasks of a drain have seen.

    Args:
        counts: the counts of the rows, if there was a choice to count them by.
        hashes: hashes of the failure ids, if there were not too many.
    """

    counts: pyarrow.Table = field(default_factory=TALLY.empty_table)
    hashes: bytearray = field(default_factory=bytearray)

    def has_distinct_ids(self, rows: int) -> bool:
        """Check whether so many rows are known to have different failure ids. That two of them seem
        to be the same can be chance, and is found out by looking."""
        count = len(self.hashes) // _HASH_SIZE
        found = pyarrow.Array.from_buffers(
            pyarrow.uint64(), count, [None, pyarrow.py_buffer(self.hashes)]
        )
        return count == rows and bool(pc.count_distinct(found).as_py() == rows)


def sources_of(url: str, queues: Sequence[str], *, literal: bool = False) -> list[FailedSource]:
    """Return the failed queues that these names stand for, each once: a name is a subscription or
    any other queue."""
    found: dict[FailedSource, None] = {}
    connector = Connector(url, default_name("spark"))
    with declaring(connector) as declarer:
        for queue in queues:
            check_source_name(queue)
            source = source_named(queue, declarer, literal=literal)
            if source is None:
                raise no_such_queue(queue, connector.url.address, literal=literal)
            check_folder_name(source.name)
            found[source] = None
    return list(found)


def depths_of(url: str, sources: Sequence[FailedSource]) -> dict[str, int]:
    """Return the number of ready messages of each of these queues, by the source's name."""
    depths: dict[str, int] = {}
    connector = Connector(url, default_name("spark"))
    with declaring(connector) as declarer:
        for source in sources:
            depth = declarer.depth(source.queue)
            if depth is None:
                raise no_such_queue(source.name, connector.url.address, literal=source.main is None)
            depths[source.name] = depth.messages
    return depths


def limits_of(
    url: str,
    sources: Sequence[FailedSource],
    management_url: str | None = None,
    *,
    returns_all: bool = False,
) -> dict[str, ReturnLimit | None]:
    """Return how often each queue takes a message back before the broker deletes it, by the
    source's name; None for no limit."""
    connector = Connector(url, default_name("spark"))
    with declaring(connector) as declarer:
        return {
            source.name: _for_tasks(return_limit(declarer, source, connector, management_url))
            if returns_all or source.main is None
            else None
            for source in sources
        }


def _for_tasks(limit: ReturnLimit | None) -> ReturnLimit | None:
    """Return a limit that can be sent to tasks on other machines: fixed at its current value."""
    return None if limit is None or limit.returns is None else replace(limit, now=None)


def check_before(
    spark: "SparkSession",
    archive: Archive,
    url: str,
    sources: Sequence[FailedSource],
    management_url: str | None = None,
    on_note: Callable[[str], None] = lambda _: None,
) -> None:
    """Check that queues can be drained into an archive; note what that may cost."""
    reads_by_spark(spark, archive.storage)  # raises if it should, and can't
    for source, limit in zip(
        sources, limits_of(url, sources, management_url).values(), strict=True
    ):
        if limit is not None:
            on_note(
                f"{source.queue} has a delivery limit: if a task dies, each message that it holds "
                f"has used up one of its {limit.returns:,} returns."
            )


def begun(
    archive: Archive,
    url: str,
    sources: Sequence[FailedSource],
    exchanges: ExchangeFamily | None = None,
) -> Run:
    """Return the unfinished drain of these queues, or begin a new run."""
    address = BrokerURL.parse(url).address
    depths = depths_of(url, sources)
    return _unfinished(archive, address, sources) or archive.begin(
        address,
        depths,
        exchanges,
        [source.name for source in sources if source.main is None],
    )


def drain(
    spark: "SparkSession",
    archive: Archive,
    url: str,
    run: Run,
    *,
    tasks: int,
    file_rows: int = FILE_ROWS,
    timeout: float = TIMEOUT,
    management_url: str | None = None,
    choice: Selection | None = None,
    on_progress: OnProgress = tell_nobody,
) -> Drained:
    """Drain failed queues into the archive, or continue an interrupted run; return what is known of
    the rows that were drained now.

    A message is acked only once the file that holds it is complete and visible. Messages that
    arrive during the drain stay in their queues.
    """
    sources = run.sources
    limits = limits_of(url, sources, management_url)
    _forget(url, sources)
    try:
        drained = _take_all(
            spark,
            archive,
            run,
            DrainTask(url, archive.storage, run.id, file_rows, timeout),
            limits,
            tasks,
            choice,
            on_progress,
        )
    finally:
        _forget(url, sources)
    rows = rows_drained(archive, run)
    on_progress("draining", rows, rows)
    archive.end_draining(run, rows)
    return drained


def _forget(url: str, sources: Sequence[FailedSource]) -> None:
    """Drop the local index of looks at queues that messages are drained from."""
    for source in sources:
        forget(BrokerURL.parse(url), source.queue)


def _take_all(
    spark: "SparkSession",
    archive: Archive,
    run: Run,
    task: DrainTask,
    limits: Mapping[str, ReturnLimit | None],
    tasks: int,
    choice: Selection | None,
    on_progress: OnProgress,
) -> Drained:
    """Drain what was there at the beginning, round by round."""
    drained = Drained()
    swept: set[str] = set()
    for _ in range(_MOST_ROUNDS):
        broken_off = _broken_off(archive, run)
        shares = _shares(
            spark,
            archive,
            run,
            depths_of(task.url, run.sources),
            limits,
            tasks,
            broken_off.keys() - swept,
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
            _run(spark, task, shares, choice, drained)
        _wait_until_listed(archive, run, shares)
        swept |= broken_off.keys()
    return drained


def _wait_until_listed(archive: Archive, run: Run, shares: Sequence[TaskShare]) -> None:
    """Wait until the archive lists what the tasks of a round have written."""
    storage, settled = archive.storage, f"runs/{run.id}/settled"
    for share in shares:
        of_share = f"{share.name}-"

        def has_mark(names: Sequence[str], of_share: str = of_share) -> bool:
            return any(name.startswith(of_share) for name in names)

        storage.wait_until_listed(settled, has_mark)
        for session in storage.names(settled):
            if session.startswith(of_share):
                files = int(storage.read(f"{settled}/{session}") or 0)

                def has_files(
                    names: Sequence[str], session: str = session, files: int = files
                ) -> bool:
                    return sum(session_of(name) == session for name in names) >= files

                storage.wait_until_listed(messages_folder(share.source.name, run.id), has_files)


def rows_drained(archive: Archive, run: Run) -> int:
    """Count the rows of a run's files, by the file names."""
    return sum(
        rows_of(name)
        for queue in run.queues
        for name in archive.storage.names(messages_folder(queue, run.id))
    )


def _unfinished(archive: Archive, address: str, sources: Sequence[FailedSource]) -> Run | None:
    """Return the unfinished run to continue; None if there is none."""
    for run in archive.runs():
        if archive.is_drained(run):
            continue
        if run.address != address or set(run.sources) != set(sources):
            raise ConfigurationError(
                f"the archive {archive.storage.uri} has an unfinished drain {run.id} of "
                f"{', '.join(run.queues)} at {run.address}",
                "Finish it with the same queues and address, or use another archive.",
            )
        return run
    return None


def _broken_off(archive: Archive, run: Run) -> dict[str, tuple[str, int]]:
    """Return the queue and the row count of each session that did not finish. Its messages may
    still be in the queue as well."""
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
    limits: Mapping[str, ReturnLimit | None],
    tasks: int,
    sweep: AbstractSet[str],
) -> list[TaskShare]:
    """Return the shares that are left to take: messages from the beginning that are not in the
    archive, plus those of `sweep`, interrupted sessions whose messages may be in both places."""
    shares: list[TaskShare] = []
    broken_off = _broken_off(archive, run)
    round_ = uuid.uuid4().hex[:8]
    for source in run.sources:
        queue = source.name
        rows = sum(rows_of(name) for name in archive.storage.names(messages_folder(queue, run.id)))
        if any(other == queue for other, _ in broken_off.values()):
            rows = min(rows, distinct_ids(spark, archive, run, queue))
        left_over = sum(
            rows
            for session, (other, rows) in broken_off.items()
            if other == queue and session in sweep
        )
        wanted = min(depths[queue], max(0, run.depths[queue] - rows) + left_over)
        for index in range(min(tasks, wanted)):
            shares.append(
                TaskShare(
                    source,
                    wanted // tasks + (index < wanted % tasks),
                    f"part-{round_}-{len(shares):05d}",
                    limits[queue],
                )
            )
    return shares


def _run(
    spark: "SparkSession",
    task: DrainTask,
    shares: list[TaskShare],
    choice: Selection | None,
    drained: Drained,
) -> None:
    """Take shares, each in a task, and add what the tasks have seen to what is known."""
    with_hashes = sum(share.count for share in shares) <= _MOST_HASHES

    def take(batches: Iterator[pyarrow.RecordBatch]) -> Iterator[pyarrow.RecordBatch]:
        from pyspark import TaskContext

        context = TaskContext.get()
        attempt = context.taskAttemptId() if context is not None else 0
        with RowJudge(choice or Selection()) as judge:
            tally, hashes = Tally(judge), bytearray()

            def count(source: FailedSource, rows: pyarrow.Table) -> None:
                if choice is not None:
                    folder = pyarrow.repeat(source.name, rows.num_rows)
                    tally.add(as_messages(rows.append_column(QUEUE, folder)))
                if with_hashes:
                    for id_ in rows["failure_id"].to_pylist():
                        hashes.extend(
                            hashlib.blake2b(id_.encode(), digest_size=_HASH_SIZE).digest()
                        )

            for batch in batches:
                for index in batch.column(0).to_pylist():
                    task.take(shares[index], attempt, count)
            seen = [{_HASHES: bytes(hashes)}, *tally.counts().to_pylist()]
            yield from pyarrow.Table.from_pylist(seen, _SEEN).to_batches()

    found = (
        spark.range(0, len(shares), 1, len(shares))
        .mapInArrow(take, f"{TALLY_DDL}, {_HASHES} binary")
        .toArrow()
    )
    for hashes in found[_HASHES].drop_null().to_pylist():
        drained.hashes += hashes
    drained.counts = added([drained.counts, found.drop_columns([_HASHES]).cast(TALLY)])
