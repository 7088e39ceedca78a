"""`redrive spark`: requeues failed messages by the million, on Spark."""

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

import typer

from redrive.cli import (
    environment,
    guards,
    job_options,
    options,
    spark_demo,
    spark_options,
    spark_output,
    spark_package,
)
from redrive.cli.edit_options import BodyOptions
from redrive.cli.job_options import RecordedJobOptions
from redrive.cli.message_options import Where
from redrive.cli.output import OutputFormat, Printer
from redrive.errors import ConfigurationError
from redrive.failures.jobs.local_journal import LocalJournal
from redrive.failures.queue.canary import Guards
from redrive.failures.queue.snapshot import Snapshot
from redrive.number_text import count_of
from redrive.pubsub.url import BrokerURL
from redrive.spark_reprocess.prerequisites import check_prerequisites
from redrive.spark_reprocess.settings import JobOptions
from redrive.topology.names import ExchangeFamily

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from redrive.spark_reprocess.archive import Archive, Run
    from redrive.spark_reprocess.run_plan import RunPlan
    from redrive.spark_reprocess.selection import Selection
    from redrive.spark_reprocess.spark_job import SparkJob

_MOST_PLACES = 10

app = typer.Typer(
    help="Requeue failed messages by the million.",
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)


@app.callback(invoke_without_command=True)
def _spark(context: typer.Context) -> None:
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())


@app.command("requeue", short_help="All phases: drain, plan, send, restore the rest, verify.")
@options.expanded
def requeue(
    queues: spark_options.QueuesOrFile = None,
    *,
    archive: spark_options.ArchivePlace,
    snapshot: spark_options.From = None,
    where: Where = None,
    way: spark_options.WayOptions,
    change: BodyOptions,
    guard: guards.GuardOptions,
    canary_wait: spark_options.CanaryWait = None,
    send: spark_options.SendOptions,
    partitions: spark_options.Partitions = None,
    keep: spark_options.Keep = False,
    journaled: spark_options.JournalOptions,
    dry_run: options.DryRun = False,
    yes: options.Yes = False,
    master: spark_options.Master = None,
    broker: options.SourceOptions,
    output: options.Output = OutputFormat.TABLE,
) -> None:
    """Requeue failed messages to where they failed, each with a fresh retry budget.

    That is the main queue of a subscription; a message of another dead-letter queue names its
    queue, or stays in the archive. The command moves the messages into the archive, shows what it
    would requeue, and asks. It restores the messages that were not chosen to where they came from;
    those of a file stay in the archive. If it is interrupted, run it again: it continues. It exits
    with 1 if the numbers don't add up, if a message could not be sent, or if --canary or --stop-at
    stopped it.

    \b
    Example:
      redrive spark requeue ucenter@user --archive /srv/redrive --where "retries > 2" --rate 5000/s
    """
    printer = Printer(output)
    check_prerequisites()
    choice = _choice(where, change, way, force=guard.force, order_by=send.order_by)
    source = None if snapshot is None else Snapshot(snapshot)
    names = _queues(queues, source)
    given = JobOptions(
        _guards(guard, canary_wait),
        send.settings,
        broker.family,
        partitions,
        keep,
        literal=broker.literal,
        management_url=broker.management_url,
    )
    guarded = given.guards.are_up
    place = _archive(archive)
    with (
        _journal(printer, journaled, broker.url) as journal,
        _job(printer, place, broker.url, master, given, journal, journaled.reason) as job,
    ):
        mains = names if source is not None else _tell_taken(printer, job, names)
        if dry_run:
            _look(printer, job, names, choice, broker.management_url, source)
            return
        places = job.whereabouts(mains if choice.to is None else [choice.to])
        if guards.refused(printer, places, guarded=guarded, yes=yes):
            printer.note("Nothing was taken or sent.")
            raise typer.Exit(1)

        def approve(run: "Run", plan: "RunPlan") -> bool:
            spark_output.tell_plan(printer, plan, page=job.archive.page_of(run))
            return _ask(printer, job, plan, guarded=guarded, yes=yes)

        with _stops(printer):
            identity = job.requeue(names, choice, approve=approve, snapshot=source)
    if identity is None:
        where_they_are = "back where they came from" if source is None else "in the archive"
        printer.note(f"Nothing was sent; all messages are {where_they_are}.")
        raise typer.Exit(1)
    spark_output.end(printer, job.archive, identity)


@app.command("drain", short_help="Move failed messages into the archive.")
@options.expanded
def drain(
    queues: spark_options.Queues,
    *,
    archive: spark_options.ArchivePlace,
    partitions: spark_options.Partitions = None,
    journaled: spark_options.JournalOptions,
    master: spark_options.Master = None,
    broker: options.SourceOptions,
    output: options.Output = OutputFormat.TABLE,
) -> None:
    """Move failed messages into the archive.

    It takes as many as each queue had when it began. A message is acked only once the file that
    holds it is complete.

    \b
    Example:
      redrive spark drain ucenter@user billing@invoice --archive /srv/redrive
    """
    printer = Printer(output)
    check_prerequisites()
    given = JobOptions(
        exchanges=broker.family,
        tasks=partitions,
        literal=broker.literal,
        management_url=broker.management_url,
    )
    place = _archive(archive)
    with (
        _journal(printer, journaled, broker.url) as journal,
        _job(printer, place, broker.url, master, given, journal, journaled.reason) as job,
    ):
        _tell_taken(printer, job, queues)
        run = job.drain(queues)
        identity = job.verify(run)
    printer.result(identity.to_dict())
    printer.say(
        f"{count_of(identity.drained, 'message')} in {job.archive.storage.uri}, as run {run.id}."
    )


@app.command("plan", short_help="Show what is in the archive, and what would be requeued.")
@options.expanded
def plan(
    archive: spark_options.ArchivePlace,
    where: Where = None,
    *,
    way: spark_options.WayOptions,
    change: BodyOptions,
    run_id: spark_options.RunId = None,
    master: spark_options.Master = None,
    url: options.Url = environment.DEFAULT_URL,
    output: options.Output = OutputFormat.TABLE,
) -> None:
    """Show what is in the archive, and what would be requeued.

    It shows the messages of one run by cause, and writes the same to an HTML page. It sends
    nothing.

    \b
    Example:
      redrive spark plan --archive /srv/redrive --where "failed_at > now() - interval 1 day"
    """
    printer = Printer(output)
    check_prerequisites()
    choice = _choice(where, change, way)
    with _job(printer, _archive(archive), url, master) as job:
        run = job.archive.run(run_id)
        planned = job.plan(run, choice)
    page = job.archive.page_of(run)
    printer.result(planned.to_dict() | {"page": page})
    spark_output.tell_plan(printer, planned, page=page)
    printer.say(f"The page: {page}")


@app.command("send", short_help="Requeue messages of the archive to where they failed.")
@options.expanded
def send(
    archive: spark_options.ArchivePlace,
    where: Where = None,
    *,
    way: spark_options.WayOptions,
    change: BodyOptions,
    run_id: spark_options.RunId = None,
    guard: guards.GuardOptions,
    canary_wait: spark_options.CanaryWait = None,
    send: spark_options.SendOptions,
    partitions: spark_options.Partitions = None,
    journaled: spark_options.JournalOptions,
    dry_run: options.DryRun = False,
    yes: options.Yes = False,
    another_broker: spark_options.AnotherBroker = False,
    master: spark_options.Master = None,
    broker: RecordedJobOptions,
    output: options.Output = OutputFormat.TABLE,
) -> None:
    """Requeue messages of the archive to where they failed.

    It shows what it would requeue, and asks. The messages that were not chosen stay in the archive,
    and so do those without a known way back: --to names a queue for them.

    \b
    Example:
      redrive spark send --archive /srv/redrive --canary 100 --stop-at 5%
    """
    printer = Printer(output)
    check_prerequisites()
    choice = _choice(where, change, way, force=guard.force, order_by=send.order_by)
    guarding, sending = _guards(guard, canary_wait), send.settings
    place = _archive(archive)
    run = place.run(run_id)
    given = JobOptions(
        guarding,
        sending,
        broker.over(run.family),
        partitions,
        another_broker=another_broker,
        management_url=broker.management_url,
    )
    with (
        _journal(printer, journaled, broker.url) as journal,
        _job(printer, place, broker.url, master, given, journal, journaled.reason) as job,
    ):
        job.check_broker(run)
        planned = job.plan(run, choice)
        spark_output.tell_plan(printer, planned, page=job.archive.page_of(run))
        if dry_run:
            printer.result(planned.to_dict())
            return
        if planned.chosen and not _ask(printer, job, planned, guarded=given.guards.are_up, yes=yes):
            printer.note("Nothing was sent.")
            raise typer.Exit(1)
        with _stops(printer):
            identity = job.send_and_verify(run, choice, chosen=planned.chosen)
    spark_output.end(printer, job.archive, identity)


@app.command("restore", short_help="Restore the remaining messages to where they came from.")
@options.expanded
def restore(
    archive: spark_options.ArchivePlace,
    run_id: spark_options.RunId = None,
    snapshot: spark_options.From = None,
    *,
    another_broker: spark_options.AnotherBroker = False,
    journaled: spark_options.JournalOptions,
    master: spark_options.Master = None,
    broker: RecordedJobOptions,
    output: options.Output = OutputFormat.TABLE,
) -> None:
    """Restore the remaining messages to the queues that they came from.

    These are the messages that were neither requeued nor discarded. They go back exactly as they
    were. With --from it restores the messages of a file, and copies them into the archive first.

    \b
    Example:
      redrive spark restore --archive /srv/redrive
    """
    printer = Printer(output)
    check_prerequisites()
    source = None if snapshot is None else Snapshot(snapshot)
    if source is not None and run_id is not None:
        raise ConfigurationError("--run and --from are both given", "Give one of them.")
    place = _archive(archive)
    drained = None if source is not None else place.run(run_id)
    family = ExchangeFamily() if drained is None else drained.family
    given = JobOptions(exchanges=broker.over(family), another_broker=another_broker)
    with (
        _journal(printer, journaled, broker.url) as journal,
        _job(printer, place, broker.url, master, given, journal, journaled.reason) as job,
    ):
        run = drained or job.begun([], source)
        job.restore(run)
        identity = job.verify(run)
    spark_output.end(printer, job.archive, identity)


@app.command("discard", short_help="Mark messages of the archive as no longer wanted.")
@options.expanded
def discard(
    archive: spark_options.ArchivePlace,
    where: Where = None,
    run_id: spark_options.RunId = None,
    *,
    journaled: spark_options.JournalOptions,
    dry_run: options.DryRun = False,
    yes: options.Yes = False,
    master: spark_options.Master = None,
    url: options.Url = environment.DEFAULT_URL,
    output: options.Output = OutputFormat.TABLE,
) -> None:
    """Mark messages of the archive as no longer wanted.

    They are neither requeued nor restored after that. The archive keeps them.

    \b
    Example:
      redrive spark discard --archive /srv/redrive --where "error_type = 'KeyError'"
    """
    printer = Printer(output)
    check_prerequisites()
    choice = replace(_choice(where, force=True), discards=True)
    with (
        _journal(printer, journaled, url) as journal,
        _job(
            printer,
            _archive(archive),
            url,
            master,
            journal=journal,
            reason=journaled.reason,
        ) as job,
    ):
        run = job.archive.run(run_id)
        planned = job.plan(run, choice)
        page = job.archive.page_of(run)
        spark_output.tell_plan(printer, planned, "would be discarded", page=page)
        if dry_run:
            printer.result(planned.to_dict())
            return
        if planned.chosen and not printer.confirm(
            f"Discard {count_of(planned.chosen, 'message')}?", yes=yes
        ):
            printer.note("Nothing was discarded.")
            raise typer.Exit(1)
        job.discard(run, choice)
        identity = job.verify(run, choice)
    spark_output.end(printer, job.archive, identity)


@app.command("verify", short_help="Count what became of each message.")
def verify(
    archive: spark_options.ArchivePlace,
    run_id: spark_options.RunId = None,
    master: spark_options.Master = None,
    url: options.Url = environment.DEFAULT_URL,
    output: options.Output = OutputFormat.TABLE,
) -> None:
    """Count what became of each message.

    It counts id by id, and exits with 1 if the numbers don't add up.

    \b
    Example:
      redrive spark verify --archive /srv/redrive
    """
    printer = Printer(output)
    check_prerequisites()
    with _job(printer, _archive(archive), url, master) as job:
        run = job.archive.run(run_id)
        identity = job.verify(run)
    spark_output.end(printer, job.archive, identity)


app.command("package", short_help="Pack what executors need that have a bare Python.")(
    spark_package.package
)
app.command("demo", short_help="Watch all phases on a private RabbitMQ.")(spark_demo.demo)


def _choice(
    where: str | None,
    change: BodyOptions | None = None,
    way: spark_options.WayOptions | None = None,
    *,
    force: bool = False,
    order_by: str | None = None,
) -> "Selection":
    """Return the selection that these options describe, checked."""
    from redrive.spark_reprocess.selection import Selection

    change, way = change or BodyOptions(), way or spark_options.WayOptions()
    choice = Selection(
        where,
        change.transform,
        force=force,
        patch=change.patch_text,
        to=way.to,
        via=way.via,
        unchecked=way.unchecked,
        order_by=order_by,
    )
    choice.check()
    return choice


def _guards(given: guards.GuardOptions, canary_wait: str | None) -> Guards:
    return replace(given, watch=given.watch or canary_wait).guards


def _archive(place: str) -> "Archive":
    from redrive.spark_reprocess.archive import Archive

    return Archive(place)


@contextmanager
def _journal(
    printer: Printer, given: spark_options.JournalOptions, url: str
) -> Iterator[LocalJournal | None]:
    """Yield the journal that is shared at a broker; if it can't be used, print a note and yield
    None: a job does not depend on it."""
    BrokerURL.parse(url)
    try:
        journal = job_options.opened_journal(printer, given.journal, url)
    except ConfigurationError as error:
        reason = str(error).partition("\n")[0]
        printer.note(f"The journal can't be used ({reason}): the job continues without it.")
        yield None
        return
    with journal:
        yield journal


@contextmanager
def _job(
    printer: Printer,
    archive: "Archive",
    url: str,
    master: str | None,
    given: JobOptions | None = None,
    journal: LocalJournal | None = None,
    reason: str = "",
) -> "Iterator[SparkJob]":
    """Yield the job, in a new session unless one is active. A broker URL that can't be parsed is an
    error before Spark starts."""
    from redrive.spark_reprocess.spark_job import SparkJob

    BrokerURL.parse(url)
    # Imported here: rich's bars would slow down the help of every command.
    from redrive.cli.spark_bar import Bar

    tasks = None if given is None else given.tasks
    with _session(master, tasks) as spark, Bar() as bar:
        yield SparkJob(
            spark,
            archive,
            url,
            given,
            journal=journal,
            reason=reason,
            on_progress=bar.on_progress,
            on_note=printer.note,
        )


@contextmanager
def _session(master: str | None, partitions: int | None) -> "Iterator[SparkSession]":
    from pyspark.sql import SparkSession

    from redrive.spark_reprocess.session import session_for

    is_ours = SparkSession.getActiveSession() is None
    # An unpredictable name, so that nobody can put a link there beforehand.
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


def _tell_taken(printer: Printer, job: "SparkJob", names: list[str]) -> list[str]:
    """Print which of the named queues are dead-letter queues that redrive did not make; return the
    main queues of the others."""
    run = job.unfinished(names)
    sources = run.sources if run is not None else job.sources(names)
    for source in sources:
        if source.main is None:
            printer.note(f"Taking {source.queue}, {source.description}.")
            (place,) = job.whereabouts([source.queue])
            consumers = 0 if place.main is None else place.main.consumers
            if consumers:
                what = "consumer takes" if consumers == 1 else "consumers take"
                printer.note(f"{consumers:,} {what} messages from it as well.")
    return [source.main for source in sources if source.main is not None]


def _queues(queues: list[str] | None, snapshot: Snapshot | None) -> list[str]:
    """Return the queues to work on: those given, or those that the messages of a snapshot came
    from."""
    if snapshot is None:
        if not queues:
            raise ConfigurationError("no queue is given", "Name one, or give a file: --from FILE.")
        return queues
    if queues:
        raise ConfigurationError(
            "queues and a file are both given", "Leave out the queues: the file says which."
        )
    found = sorted({message.queue for message in snapshot.browse()})
    if not found:
        raise ConfigurationError(f"{snapshot.path} holds no message", "Give another file.")
    return found


def _look(
    printer: Printer,
    job: "SparkJob",
    queues: list[str],
    choice: "Selection",
    management_url: str | None,
    snapshot: Snapshot | None,
) -> None:
    run = job.unfinished(queues, snapshot)
    if run is not None and job.archive.is_drained(run):
        planned = job.plan(run, choice)
        spark_output.tell_plan(printer, planned, page=job.archive.page_of(run))
    else:
        planned = job.plan_by_looking(queues, choice, management_url, snapshot)
        place = "in the file" if snapshot is not None else "in the queues of failed messages"
        spark_output.tell_plan(printer, planned, place=place)
    printer.result(planned.to_dict())
    printer.note("Nothing was taken or sent.")


def _ask(
    printer: Printer, job: "SparkJob", planned: "RunPlan", *, guarded: bool, yes: bool
) -> bool:
    """Print who consumes the queues that messages go to; return whether to requeue them."""
    places = job.whereabouts(planned.queues[:_MOST_PLACES])
    guards.tell(printer, places)
    return guards.ask(printer, planned.chosen, places, guarded=guarded, yes=yes)


@contextmanager
def _stops(printer: Printer) -> "Iterator[None]":
    """Exit with 1 if the job stops itself, and print why."""
    from redrive.spark_reprocess.send import StoppedEarly

    try:
        yield
    except StoppedEarly as stopped:
        identity = stopped.identity
        printer.result(
            {**({} if identity is None else identity.to_dict()), "stopped": stopped.reason}
        )
        reason, _, remedy = str(stopped).partition("\n")
        printer.say(reason[:1].upper() + reason[1:], "red")
        printer.say(remedy)
        raise typer.Exit(1) from None
