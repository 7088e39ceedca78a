"""Send the messages of a run to where they failed, or restore them to the queues that they came
from."""

import json
import uuid
from collections.abc import Callable
from typing import TYPE_CHECKING

from redrive.failures.canary import CanaryDecision, CanaryStep
from redrive.failures.direction import Direction
from redrive.failures.stored_message import (
    BODY,
    DEAD_LETTER_QUEUE,
    EXCHANGE,
    PROPERTIES,
    ROUTING_KEY,
)
from redrive.spark_reprocess.archive import Archive, Run
from redrive.spark_reprocess.archived_messages import KEPT, STATE, ArchivedMessages
from redrive.spark_reprocess.ledger import ArchiveLedger
from redrive.spark_reprocess.progress import OnProgress, tell_nobody, watching
from redrive.spark_reprocess.row_message import ID, SENT_BY, Mode
from redrive.spark_reprocess.settings import SendSettings
from redrive.spark_reprocess.spark_errors import explained
from redrive.topology.names import ExchangeFamily

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SENT_COLUMNS = (ID, "queue", EXCHANGE, ROUTING_KEY, PROPERTIES, BODY, DEAD_LETTER_QUEUE)


def send(
    spark: "SparkSession",
    archive: Archive,
    run: Run,
    url: str,
    messages: "DataFrame",
    mode: Mode,
    *,
    total: int,
    sending: SendSettings | None = None,
    exchanges: ExchangeFamily | None = None,
    direction: Direction | None = None,
    on_progress: OnProgress = tell_nobody,
    job: str | None = None,
    judge: Callable[[int], CanaryDecision] | None = None,
) -> str:
    """Send messages of a run, and keep the ledger; return the job's id."""
    from redrive.spark_reprocess.writer import NAME, register

    register(spark)
    job = job or str(uuid.uuid4())
    ledger = ArchiveLedger(archive.storage, run.id, job)
    options = _options(spark, sending or SendSettings(), mode) | {
        "url": url,
        "mode": str(mode),
        "job": job,
        "family": json.dumps((exchanges or run.family).as_json()),
        "ledger": archive.storage.uri,
        "run": run.id,
        **_options_of(direction or Direction()),
    }
    phase = "restoring" if mode is Mode.RESTORE else "requeueing"

    def look() -> None:
        settled = ledger.outcomes()
        verdict = CanaryDecision(CanaryStep.GO_ON) if judge is None else judge(settled)
        if verdict.act is CanaryStep.STOP and ledger.stopped() is None:
            ledger.stop(verdict.reason)
        on_progress(phase, settled, total)

    with watching(look), explained():
        columns = [*SENT_COLUMNS, *({SENT_BY} & set(messages.columns))]
        messages.select(*columns).write.format(NAME).options(**options).mode("append").save()
    return job


def restore(
    spark: "SparkSession",
    archive: Archive,
    run: Run,
    url: str,
    kept: ArchivedMessages,
    *,
    refused: bool = True,
    without: "DataFrame | None" = None,
    sending: SendSettings | None = None,
    exchanges: ExchangeFamily | None = None,
    on_progress: OnProgress = tell_nobody,
) -> str | None:
    """Restore messages that were neither sent nor discarded to the queues that they came from;
    return the job's id, or None if there were none."""
    with explained():
        messages = kept.open() if refused else kept.open().where(f"{STATE} = '{KEPT}'")
        if without is not None:
            messages = messages.join(without.select(ID), ID, "left_anti")
        total = messages.count()
    if not total:
        return None
    return send(
        spark,
        archive,
        run,
        url,
        messages,
        Mode.RESTORE,
        total=total,
        sending=sending,
        exchanges=exchanges,
        on_progress=on_progress,
    )


def _options_of(direction: Direction) -> dict[str, str]:
    options = {"via": "true"} if direction.via else {}
    return options if direction.to is None else {**options, "to": direction.to}


def _options(spark: "SparkSession", sending: SendSettings, mode: Mode) -> dict[str, str]:
    options = {
        "batch": str(sending.batch),
        "timeout": str(sending.timeout),
        "least_share": str(sending.least_share),
    }
    rate = sending.restore_rate if mode is Mode.RESTORE else sending.rate
    if rate is not None:
        # Concurrent tasks share the rate: it is never exceeded, but not reached while only the last
        # tasks are running.
        options["rate"] = str(rate / max(1, spark.sparkContext.defaultParallelism))
    return options
