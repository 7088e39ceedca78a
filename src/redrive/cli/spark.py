"""`redrive spark`: sends failed messages back by the million, on Spark."""

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated

import typer

from redrive.cli import options, sparkdemo
from redrive.cli.output import Cell, Column, Form, Printer, count_of
from redrive.errors import ConfigurationError
from redrive.spark_reprocess.java import check_java
from redrive.topology.durations import duration_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from redrive.spark_reprocess.archive import Run
    from redrive.spark_reprocess.identity import Identity
    from redrive.spark_reprocess.job import Canary, Choice, Reprocess
    from redrive.spark_reprocess.planning import Plan

app = typer.Typer(
    help="Send failed messages back by the million, on Spark: drain, plan, redeliver, restore, verify.",
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)

_FEW_GROUPS = 10

Queues = Annotated[list[str], typer.Argument(metavar="QUEUE...", help="The main queues' names, such as ucenter@user.")]
ArchivePlace = Annotated[
    str, typer.Option("--archive", metavar="PLACE", help="Where messages are kept in between: a folder, s3a://bucket/folder, hdfs://…")
]
Where = Annotated[
    str | None,
    typer.Option(
        "--where",
        metavar="EXPRESSION",
        show_default=False,
        help="Which messages, such as \"error_type = 'TimeoutError'\"; without one, all.",
    ),
]
Transform = Annotated[
    str | None,
    typer.Option(
        "--transform", metavar="MODULE:FUNCTION", show_default=False, help="A function from DataFrame to DataFrame that changes body_bytes."
    ),
]
Master = Annotated[
    str | None,
    typer.Option(
        "--master",
        metavar="URL",
        show_default=False,
        help="Where Spark runs: local[2], spark://host:7077, yarn; without one, this machine with all its cores.",
    ),
]
Partitions = Annotated[
    int | None, typer.Option("--partitions", metavar="N", min=1, show_default=False, help="Tasks; without one, as many as cores.")
]
Rate = Annotated[
    str | None,
    typer.Option("--rate", metavar="N/s", show_default=False, help="At most so many messages, of all tasks together: 5000/s, 30/m."),
]
Batch = Annotated[
    int, typer.Option("--batch", metavar="N", min=1, help="Messages of a task that may be on their way without being in the ledger.")
]
RunId = Annotated[
    str | None, typer.Option("--run", metavar="RUN", show_default=False, help="Which run of the archive; without one, the latest.")
]
CanaryCount = Annotated[
    int | None,
    typer.Option("--canary", metavar="N", min=1, show_default=False, help="Send so many first, and the rest only if these get through."),
]
CanaryWait = Annotated[str, typer.Option("--canary-wait", metavar="TIME", help="How long to look whether the canary comes back.")]
LeastShare = Annotated[
    float, typer.Option("--least-share", metavar="SHARE", min=0, max=1, help="Stop where a smaller share of messages is confirmed.")
]
AnotherBroker = Annotated[
    bool, typer.Option("--another-broker", help="Send to this broker although the messages were drained from another one.")
]
Keep = Annotated[bool, typer.Option("--keep", help="Keep in the archive what is not chosen; otherwise it is put back.")]


@app.callback(invoke_without_command=True)
def _spark(context: typer.Context) -> None:
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())


@app.command("requeue", short_help="All phases: drain, plan, send back, restore the rest, verify.")
def requeue(
    queues: Queues,
    archive: ArchivePlace,
    where: Where = None,
    transform: Transform = None,
    rate: Rate = None,
    canary: CanaryCount = None,
    canary_wait: CanaryWait = "60s",
    least_share: LeastShare = 0.9,
    batch: Batch = 2000,
    partitions: Partitions = None,
    keep: Keep = False,
    dry_run: options.DryRun = False,
    yes: options.Yes = False,
    master: Master = None,
    management_url: options.ManagementUrl = None,
    url: options.Url = options.DEFAULT_URL,
    exchange: options.Exchange = options.DEFAULT_EXCHANGE,
    output: options.Output = Form.TABLE,
) -> None:
    """Send failed messages back to their main queues, each with a fresh retry budget.

    It takes them into the archive, shows what would be sent, and asks. What is not chosen is put back into its failed queue. Broken off at
    any point, it goes on where it was when it is run again. It exits with 1 where the numbers don't add up, or a message could not be sent.

    \b
    Example:
      redrive spark requeue ucenter@user --archive /srv/redrive --where "error_type = 'TimeoutError'" --rate 5000/s
    """
    from redrive.spark_reprocess.job import Choice

    printer = Printer(output)
    choice = Choice(where, transform)
    choice.check()
    with _job(archive, url, exchange, master, partitions, rate, batch, least_share) as job:
        if dry_run:
            _look(printer, job, queues, choice, management_url)
            return
        run = job.unfinished(queues)
        if run is None or not job.archive.is_drained(run):
            run = job.drain(queues, tasks=partitions)
        else:
            printer.note(f"Going on with run {run.id}.")
        choice = job.chosen(run, choice)
        planned = job.plan(run, choice)
        _tell_plan(printer, planned)
        if planned.picked and not printer.confirm(f"Send {count_of(planned.picked, 'message')} back?", yes=yes):
            job.restore(run)
            printer.note("Nothing was sent; all are in their failed queues again.")
            job.verify(run, choice)
            raise typer.Exit(1)
        job.choose(run, choice)
        job.send(run, choice, _canary(canary, canary_wait))
        if not keep:
            job.restore(run, refused=False)
        identity = job.verify(run, choice)
    _end(printer, job, run, identity)


@app.command("drain", short_help="Take failed queues into the archive.")
def drain(
    queues: Queues,
    archive: ArchivePlace,
    partitions: Partitions = None,
    master: Master = None,
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
    archive: ArchivePlace,
    where: Where = None,
    transform: Transform = None,
    run_id: RunId = None,
    master: Master = None,
    url: options.Url = options.DEFAULT_URL,
    output: options.Output = Form.TABLE,
) -> None:
    """Show what a run has drained, by cause, and what would be sent of it; write it as a page of HTML, too.

    \b
    Example:
      redrive spark plan --archive /srv/redrive --where "failed_at > now() - interval 1 day"
    """
    from redrive.spark_reprocess.job import Choice
    from redrive.spark_reprocess.page import page_of

    printer = Printer(output)
    choice = Choice(where, transform)
    choice.check()
    with _job(archive, url, options.DEFAULT_EXCHANGE, master) as job:
        run = job.archive.run(run_id)
        planned = job.plan(run, choice)
        page = job.archive.write_page(run, page_of(planned))
    printer.result(planned.to_dict() | {"page": page})
    _tell_plan(printer, planned)
    printer.say(f"The page: {page}")


@app.command("redeliver", short_help="Send what was drained back to its main queues.")
def redeliver(
    archive: ArchivePlace,
    where: Where = None,
    transform: Transform = None,
    run_id: RunId = None,
    rate: Rate = None,
    canary: CanaryCount = None,
    canary_wait: CanaryWait = "60s",
    least_share: LeastShare = 0.9,
    batch: Batch = 2000,
    partitions: Partitions = None,
    dry_run: options.DryRun = False,
    yes: options.Yes = False,
    another_broker: AnotherBroker = False,
    master: Master = None,
    url: options.Url = options.DEFAULT_URL,
    exchange: options.Exchange = options.DEFAULT_EXCHANGE,
    output: options.Output = Form.TABLE,
) -> None:
    """Send what was drained and is chosen back to its main queues. What is not chosen stays in the archive.

    \b
    Example:
      redrive spark redeliver --archive /srv/redrive --canary 100 --canary-wait 30s
    """
    from redrive.spark_reprocess.job import Choice

    printer = Printer(output)
    choice = Choice(where, transform)
    choice.check()
    with _job(archive, url, exchange, master, partitions, rate, batch, least_share, another_broker=another_broker) as job:
        run = job.archive.run(run_id)
        job.check_broker(run)
        planned = job.plan(run, choice)
        _tell_plan(printer, planned)
        if dry_run:
            printer.result(planned.to_dict())
            return
        if planned.picked and not printer.confirm(f"Send {count_of(planned.picked, 'message')} back?", yes=yes):
            printer.note("Nothing was sent.")
            raise typer.Exit(1)
        job.send(run, choice, _canary(canary, canary_wait))
        identity = job.verify(run, choice)
    _end(printer, job, run, identity)


@app.command("restore", short_help="Put what is left back into its failed queues.")
def restore(
    archive: ArchivePlace,
    run_id: RunId = None,
    another_broker: AnotherBroker = False,
    master: Master = None,
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
    _end(printer, job, run, identity)


@app.command("discard", short_help="Note that messages are not wanted any more.")
def discard(
    archive: ArchivePlace,
    where: Where = None,
    run_id: RunId = None,
    dry_run: options.DryRun = False,
    yes: options.Yes = False,
    master: Master = None,
    url: options.Url = options.DEFAULT_URL,
    output: options.Output = Form.TABLE,
) -> None:
    """Note that what was drained and is chosen is not wanted: it is not sent or put back any more. The archive keeps it.

    \b
    Example:
      redrive spark discard --archive /srv/redrive --where "error_type = 'KeyError'"
    """
    from redrive.spark_reprocess.job import Choice

    printer = Printer(output)
    choice = Choice(where)
    choice.check()
    with _job(archive, url, options.DEFAULT_EXCHANGE, master) as job:
        run = job.archive.run(run_id)
        planned = job.plan(run, choice)
        _tell_plan(printer, planned, "would be discarded")
        if dry_run:
            printer.result(planned.to_dict())
            return
        if planned.picked and not printer.confirm(f"Discard {count_of(planned.picked, 'message')}?", yes=yes):
            printer.note("Nothing was discarded.")
            raise typer.Exit(1)
        job.discard(run, choice)
        identity = job.verify(run, choice)
    _end(printer, job, run, identity)


@app.command("verify", short_help="Count what became of each message.")
def verify(
    archive: ArchivePlace,
    run_id: RunId = None,
    master: Master = None,
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
    _end(printer, job, run, identity)


app.command("demo", short_help="See all phases on a private RabbitMQ.")(sparkdemo.demo)


@contextmanager
def _job(
    place: str,
    url: str,
    exchange: str,
    master: str | None,
    partitions: int | None = None,
    rate: str | None = None,
    batch: int = 2000,
    least_share: float = 0.9,
    *,
    another_broker: bool = False,
) -> "Iterator[Reprocess]":
    """The job, on a session of its own unless one is there; what can be wrong without Spark is told before it is started."""
    _require_spark()
    from redrive.pubsub.config import BrokerURL
    from redrive.spark_reprocess.archive import Archive
    from redrive.spark_reprocess.job import Reprocess
    from redrive.spark_reprocess.sending import Pace

    BrokerURL.parse(url)
    pace = Pace(rate=None if rate is None else options.rate_of(rate), batch=batch, least_share=least_share)
    archive = Archive(place)
    from redrive.cli.sparkbar import Bar  # here: the help of every command would pay for Rich's bars

    with _session(master, partitions) as spark, Bar() as bar:
        yield Reprocess(spark, archive, url, exchange=exchange, pace=pace, another_broker=another_broker, told=bar.told)


@contextmanager
def _session(master: str | None, partitions: int | None) -> "Iterator[SparkSession]":
    from pyspark.sql import SparkSession

    from redrive.spark_reprocess.session import session_for

    is_ours = SparkSession.getActiveSession() is None
    log = os.path.join(tempfile.gettempdir(), f"redrive-spark-{os.getpid()}.log")
    settings = {"spark.sql.files.minPartitionNum": str(partitions)} if partitions else None
    spark = session_for(master, settings=settings, log=log)
    try:
        yield spark
    finally:
        if is_ours:
            spark.stop()
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
    _tell_plan(printer, planned)
    printer.note("Nothing was taken or sent.")


def _canary(count: int | None, wait: str) -> "Canary | None":
    from redrive.spark_reprocess.job import Canary

    seconds = duration_of(wait).total_seconds()
    return None if count is None else Canary(count, seconds)


def _tell_plan(printer: Printer, planned: "Plan", verb: str = "would be sent") -> None:
    from redrive.spark_reprocess.page import size_in_words

    printer.say(
        f"{count_of(planned.count, 'message')} ({size_in_words(planned.size)}) in the archive; "
        f"{planned.picked:,} ({size_in_words(planned.picked_size)}) {verb}."
    )
    if not planned.groups:
        return
    shown = planned.groups[:_FEW_GROUPS]
    printer.table(
        (
            Column("messages", "right"),
            Column("picked", "right"),
            Column("queue"),
            Column("error", give=True),
            Column("text of one", give=True),
            Column("last failed"),
            Column("group"),
        ),
        [
            (
                f"{group.count:,}",
                f"{group.picked:,}",
                group.queue,
                Cell(group.error_type or "not known", "red" if group.error_type else "dim"),
                group.error_message or "–",
                f"{group.last:%Y-%m-%d %H:%M}" if group.last else "–",
                group.id,
            )
            for group in shown
        ],
    )
    if len(planned.groups) > len(shown):
        printer.say(f"and {count_of(len(planned.groups) - len(shown), 'further cause')}: see the page")


def _end(printer: Printer, job: "Reprocess", run: "Run", identity: "Identity") -> None:
    """The job's last lines, and its exit code."""
    printer.result(identity.to_dict())
    if identity.possible_duplicates:
        printer.say(
            f"{count_of(identity.possible_duplicates, 'message')} may be there twice: "
            "a task or a connection ended while they were on their way.",
            "yellow",
        )
    if identity.refused:
        printer.say(f"{count_of(identity.refused, 'message')} could not be sent, and stay in the archive:", "red")
        printer.table(
            (Column("id"), Column("error", give=True, wrap=True)),
            [(one["id"][:12], one["error"]) for one in identity.refusals[:_FEW_GROUPS]],
        )
    printer.say(f"The report: {job.archive.storage.uri}/reports/{run.id}.json")
    printer.say(str(identity) if identity.holds else f"It does not add up: {identity}", "" if identity.holds else "red")
    if not identity.holds or identity.refused:
        raise typer.Exit(1)
