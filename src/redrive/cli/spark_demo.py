"""`redrive spark demo`: all phases of the Spark job, on a private broker with a few thousand
messages."""

import os
import tempfile
from typing import Annotated

import typer

from redrive.cli.output import OutputFormat, Printer
from redrive.number_text import count_of, size_in_words
from redrive.spark_reprocess.prerequisites import check_prerequisites

QUEUES = ("shop@orders", "billing@invoices", "crm@customers")
WHERE = "error_type = 'TimeoutError' or error_type is null"


def demo(
    count: Annotated[
        int,
        typer.Option(
            "--count", metavar="N", min=1, help="Failed messages in each of three queues."
        ),
    ] = 2000,
) -> None:
    """Watch all phases on a private RabbitMQ.

    Failed messages are drained, planned, requeued, restored and counted. A fifth of them look
    like those of PHP services, without redrive's headers.

    \b
    Example:
      redrive spark demo --count 10000
    """
    check_prerequisites()
    from redrive.spark_reprocess.archive import Archive
    from redrive.spark_reprocess.drain import depths_of, sources_of
    from redrive.spark_reprocess.sample import declare_queue, fill
    from redrive.spark_reprocess.selection import Selection
    from redrive.spark_reprocess.session import session_for
    from redrive.spark_reprocess.spark_job import SparkJob
    from redrive.testing import private_broker

    printer = Printer(OutputFormat.TABLE)
    place = tempfile.mkdtemp(prefix="redrive-spark-demo-")
    from redrive.cli.spark_bar import Bar  # imported late, as in `spark`

    with private_broker() as broker, Bar() as bar:
        url = broker.create_virtual_host("spark-demo")
        printer.say(f"{broker}")
        for queue in QUEUES:
            declare_queue(url, queue)
            fill(url, queue, count)
        sources = sources_of(url, QUEUES)
        _tell_depths(printer, depths_of(url, sources))
        spark = session_for(None, name="redrive demo", log=os.path.join(place, "spark.log"))
        try:
            archive = Archive(os.path.join(place, "archive"))
            job = SparkJob(spark, archive, url, on_progress=bar.on_progress)
            run = job.drain(QUEUES)
            printer.say(
                f"\ndrain: {count_of(count * len(QUEUES), 'message')} in "
                f"{job.archive.storage.uri}, each acked once its file was complete"
            )
            choice = Selection(WHERE)
            planned = job.plan(run, choice)
            printer.say(
                f"plan: {len(planned.groups)} causes, {size_in_words(planned.size)}; "
                f"{planned.chosen:,} chosen by {WHERE}"
            )
            job.send(run, choice, chosen=planned.chosen)
            printer.say("send: each published, mandatory and confirmed, and recorded in the ledger")
            job.restore(run)
            printer.say(
                "restore: messages that were not chosen are back in their failed queues, unchanged"
            )
            _tell_depths(printer, depths_of(url, sources))
            identity = job.verify(run, choice)
        finally:
            spark.stop()
        printer.say(f"\nThe page: {archive.page_of(run)}")
        printer.say(str(identity))
    if not identity.holds:
        raise typer.Exit(1)


def _tell_depths(printer: Printer, depths: dict[str, int]) -> None:
    for queue, depth in depths.items():
        printer.say(f"  {depth:>7,} in {queue}@failed")
