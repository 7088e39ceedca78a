"""`redrive spark`: sends failed messages back by the million, on Spark."""

import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import typer

from redrive.cli import guards, options, sparkdemo, sparkoptions, sparkwords
from redrive.cli.output import Form, Printer, count_of
from redrive.errors import ConfigurationError
from redrive.failures.canary import Unknown
from redrive.spark_reprocess.java import check_java
from redrive.spark_reprocess.pace import BATCH, LEAST_SHARE
from redrive.topology.durations import duration_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from redrive.spark_reprocess.archive import Run
    from redrive.spark_reprocess.choice import Choice, Guards
    from redrive.spark_reprocess.job import Reprocess

app = typer.Typer(
    help="Send failed messages back by the million, on Spark: drain, plan, redeliver, restore, verify.",
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)


@app.callback(invoke_without_command=True)
def _spark(context: typer.Context) -> None:
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())


@app.command("requeue", short_help="All phases: drain, plan, send back, restore the rest, verify.")
def requeue(
    queues: sparkoptions.Queues,
    archive: sparkoptions.ArchivePlace,
    where: sparkoptions.Where = None,
    transform: sparkoptions.Transform = None,
    rate: sparkoptions.Rate = None,
    canary: guards.Canary = None,
    watch: guards.Watch = None,
    stop_at: guards.StopAt = None,
    unknown: guards.OnUnknown = Unknown.STOP,
    force: guards.Force = False,
    canary_wait: sparkoptions.CanaryWait = None,
    least_share: sparkoptions.LeastShare = LEAST_SHARE,
    batch: sparkoptions.Batch = BATCH,
    partitions: sparkoptions.Partitions = None,
    keep: sparkoptions.Keep = False,
    dry_run: options.DryRun = False,
    yes: options.Yes = False,
    master: sparkoptions.Master = None,
    management_url: options.ManagementUrl = None,
    url: options.Url = options.DEFAULT_URL,
    exchange: options.Exchange = options.DEFAULT_EXCHANGE,
    output: options.Output = Form.TABLE,
) -> None:
    """Send failed messages back to their main queues, each with a fresh retry budget.

    It takes them into the archive, shows what would be sent, and asks. What is not chosen is put back into its failed queue. Broken off at
    any point, it goes on where it was when it is run again. It exits with 1 where the numbers don't add up, a message could not be sent,
    or a guard (--canary, --stop-at) stopped it.

    \b
    Example:
      redrive spark requeue ucenter@user --archive /srv/redrive --where "error_type = 'TimeoutError'" --rate 5000/s
    """
    from redrive.spark_reprocess.choice import Choice

    printer = Printer(output)
    choice = Choice(where, transform, force=force)
    choice.check()
    guarded = _guards(canary, watch or canary_wait, stop_at, unknown)
    with _job(archive, url, exchange, master, partitions, rate, batch, least_share, note=printer.note) as job:
        if dry_run:
            _look(printer, job, queues, choice, management_url)
            return
        if guards.refused(printer, job.whereabouts(queues), guarded=guarded.are_up, yes=yes):
            printer.note("Nothing was taken or sent.")
            raise typer.Exit(1)
        run = job.unfinished(queues)
        if run is None or not job.archive.is_drained(run):
            run = job.drain(queues, tasks=partitions)
        else:
            printer.note(f"Going on with run {run.id}.")
        choice = job.chosen(run, choice)
        planned = job.plan(run, choice)
        sparkwords.tell_plan(printer, planned)
        if planned.picked and not _ask(printer, job, run, planned.picked, guarded, yes=yes):
            job.restore(run)
            printer.note("Nothing was sent; all are in their failed queues again.")
            job.verify(run, choice)
            raise typer.Exit(1)
        job.choose(run, choice)
        _send(printer, job, run, choice, guarded)
        if not keep:
            job.restore(run, refused=False)
        identity = job.verify(run, choice)
    sparkwords.end(printer, job, run, identity)


@app.command("drain", short_help="Take failed queues into the archive.")
def drain(
    queues: sparkoptions.Queues,
    archive: sparkoptions.ArchivePlace,
    partitions: sparkoptions.Partitions = None,
    master: sparkoptions.Master = None,
    url: options.Url = options.DEFAULT_URL,
    exchange: options.Exchange = options.DEFAULT_EXCHANGE,
    output: options.Output = Form.TABLE,
) -> None:
    """Take what is in failed queues into the archive, up to the depth found at the beginning.

    A message is acked only once the file that holds it is complete.

    \b
    Example:
      redrive spark drain ucenter@user billing@invoice --archive /srv/redrive
    """
    printer = Printer(output)
    with _job(archive, url, exchange, master, partitions) as job:
        run = job.drain(queues, tasks=partitions)
        identity = job.verify(run)
    printer.result(identity.to_dict())
    printer.say(f"{count_of(identity.drained, 'message')} in {job.archive.storage.uri}, as run {run.id}.")


@app.command("plan", short_help="Show what is in the archive, and what would be sent.")
def plan(
    archive: sparkoptions.ArchivePlace,
    where: sparkoptions.Where = None,
    transform: sparkoptions.Transform = None,
    run_id: sparkoptions.RunId = None,
    master: sparkoptions.Master = None,
    url: options.Url = options.DEFAULT_URL,
    output: options.Output = Form.TABLE,
) -> None:
    """Show what a run has drained, by cause, and what would be sent of it; write it as a page of HTML, too.

    \b
    Example:
      redrive spark plan --archive /srv/redrive --where "failed_at > now() - interval 1 day"
    """
    from redrive.spark_reprocess.choice import Choice
    from redrive.spark_reprocess.page import page_of

    printer = Printer(output)
    choice = Choice(where, transform)
    choice.check()
    with _job(archive, url, options.DEFAULT_EXCHANGE, master) as job:
        run = job.archive.run(run_id)
        planned = job.plan(run, choice)
        page = job.archive.write_page(run, page_of(planned))
    printer.result(planned.to_dict() | {"page": page})
    sparkwords.tell_plan(printer, planned)
    printer.say(f"The page: {page}")


@app.command("redeliver", short_help="Send what was drained back to its main queues.")
def redeliver(
    archive: sparkoptions.ArchivePlace,
    where: sparkoptions.Where = None,
    transform: sparkoptions.Transform = None,
    run_id: sparkoptions.RunId = None,
    rate: sparkoptions.Rate = None,
    canary: guards.Canary = None,
    watch: guards.Watch = None,
    stop_at: guards.StopAt = None,
    unknown: guards.OnUnknown = Unknown.STOP,
    force: guards.Force = False,
    canary_wait: sparkoptions.CanaryWait = None,
    least_share: sparkoptions.LeastShare = LEAST_SHARE,
    batch: sparkoptions.Batch = BATCH,
    partitions: sparkoptions.Partitions = None,
    dry_run: options.DryRun = False,
    yes: options.Yes = False,
    another_broker: sparkoptions.AnotherBroker = False,
    master: sparkoptions.Master = None,
    url: options.Url = options.DEFAULT_URL,
    exchange: options.Exchange = options.DEFAULT_EXCHANGE,
    output: options.Output = Form.TABLE,
) -> None:
    """Send what was drained and is chosen back to its main queues. What is not chosen stays in the archive.

    \b
    Example:
      redrive spark redeliver --archive /srv/redrive --canary 100 --stop-at 5%
    """
    from redrive.spark_reprocess.choice import Choice

    printer = Printer(output)
    choice = Choice(where, transform, force=force)
    choice.check()
    guarded = _guards(canary, watch or canary_wait, stop_at, unknown)
    with _job(
        archive, url, exchange, master, partitions, rate, batch, least_share, another_broker=another_broker, note=printer.note
    ) as job:
        run = job.archive.run(run_id)
        job.check_broker(run)
        planned = job.plan(run, choice)
        sparkwords.tell_plan(printer, planned)
        if dry_run:
            printer.result(planned.to_dict())
            return
        if planned.picked and not _ask(printer, job, run, planned.picked, guarded, yes=yes):
            printer.note("Nothing was sent.")
            raise typer.Exit(1)
        _send(printer, job, run, choice, guarded)
        identity = job.verify(run, choice)
    sparkwords.end(printer, job, run, identity)


@app.command("restore", short_help="Put what is left back into its failed queues.")
def restore(
    archive: sparkoptions.ArchivePlace,
    run_id: sparkoptions.RunId = None,
    another_broker: sparkoptions.AnotherBroker = False,
    master: sparkoptions.Master = None,
    url: options.Url = options.DEFAULT_URL,
    exchange: options.Exchange = options.DEFAULT_EXCHANGE,
    output: options.Output = Form.TABLE,
) -> None:
    """Put what was drained and neither sent nor discarded back into its failed queues, with all it had there.

    \b
    Example:
      redrive spark restore --archive /srv/redrive
    """
    printer = Printer(output)
    with _job(archive, url, exchange, master, another_broker=another_broker) as job:
        run = job.archive.run(run_id)
        job.restore(run)
        identity = job.verify(run)
    sparkwords.end(printer, job, run, identity)


@app.command("discard", short_help="Note that messages are not wanted any more.")
def discard(
    archive: sparkoptions.ArchivePlace,
    where: sparkoptions.Where = None,
    run_id: sparkoptions.RunId = None,
    dry_run: options.DryRun = False,
    yes: options.Yes = False,
    master: sparkoptions.Master = None,
    url: options.Url = options.DEFAULT_URL,
    output: options.Output = Form.TABLE,
) -> None:
    """Note that what was drained and is chosen is not wanted: it is not sent or put back any more. The archive keeps it.

    \b
    Example:
      redrive spark discard --archive /srv/redrive --where "error_type = 'KeyError'"
    """
    from redrive.spark_reprocess.choice import Choice

    printer = Printer(output)
    choice = Choice(where, force=True)
    choice.check()
    with _job(archive, url, options.DEFAULT_EXCHANGE, master) as job:
        run = job.archive.run(run_id)
        planned = job.plan(run, choice)
        sparkwords.tell_plan(printer, planned, "would be discarded")
        if dry_run:
            printer.result(planned.to_dict())
            return
        if planned.picked and not printer.confirm(f"Discard {count_of(planned.picked, 'message')}?", yes=yes):
            printer.note("Nothing was discarded.")
            raise typer.Exit(1)
        job.discard(run, choice)
        identity = job.verify(run, choice)
    sparkwords.end(printer, job, run, identity)


@app.command("verify", short_help="Count what became of each message.")
def verify(
    archive: sparkoptions.ArchivePlace,
    run_id: sparkoptions.RunId = None,
    master: sparkoptions.Master = None,
    url: options.Url = options.DEFAULT_URL,
    output: options.Output = Form.TABLE,
) -> None:
    """Count, id by id, what became of each message that was drained. It exits with 1 where that does not add up.

    \b
    Example:
      redrive spark verify --archive /srv/redrive
    """
    printer = Printer(output)
    with _job(archive, url, options.DEFAULT_EXCHANGE, master) as job:
        run = job.archive.run(run_id)
        identity = job.verify(run)
    sparkwords.end(printer, job, run, identity)


app.command("demo", short_help="See all phases on a private RabbitMQ.")(sparkdemo.demo)


@contextmanager
def _job(
    place: str,
    url: str,
    exchange: str,
    master: str | None,
    partitions: int | None = None,
    rate: str | None = None,
    batch: int = BATCH,
    least_share: float = LEAST_SHARE,
    *,
    another_broker: bool = False,
    note: Callable[[str], None] = lambda _: None,
) -> "Iterator[Reprocess]":
    """The job, on a session of its own unless one is there; what can be wrong without Spark is told before it is started."""
    _require_spark()
    from redrive.pubsub.config import BrokerURL
    from redrive.spark_reprocess.archive import Archive
    from redrive.spark_reprocess.job import Reprocess
    from redrive.spark_reprocess.pace import Pace

    BrokerURL.parse(url)
    pace = Pace(rate=None if rate is None else options.rate_of(rate), batch=batch, least_share=least_share)
    archive = Archive(place)
    from redrive.cli.sparkbar import Bar  # here: the help of every command would pay for Rich's bars

    with _session(master, partitions) as spark, Bar() as bar:
        yield Reprocess(spark, archive, url, exchange=exchange, pace=pace, another_broker=another_broker, told=bar.told, note=note)


@contextmanager
def _session(master: str | None, partitions: int | None) -> "Iterator[SparkSession]":
    from pyspark.sql import SparkSession

    from redrive.spark_reprocess.session import session_for

    is_ours = SparkSession.getActiveSession() is None
    # A name that nobody can guess, and make a link of before.
    handle, log = tempfile.mkstemp(prefix=f"redrive-spark-{os.getpid()}-", suffix=".log")
    os.close(handle)
    settings = {"spark.sql.files.minPartitionNum": str(partitions)} if partitions else None
    try:
        spark = session_for(master, settings=settings, log=log)
        try:
            yield spark
        finally:
            if is_ours:
                spark.stop()
    finally:
        if os.path.exists(log) and not os.path.getsize(log):
            os.unlink(log)


def _require_spark() -> None:
    try:
        import pyspark  # noqa: F401
    except ModuleNotFoundError as error:
        raise ConfigurationError("this needs pyspark, which is not installed", "pip install 'redrive[spark]'") from error
    check_java()


def _look(printer: Printer, job: "Reprocess", queues: list[str], choice: "Choice", management_url: str | None) -> None:
    run = job.unfinished(queues)
    if run is not None and job.archive.is_drained(run):
        planned = job.plan(run, choice)
    else:
        planned = job.plan_by_looking(queues, choice, management_url)
    printer.result(planned.to_dict())
    sparkwords.tell_plan(printer, planned)
    printer.note("Nothing was taken or sent.")


def _guards(canary: int | None, watch: str | None, stop_at: str | None, unknown: Unknown) -> "Guards":
    from redrive.spark_reprocess.choice import Guards

    return Guards(
        canary or 0,
        None if watch is None else duration_of(watch),
        None if stop_at is None else options.share_of(stop_at),
        unknown,
    )


def _ask(printer: Printer, job: "Reprocess", run: "Run", count: int, guarded: "Guards", *, yes: bool) -> bool:
    """Whether so many messages are to be sent, once it was said who consumes the queues that they go to."""
    places = job.whereabouts(run.queues)
    guards.tell(printer, places)
    return guards.ask(printer, count, places, guarded=guarded.are_up, yes=yes)


def _send(printer: Printer, job: "Reprocess", run: "Run", choice: "Choice", guarded: "Guards") -> None:
    """Sends, and exits with 1 where the job stops itself."""
    from redrive.spark_reprocess.job import Stopped

    try:
        job.send(run, choice, guarded)
    except Stopped as stopped:
        printer.result(job.verify(run, choice).to_dict() | {"stopped": stopped.reason})
        reason, _, remedy = str(stopped).partition("\n")
        printer.say(reason[:1].upper() + reason[1:], "red")
        printer.say(remedy)
        raise typer.Exit(1) from None
