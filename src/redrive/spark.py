"""Failed messages as Spark DataFrames: look at them, decide in SQL, and requeue what you decided.

    failed = redrive.spark.read(spark, url, "shop@orders")
    redrive.spark.requeue(failed.where("error_type = 'TimeoutError'"), url, archive, "shop@orders")

Works with Spark's own sessions and with Spark Connect. See docs/spark.md.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import reduce
from typing import TYPE_CHECKING

from redrive.errors import ConfigurationError
from redrive.failures.jobs.local_journal import LocalJournal
from redrive.failures.message.columns import COLUMNS
from redrive.failures.queue.order import Order
from redrive.failures.store.stored_message import DEAD_LETTER_QUEUE
from redrive.spark_reprocess import archive_reader
from redrive.spark_reprocess.archive import Archive, Run
from redrive.spark_reprocess.archived_messages import KEPT, STATE
from redrive.spark_reprocess.decisions import decided
from redrive.spark_reprocess.progress import OnProgress, tell_nobody
from redrive.spark_reprocess.reconciliation import Reconciliation
from redrive.spark_reprocess.row_message import ID
from redrive.spark_reprocess.run_plan import RunPlan, plan_of
from redrive.spark_reprocess.selection import DECISION, TO, Decision, Selection
from redrive.spark_reprocess.settings import JobOptions, SendSettings
from redrive.spark_reprocess.spark_job import SparkJob
from redrive.spark_reprocess.tally import COUNTED, tally_of
from redrive.topology.names import ExchangeFamily

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["drain", "plan", "read", "register", "requeue"]


def register(spark: "SparkSession") -> None:
    """Register `format("redrive")`, which reads a failed queue, with a session.

    Args:
        spark: the session.
    """
    from redrive.spark_reprocess.queue_source import FailedMessages

    spark.dataSource.register(FailedMessages)


def read(
    spark: "SparkSession",
    url: str,
    queue: str | Sequence[str],
    *,
    literal: bool = False,
    management_url: str | None = None,
) -> "DataFrame":
    """Return the messages of failed queues as a DataFrame; all stay in their queues.

    The messages are read when the DataFrame is first used, and kept by Spark (`persist`), so that
    a second use does not look at the queue again: in a queue with a delivery limit, each look uses
    up one return of each message. `unpersist()` gives the space back.

    Args:
        spark: the session.
        url: the broker's address.
        queue: one or several main queues, or dead-letter queues whichever framework made them.
        literal: whether to use the queue with exactly this name, even if a subscription has the
            same name.
        management_url: the management API's address. By default, the broker's host and the usual
            port.

    Returns:
        The columns of the filter language, such as `failure_id`, `error_type`, `body`, `headers`.
    """
    register(spark)
    options = {"url": url, "literal": str(literal).lower()}
    if management_url is not None:
        options["management_url"] = management_url
    frames = [
        spark.read.format("redrive").options(**options, queue=one).load() for one in _names(queue)
    ]
    return reduce(lambda one, other: one.unionByName(other), frames).persist()


def drain(
    spark: "SparkSession",
    url: str,
    queue: str | Sequence[str],
    archive: Archive | str,
    *,
    format: str = "parquet",
    tasks: int | None = None,
    literal: bool = False,
    management_url: str | None = None,
    journal: LocalJournal | None = None,
    reason: str = "",
    on_progress: OnProgress = tell_nobody,
) -> "DataFrame":
    """Move the messages of failed queues into an archive, and return them as a DataFrame.

    A message is acked only once the file that holds it is complete and safe. An interrupted drain
    is continued by the same call.

    Args:
        spark: the session.
        url: the broker's address.
        queue: one or several main queues, or dead-letter queues.
        archive: a folder or URI that all executors can reach.
        format: `parquet`, which the archive is made of; or `orc`, `delta` or `iceberg`, if the
            session has it: then the messages are also written into the archive's folder
            `tables/<format>`, and read from there.
        tasks: how many consumers compete for each queue; None for as many as Spark has cores.
        literal: as for `read`.
        management_url: as for `read`.
        journal: where the job is recorded; None to record nothing.
        reason: why the messages are moved, for the journal.
        on_progress: called with the phase, the number of messages done, and the total.

    Returns:
        The columns of the filter language, and the run.

    Raises:
        ConfigurationError: there is no such queue, the archive can't be used, or the session does
            not have the format.
        BrokerUnavailable: the broker was away for too long.
    """
    place = archive if isinstance(archive, Archive) else Archive(archive)
    archive_reader.check_format(spark, place, format)
    options = JobOptions(tasks=tasks, literal=literal, management_url=management_url)
    job = SparkJob(
        spark, place, url, options, journal=journal, reason=reason, on_progress=on_progress
    )
    run = job.drain(_names(queue))
    return archive_reader.messages_as(spark, place, run, format)


def plan(messages: "DataFrame", order: Order | None = None) -> RunPlan:
    """Count the messages of a DataFrame by cause, and those that an order would send.

    Nobody asks the broker: a message of a dead-letter queue counts as sent where it says itself.
    `requeue` asks, and leaves those that the broker's topology contradicts.

    Args:
        messages: what `read` or `drain` returned, or a selection of it. If it has a column `to` or
            `decision`, these count.
        order: which of the messages would be sent; None for all of them.

    Raises:
        ConfigurationError: a column is missing, or the order can't be used on Spark.
    """
    from pyspark.sql import functions as F

    known = {column.name for column in COLUMNS}
    missing = (COUNTED & known | {"redrive_count", "way_back"}) - set(messages.columns)
    if missing:
        raise ConfigurationError(
            f"the DataFrame has no column {min(missing)!r}",
            "Give the columns that redrive.spark.read returns.",
        )
    choice = _selection_of(order or Order(), "a DataFrame's")
    has = set(messages.columns)
    to = F.lit(None if order is None else order.to).cast("string")
    to = F.coalesce(to, F.when(F.col(DEAD_LETTER_QUEUE).isNotNull(), F.col("way_back")))
    counted = messages.withColumns(
        {
            ID: F.col("failure_id"),
            STATE: F.lit(KEPT),
            DECISION: F.col(DECISION) if DECISION in has else F.lit(str(Decision.REQUEUE)),
            TO: F.coalesce(F.col("to"), to) if "to" in has else to,
        }
    )
    return plan_of("", tally_of(counted, choice), choice)


def requeue(
    messages: "DataFrame",
    url: str,
    archive: Archive | str,
    queue: str | Sequence[str] = (),
    *,
    order: Order | None = None,
    order_by: str | None = None,
    keep: bool = False,
    tasks: int | None = None,
    exchanges: ExchangeFamily | None = None,
    literal: bool = False,
    management_url: str | None = None,
    approve: Callable[[Run, RunPlan], bool] = lambda run, plan: True,
    journal: LocalJournal | None = None,
    reason: str = "",
    on_progress: OnProgress = tell_nobody,
    on_note: Callable[[str], None] = lambda note: None,
) -> Reconciliation | None:
    """Requeue the messages of a DataFrame to where they failed.

    It has a column `failure_id`, once per message, and optionally:

    - `body`: the new body, as text or bytes, uncompressed. Null, or the body as it was read, leaves
      the message as it came.
    - `to`: the queue to send it to; null for the one that it failed in.
    - `decision`: `requeue` (also if it is null), `restore` it unchanged to its failed queue,
      `discard` it, or `keep` it in the archive.

    The messages are drained into the archive first. All others of these queues are restored to
    where they came from. An interrupted call is continued by the same one, with the same DataFrame.

    Args:
        messages: the DataFrame; other columns are ignored.
        url: the broker's address.
        archive: a folder or URI that all executors can reach.
        queue: the queues to drain; none to use what was last drained into the archive.
        order: a further filter, the rate, the guards, a patch …; None for none.
        order_by: `$.customer.id`, `header:NAME` or `routing_key`, as for a subscriber: messages of
            one key are sent one after another, by the time at which they failed. Once one of them
            can't be sent, the later ones of its key are not sent either. None for any order.
        keep: whether messages that are not in the DataFrame stay in the archive.
        tasks: how many tasks; None for as many as Spark has cores.
        exchanges: the exchange family; None for redrive's default.
        literal: as for `read`.
        management_url: as for `read`.
        approve: called with the run and its plan; returns whether to send.
        journal: where the job is recorded; None to record nothing.
        reason: why the messages are requeued, for the journal.
        on_progress: called with the phase, the number of messages done, and the total.
        on_note: called with sentences to show to the user.

    Returns:
        The counted outcome of each message; None if `approve` said no.

    Raises:
        StoppedEarly: a guard of the order stopped the job.
        ConfigurationError: the DataFrame or the order can't be used.
        RedriveError: the job could not go on; the same call continues it.
    """
    place = archive if isinstance(archive, Archive) else Archive(archive)
    order = order or Order()
    replace(_selection_of(order, None), order_by=order_by).check()
    # Before anything is taken: the DataFrame may itself be a look at the queue.
    choice = replace(_selection_of(order, decided(place, messages)), order_by=order_by)
    options = JobOptions(
        order.guards,
        SendSettings(rate=order.rate),
        exchanges,
        tasks,
        keep,
        literal=literal,
        management_url=management_url,
    )
    job = SparkJob(
        messages.sparkSession,
        place,
        url,
        options,
        journal=journal,
        reason=reason,
        on_progress=on_progress,
        on_note=on_note,
    )
    names = _names(queue)
    if not names:
        run = place.run()
        job.check_broker(run)
        if place.is_ended(run):
            raise ConfigurationError(
                f"run {run.id} has already dealt with all of its messages",
                "Name the queue to drain it anew.",
            )
        names = run.queues
    return job.requeue(names, choice, approve=approve)


def _names(queue: str | Sequence[str]) -> list[str]:
    return [queue] if isinstance(queue, str) else list(queue)


def _selection_of(order: Order, decisions: str | None) -> Selection:
    """Return what an order selects, and how it changes it."""
    where = order.filter.where
    for name, given in {
        "limit": order.limit,
        "pace_by_depth": order.pace_by_depth,
        "edits": order.edits,
        "transform": order.transform,
        "digests": order.filter.digests,
        "groups": order.filter.groups,
        "a function as filter": callable(where),
    }.items():
        if given:
            raise ConfigurationError(
                f"an order for Spark can't have {name}", "Say it by the DataFrame's rows."
            )
    return Selection(
        where if isinstance(where, str) else None,
        order.function,
        order.filter.now,
        order.force,
        order.patch,
        order.to,
        order.via,
        unchecked=order.unchecked,
        decisions=decisions,
    )
