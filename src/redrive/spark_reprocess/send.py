"""Send the messages of a run to where they failed, or restore them to the queues that they came
from."""

import uuid
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from redrive.failures.message.direction import Direction
from redrive.failures.queue.canary import CanaryDecision, CanaryStep
from redrive.failures.store.stored_message import (
    BODY,
    DEAD_LETTER_QUEUE,
    EXCHANGE,
    PROPERTIES,
    ROUTING_KEY,
)
from redrive.spark_reprocess.archive import Archive, Run
from redrive.spark_reprocess.ledger import ArchiveLedger
from redrive.spark_reprocess.progress import OnProgress, tell_nobody, watching
from redrive.spark_reprocess.row_message import EDITED, ID, ORDER_KEY, SENT_BY, Mode
from redrive.spark_reprocess.send_task import SendTask, sent_part
from redrive.spark_reprocess.settings import SendSettings
from redrive.spark_reprocess.spark_errors import explained
from redrive.spark_reprocess.storage import FILE, ROW
from redrive.topology.names import ExchangeFamily

if TYPE_CHECKING:
    import pyarrow
    from pyspark.sql import DataFrame

SENT_COLUMNS = (ID, "queue", EXCHANGE, ROUTING_KEY, PROPERTIES, BODY, DEAD_LETTER_QUEUE)

BY_TIME = ("failed_at", FILE, ROW)
"""What messages of one key are sorted by. Some peers note the second only: then the place in the
queue decides, as far as one task has drained it."""


def send(
    archive: Archive,
    run: Run,
    url: str,
    messages: "DataFrame",
    mode: Mode,
    *,
    total: int,
    tasks: int,
    sending: SendSettings | None = None,
    exchanges: ExchangeFamily | None = None,
    direction: Direction | None = None,
    on_progress: OnProgress = tell_nobody,
    job: str | None = None,
    judge: Callable[[int], CanaryDecision] | None = None,
) -> str:
    """Send messages of a run, and keep the ledger; return the job's id.

    `tasks` run at once, and share the rate: it is never exceeded, but not reached while only the
    last of them are running.
    """
    job, sending = job or str(uuid.uuid4()), sending or SendSettings()
    ledger = ArchiveLedger(archive.storage, run.id, job)
    rate = sending.restore_rate if mode is Mode.RESTORE else sending.rate
    task = SendTask(
        url,
        mode,
        job,
        ledger,
        batch=sending.batch,
        rate=None if rate is None else rate / tasks,
        timeout=sending.timeout,
        least_share=sending.least_share,
        exchanges=exchanges or run.family,
        direction=direction or Direction(),
    )
    phase = "restoring" if mode is Mode.RESTORE else "requeueing"

    def look() -> None:
        settled = ledger.outcomes()
        verdict = CanaryDecision(CanaryStep.GO_ON) if judge is None else judge(settled)
        if verdict.act is CanaryStep.STOP and ledger.stopped() is None:
            ledger.stop(verdict.reason)
        on_progress(phase, settled, total)

    names = [
        *SENT_COLUMNS,
        *(name for name in (SENT_BY, EDITED, ORDER_KEY) if name in messages.columns),
    ]

    def send_part(batches: "Iterator[pyarrow.RecordBatch]") -> "Iterator[pyarrow.RecordBatch]":
        import pyarrow

        sent = sent_part(task, names, batches)
        yield pyarrow.RecordBatch.from_pydict({"attempt": [sent.attempt], "files": [sent.files]})

    if ORDER_KEY in messages.columns:
        # All messages of a key in one task, which confirms each before it sends the next.
        messages = messages.repartition(tasks, ORDER_KEY).sortWithinPartitions(*BY_TIME)
    with watching(look), explained():
        done = messages.select(*names).mapInArrow(send_part, "attempt string, files long").collect()
    # What comes next reads the ledger: what it missed would be sent once more.
    ledger.wait_until_listed({row["attempt"]: row["files"] for row in done})
    return job
