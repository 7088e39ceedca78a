"""The public name of a requeue as a whole, for programs."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from redrive.failures.jobs.local_journal import LocalJournal
from redrive.spark_reprocess.archive import Archive
from redrive.spark_reprocess.reconciliation import Reconciliation
from redrive.spark_reprocess.selection import Selection
from redrive.spark_reprocess.settings import JobOptions
from redrive.spark_reprocess.spark_job import SparkJob

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def requeue(
    spark: "SparkSession",
    archive: Archive,
    url: str,
    queues: Sequence[str],
    *,
    where: str | None = None,
    transform: str | None = None,
    force: bool = False,
    to: str | None = None,
    via: bool = False,
    unchecked: bool = False,
    order_by: str | None = None,
    options: JobOptions | None = None,
    journal: LocalJournal | None = None,
    reason: str = "",
) -> Reconciliation:
    """Requeue failed messages to where they failed, without asking for approval.

    Args:
        spark: the session.
        archive: where messages are kept between the phases.
        url: the broker's address.
        queues: the main queues, or any dead-letter queues.
        where: send only the messages that match this filter expression; None for all.
        transform: `module:function`, which changes bodies.
        force: whether to send messages that have already been requeued too often.
        to: send all messages to this queue; None for the queue that each failed in.
        via: whether to publish each message with its first exchange and key: everything that is
            bound there gets a copy.
        unchecked: whether to send messages of dead-letter queues whose way back the broker's
            topology neither confirms nor contradicts.
        order_by: what the order of messages is kept by, as for `redrive.spark.requeue`.
        options: how messages are sent, and other options of the job.
        journal: where the job is recorded; None to record nothing.
        reason: why the job is run, for the journal.

    Returns:
        The counted outcome of the messages.
    """
    identity = SparkJob(spark, archive, url, options, journal=journal, reason=reason).requeue(
        queues,
        Selection(
            where,
            transform,
            force=force,
            to=to,
            via=via,
            unchecked=unchecked,
            order_by=order_by,
        ),
    )
    assert identity is not None, "nobody was asked"
    return identity
