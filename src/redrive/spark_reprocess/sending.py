"""Sending what a run has drained: back to its main queues, or into the failed queues again."""

import uuid
from collections.abc import Callable
from typing import TYPE_CHECKING

from redrive.failures.canary import Act, Verdict
from redrive.spark_reprocess.archive import Archive, Run
from redrive.spark_reprocess.failing import explained
from redrive.spark_reprocess.keeping import KEPT, STATE, Kept
from redrive.spark_reprocess.ledger import Ledger
from redrive.spark_reprocess.pace import Pace
from redrive.spark_reprocess.progress import Told, no_one, watching
from redrive.spark_reprocess.publishing import ID, Mode
from redrive.spark_reprocess.stored import BODY, EXCHANGE, PROPERTIES, ROUTING_KEY

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SENT_COLUMNS = (ID, "queue", EXCHANGE, ROUTING_KEY, PROPERTIES, BODY)


def send(
    spark: "SparkSession",
    archive: Archive,
    run: Run,
    url: str,
    messages: "DataFrame",
    mode: Mode,
    *,
    total: int,
    pace: Pace | None = None,
    exchange: str = "master",
    told: Told = no_one,
    job: str | None = None,
    judge: Callable[[int], Verdict] | None = None,
) -> str:
    """Sends messages of a run, and keeps the ledger.

    Args:
        spark: the session.
        archive: where the run is.
        run: the run.
        url: the broker's address.
        messages: what is sent, with the columns of `SENT_COLUMNS`.
        mode: whether they go to their main queues, or back into their failed queues.
        total: how many they are, for the progress.
        pace: how fast, and how careful.
        exchange: the main exchange of the family.
        told: told of progress.
        job: the job's id; a UUID where none is given.
        judge: asked twice a second, with how many are settled, whether to go on.

    Returns:
        The job's id. What became of each message is in the ledger.

    Raises:
        RedriveError: the broker was away for too long, or refused.
    """
    from redrive.spark_reprocess.writer import NAME, register

    register(spark)
    job = job or str(uuid.uuid4())
    ledger = Ledger(archive.storage, run.id, job)
    options = _options(spark, pace or Pace()) | {
        "url": url,
        "mode": str(mode),
        "job": job,
        "family": exchange,
        "ledger": archive.storage.uri,
        "run": run.id,
    }
    phase = "putting back" if mode is Mode.RESTORE else "sending back"

    def look() -> None:
        settled = ledger.outcomes()
        verdict = Verdict(Act.GO_ON) if judge is None else judge(settled)
        if verdict.act is Act.STOP and ledger.stopped() is None:
            ledger.stop(verdict.reason)
        told(phase, settled, total)

    with watching(look), explained():
        messages.select(*SENT_COLUMNS).write.format(NAME).options(**options).mode("append").save()
    return job


def restore(
    spark: "SparkSession",
    archive: Archive,
    run: Run,
    url: str,
    *,
    refused: bool = True,
    pace: Pace | None = None,
    exchange: str = "master",
    told: Told = no_one,
) -> str | None:
    """Puts what was drained and neither sent nor discarded back into its failed queue.

    Args:
        spark: the session.
        archive: where the run is.
        run: the run.
        url: the broker's address.
        refused: whether what could not be sent is put back, too.
        pace: how fast, and how careful.
        exchange: the main exchange of the family.
        told: told of progress.

    Returns:
        The job's id; None where nothing was left.
    """
    kept = Kept(spark, archive, run)
    with explained():
        messages = kept.open() if refused else kept.open().where(f"{STATE} = '{KEPT}'")
        total = messages.count()
    if not total:
        return None
    return send(spark, archive, run, url, messages, Mode.RESTORE, total=total, pace=pace, exchange=exchange, told=told)


def _options(spark: "SparkSession", pace: Pace) -> dict[str, str]:
    options = {"batch": str(pace.batch), "timeout": str(pace.timeout), "least_share": str(pace.least_share)}
    if pace.rate is not None:
        # Tasks that run at a time share it: it is never exceeded, and not reached while the last ones work alone.
        options["rate"] = str(pace.rate / max(1, spark.sparkContext.defaultParallelism))
    return options
