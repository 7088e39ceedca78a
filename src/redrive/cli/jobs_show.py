"""`redrive jobs show`: shows one job, and what became of its messages."""

from collections.abc import Iterable
from typing import Any, cast

import typer

from redrive.cli import job_options, job_run, options, spark_command
from redrive.cli.look_output import showing
from redrive.cli.output import OutputFormat, Printer
from redrive.errors import ConfigurationError, RedriveError
from redrive.failures.failed_queue import FailedQueue
from redrive.failures.jobs.approval_rule import check_seen
from redrive.failures.jobs.job_record import JobRecord, State
from redrive.failures.jobs.local_journal import LocalJournal
from redrive.failures.queue.failed_queue_base import source_of
from redrive.failures.queue.order import Order, order_facts
from redrive.failures.wording import job_facts, job_json, result_facts, status_facts
from redrive.number_text import count_of
from redrive.redaction import in_one_line
from redrive.topology.headers import counted

_CAUSES_SHOWN = 5
_CAN_RUN = (State.WAITING, State.ASKED, State.INTERRUPTED, State.STOPPED, State.FAILED)


@options.expanded
def show(
    id_: job_options.JobId,
    journal: job_options.JournalFile = None,
    *,
    broker: job_options.RecordedJobOptions,
    output: options.Output = OutputFormat.TABLE,
) -> None:
    """Show one job and what became of its messages.

    The messages that failed again are counted in the failed queue. How many succeeded or are
    retrying is what redrive's subscribers report; messages of other consumers count as unknown.

    \b
    Example:
      redrive jobs show 3f2a9c1e
    """
    printer = Printer(output)
    with job_options.opened_journal(printer, journal, broker.url) as opened:
        job = opened.job(id_)
        if job.kind == "requeue":
            failed = job_run.failed_queue_of(printer, job, broker)
            job = _brought_up_to_date(printer, opened, job, failed)
    printer.result(job_json(job))
    if not printer.for_programs:
        tell(printer, job)


def check_shown(
    printer: Printer, record: JobRecord, digest: str | None, question: str, *, yes: bool
) -> None:
    """Show the order of a job, and exit unless somebody who has seen it agrees to it."""
    if digest is not None:
        check_seen(record, digest)
    elif yes:
        raise ConfigurationError(
            "--yes alone would approve what nobody has seen",
            f"Say what was seen, with --digest: redrive jobs show {record.id} prints it.",
        )
    tell(printer, record)
    if not printer.confirm(question, yes=yes):
        printer.note("Nothing was requeued.")
        raise typer.Exit(1)


def tell(printer: Printer, job: JobRecord) -> None:
    """Print what the journal records about a job, including its whole order."""
    tell_facts(printer, _facts(job))


def tell_facts(printer: Printer, facts: Iterable[tuple[str, str]]) -> None:
    """Print facts, one a line."""
    for name, value in facts:
        printer.say(f"{name:<13} {value}")


def _brought_up_to_date(
    printer: Printer, journal: LocalJournal, record: JobRecord, failed: FailedQueue
) -> JobRecord:
    """Return the job with the current outcome of its messages."""
    try:
        job = failed.job(record.id, journal)
        with showing(printer, source_of(failed).queue) as told:
            # While the job runs, it holds the queue: don't wait for it.
            patience = 0.0 if record.state is State.RUNNING else None
            job.outcome(on_progress=told, patience=patience)
    except RedriveError as error:
        printer.note(
            f"Can't tell now what became of its messages: {str(error).partition(chr(10))[0]}"
        )
        return record
    return job.record


def _manner(job: JobRecord) -> list[tuple[str, str]]:
    """Return the options that the job was started with."""
    if spark_command.is_on_spark(job):
        return _manner_on_spark(job)
    if job.kind != "requeue" or not job.order:
        return []
    facts = [("exchanges", _exchanges_of(job))]
    facts += [(name, in_one_line(text)) for name, text in order_facts(Order.from_json(job.order))]
    return [(name, value) for name, value in facts if value]


def _manner_on_spark(job: JobRecord) -> list[tuple[str, str]]:
    """Return the options of a job on Spark. What another user's journal says is not validated, only
    shown."""
    facts = [("run", spark_command.run_of(job)), ("exchanges", _exchanges_of(job))]
    for name in ("to", "via", "rate", "patch", "transform", "force"):
        value = job.order.get(name)
        if value:
            facts.append((name, "yes" if value is True else in_one_line(str(value))))
    return [(name, value) for name, value in facts if value]


def _exchanges_of(job: JobRecord) -> str:
    family = job.family
    return "" if family is None else f"{family.main}, {family.retry}, {family.failed}"


def order_of(job: JobRecord) -> list[tuple[str, str]]:
    """Return what a job was told to do, and why."""
    return [("why", job.reason or "–"), *_choice_of(job)]


def _choice_of(job: JobRecord) -> list[tuple[str, str]]:
    """Return which messages a job was to take, and how."""
    # Only the order of a requeue on one machine is validated; any other may hold anything.
    found = job.order.get("selection")
    selection = cast("dict[str, Any]", found) if isinstance(found, dict) else {}
    which = [f"where {selection['where']}"] if selection.get("where") else []
    which += [f"group {group}" for group in _list(selection.get("groups"))]
    ids = _list(selection.get("digests")) or _list(selection.get("ids"))
    which += [count_of(len(ids), "id")] if ids else []
    if job.kind == "discard" and (limit := counted(cast("dict[str, Any]", job.order).get("limit"))):
        which.append(f"the oldest {limit:,}")
    return [("which", ", ".join(which) or "all"), *_manner(job)]


def _list(found: object) -> list[Any]:
    return found if isinstance(found, list) else []


def _facts(job: JobRecord) -> list[tuple[str, str]]:
    is_on_spark = spark_command.is_on_spark(job)
    facts = [
        *job_facts(job),
        *_choice_of(job),
        *([("digest", job.digest)] if job.state in _CAN_RUN else []),
        *status_facts(job),
        *result_facts(job, _CAUSES_SHOWN),
    ]
    if job.file:
        facts.append(("archive" if is_on_spark else "file", job.file))
    if is_on_spark and job.state not in (State.DONE, State.RUNNING):
        facts.append(("to continue", spark_command.command_of(job)))
    return facts
