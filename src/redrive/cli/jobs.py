"""`redrive jobs`: what was done with failed messages, and what became of it."""

from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Annotated, Any, cast

import typer

from redrive.cli import guards, messages, options, sending
from redrive.cli.looking import looked_at, looking
from redrive.cli.output import Cell, Column, Form, Printer, count_of
from redrive.errors import ConfigurationError, RedriveError
from redrive.failures.canary import Unknown
from redrive.failures.journal import Journal
from redrive.failures.order import Order
from redrive.failures.plan import plan_of
from redrive.failures.record import Job, State
from redrive.failures.snapshot import Snapshot
from redrive.pubsub.blocking.failed import FailedQueue
from redrive.pubsub.config import BrokerURL
from redrive.pubsub.message import FailedMessage
from redrive.redaction import in_one_line
from redrive.topology.durations import text_of
from redrive.topology.names import ExchangeFamily, failed_queue

app = typer.Typer(
    help="Look at what was done with failed messages, and go on with what was interrupted.",
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)

JobId = Annotated[str, typer.Argument(metavar="ID", help="The job's id, or its first characters.")]

JobExchange = Annotated[
    str | None,
    typer.Option("--exchange", metavar="NAME", show_default=False, help="The main exchange of the family; without it, the job's own."),
]

_STYLES = {State.RUNNING: "cyan", State.DONE: "green", State.INTERRUPTED: "yellow", State.STOPPED: "red", State.FAILED: "red"}


@app.callback(invoke_without_command=True)
def _jobs(context: typer.Context) -> None:
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())


@app.command("list", short_help="List the jobs, the latest first.")
def list_(
    limit: Annotated[int, typer.Option("--limit", metavar="N", min=1, help="How many are shown.")] = 20,
    journal: sending.JournalFile = None,
    output: options.Output = Form.TABLE,
) -> None:
    """List the jobs of the journal, the latest first.

    \b
    Example:
      redrive jobs list --limit 5
    """
    printer = Printer(output)
    with Journal(journal) as opened:
        found = opened.jobs(limit)
        path = opened.path
    printer.result([_json_of(job) for job in found])
    if printer.as_json:
        return
    if not found:
        printer.say(f"No job is in {path}.")
        return
    columns = (
        Column("job"),
        Column("begun at (UTC)"),
        Column("what"),
        Column("queue", give=True),
        Column("state"),
        Column("sent", "right"),
        Column("who", give=True),
        Column("why", give=True),
    )
    printer.table(columns, [_row_of(job) for job in found])


@app.command("show", short_help="Show one job, and what became of its messages.")
def show(
    id_: JobId,
    journal: sending.JournalFile = None,
    management_url: options.ManagementUrl = None,
    url: options.Url = options.DEFAULT_URL,
    exchange: JobExchange = None,
    output: options.Output = Form.TABLE,
) -> None:
    """Show one job: who, when, why, which messages, and what became of them.

    How many failed again is counted in the failed queue. How many succeeded or are retrying is what subscribers of redrive have told: of
    others, and where an event was lost, they count as unknown.

    \b
    Example:
      redrive jobs show 3f2a9c1e
    """
    printer = Printer(output)
    with Journal(journal) as opened:
        job = opened.job(id_)
        if job.kind == "requeue":
            job = _brought_up_to_date(printer, opened, job, _failed_queue(printer, job, url, exchange, management_url), url)
    printer.result(_json_of(job))
    if not printer.as_json:
        for name, value in _facts(job):
            printer.say(f"{name:<14}{value}")


def _brought_up_to_date(printer: Printer, journal: Journal, job: Job, failed: FailedQueue, url: str) -> Job:
    """The job with what has become of its messages since it was asked last."""
    try:
        if job.broker != BrokerURL.parse(url).address:
            raise ConfigurationError(f"it is one of {job.broker}, and --url names {BrokerURL.parse(url).address}", "")
        told = failed.heard(job.id)
        # While the job runs it has the queue for itself.
        patience = 0.0 if job.state is State.RUNNING else None
        with looking(printer, failed, failed_queue(job.queue), patience=patience) as (messages_, _):
            here = sum(message.job == job.id for message in messages_)
    except RedriveError as error:
        printer.note(f"What became of its messages can't be asked now: {str(error).partition(chr(10))[0]}")
        return job
    return journal.heard(job.id, told, here)


def _failed_queue(printer: Printer, job: Job, url: str, exchange: str | None, management_url: str | None) -> FailedQueue:
    """The job's failed queue, with the exchange family that the job was begun with, unless another is named."""
    family = job.family if exchange is None else ExchangeFamily(exchange)
    if family is None:
        family = ExchangeFamily()
        printer.note(
            f"An older version did not write down the exchange family of job {job.id}: {family.main!r} is taken; --exchange names it."
        )
    return FailedQueue(url, job.queue, family, management_url=management_url)


def _json_of(job: Job) -> dict[str, object]:
    return {**job.as_json(), **job.outcome} if job.kind == "requeue" else job.as_json()


@app.command("resume", short_help="Go on with a job that was interrupted.")
def resume(
    id_: JobId,
    journal: sending.JournalFile = None,
    yes: options.Yes = False,
    watch: guards.Watch = None,
    unknown: Annotated[
        Unknown | None,
        typer.Option(
            "--unknown",
            show_default=False,
            help="What to do when nothing is known of some of the canary at the end of the watch; without it, as the job was told.",
        ),
    ] = None,
    management_url: options.ManagementUrl = None,
    url: options.Url = options.DEFAULT_URL,
    exchange: JobExchange = None,
    output: options.Output = Form.TABLE,
) -> None:
    """Go on with a job that was interrupted, by Ctrl-C or because its process died, or that stopped by itself.

    What it has sent is not sent again, but for what was on its way when it ended: that is reported as possible duplicates. Its --canary
    and --stop-at still hold: it begins with a new canary, as many messages again of what is left.

    \b
    Example:
      redrive jobs resume 3f2a9c1e
    """
    printer = Printer(output)
    with Journal(journal) as opened:
        job = opened.job(id_)
        if job.kind != "requeue":
            raise ConfigurationError(f"job {job.id} is no requeue but a {job.kind}", "Run its command again: it takes what is left.")
        if job.state is State.DONE:
            printer.result(job.as_json())
            printer.say(f"Job {job.id} is done: there is nothing to go on with.")
            return
        if job.broker != BrokerURL.parse(url).address:
            raise ConfigurationError(
                f"job {job.id} is one of {job.broker}, and --url names {BrokerURL.parse(url).address}", "Give the URL that it was run with."
            )
        order = Order.from_json(job.order)
        if order.function is not None:
            # The journal may be somebody else's, and to import is to run.
            printer.note(f"Job {job.id} changes bodies by the function {order.function}, which its module is imported for.")
            if not printer.confirm(f"Run {order.function}?", yes=yes):
                printer.note("Nothing was sent.")
                raise typer.Exit(1)
        order = replace(
            order,
            watch=order.watch if watch is None else guards.seconds_of(watch),
            unknown=order.unknown if unknown is None else unknown.value,
        )
        failed = _failed_queue(printer, job, url, exchange, management_url)
        under_way = opened.under_way(job.id)
        plan = looked_at(printer, failed, failed_queue(job.queue), lambda found: plan_of(order, found, under_way, job.id))
        if order.limit is not None:
            plan.count = min(plan.count, max(0, order.limit - job.sent))
        left = f"{count_of(plan.count, 'message')} {'is' if plan.count == 1 else 'are'} left to send"
        printer.say(f"Job {job.id} has sent {count_of(job.sent, 'message')}; {left}.")
        places = [failed.whereabouts(order.to)]
        guards.tell(printer, places)
        if not guards.ask(printer, plan.count, places, guarded=order.is_watched, yes=yes):
            printer.note("Nothing was sent.")
            raise typer.Exit(1)
        job = replace(job, order=order.as_json(), exchanges=failed.exchanges.as_json())
        sending.carry_out(printer, failed, opened, job, order, plan)


@app.command("originals", short_help="Write what a job has changed, as it was, to a file.")
def originals(
    id_: JobId,
    file: Annotated[Path, typer.Option("-o", "--file", metavar="FILE", help="A new .parquet, .jsonl or .duckdb file.")],
    journal: sending.JournalFile = None,
    output: options.Output = Form.TABLE,
) -> None:
    """Write the messages that a job has changed, as they were before, to a file.

    `redrive failed restore FILE` sets them aside again.

    \b
    Example:
      redrive jobs originals 3f2a9c1e -o originals.jsonl
    """
    printer = Printer(output)
    with Journal(journal) as opened:
        job = opened.job(id_)
        count = Snapshot(file).write(FailedMessage(delivery) for delivery in opened.originals(job.id))
    printer.result({"job": job.id, "file": str(file), "messages": count})
    printer.say(f"{count_of(count, 'message')} of job {job.id} written to {file}, as they were.")


def _row_of(job: Job) -> list[str | Cell]:
    return [
        job.id[: messages.SHORT_ID],
        messages.moment_of(job.begun_at),
        job.kind,
        job.queue,
        Cell(job.state.value, _STYLES[job.state]),
        f"{job.sent:,}",
        job.who,
        job.reason or "–",
    ]


def _manner(job: Job) -> list[tuple[str, str]]:
    """How the job was told to send, as far as somebody said."""
    if job.kind != "requeue" or not job.order:
        return []
    order = Order.from_json(job.order)
    canary = ""
    if order.canary:
        watch = "" if order.watch is None else f", watched for {text_of(timedelta(seconds=order.watch))} at most"
        canary = f"{order.canary:,}{watch}{', going on when unknown' if order.unknown == Unknown.GO_ON else ''}"
    facts = (
        ("exchange", job.family.main if job.family is not None else ""),
        ("limit", "" if order.limit is None else f"{order.limit:,}"),
        ("to", order.to or ""),
        ("rate", "" if order.rate is None else f"{order.rate:g}/s"),
        ("canary", canary),
        ("stop at", "" if order.stop_at is None else f"{order.stop_at:.1%}"),
        ("patch", in_one_line(order.patch or "")),
        ("python", order.function or ""),
        ("edited", f"{len(order.edits):,} {'body' if len(order.edits) == 1 else 'bodies'}" if order.edits else ""),
        ("force", "yes" if order.force else ""),
    )
    return [(name, value) for name, value in facts if value]


def _facts(job: Job) -> list[tuple[str, str]]:
    selection = cast("dict[str, Any]", job.order.get("selection", {}))
    which = [f"where {selection['where']}"] if selection.get("where") else []
    which += [f"group {group}" for group in selection.get("groups", [])]
    ids = selection.get("digests") or selection.get("ids")
    which += [count_of(len(ids), "id")] if ids else []
    facts = [
        ("job", job.id),
        ("what", job.kind),
        ("queue", job.queue),
        ("broker", job.broker),
        ("who", job.who),
        ("why", job.reason or "–"),
        ("which", ", ".join(which) or "all"),
        *_manner(job),
        ("begun at", messages.moment_of(job.begun_at)),
        ("changed at", messages.moment_of(job.changed_at)),
        ("state", job.state.value + (f": {job.problem}" if job.problem else "")),
        ("planned", f"{job.planned:,}"),
        ("sent", f"{job.sent:,}"),
    ]
    if job.kind == "requeue":
        facts += [(name.replace("_", " "), f"{count:,}") for name, count in job.outcome.items()]
    if job.possible_duplicates:
        facts.append(("maybe twice", f"{job.possible_duplicates:,}"))
    if job.not_sent:
        facts.append(("not sent", f"{job.not_sent:,}"))
    if job.file:
        facts.append(("file", job.file))
    return facts
