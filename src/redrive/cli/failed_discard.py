"""`redrive failed discard` and `expire`: move failed messages to a file."""

import uuid
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Annotated

import typer

from redrive.cli import cause_options, job_options, message_options, messages, options
from redrive.cli.interrupt import interruptible
from redrive.cli.look_output import asked, check_read, chosen_by_id, held_by_others
from redrive.cli.output import OutputFormat, Printer
from redrive.failures.failed_queue import FailedQueue
from redrive.failures.jobs.discard_job import Chosen
from redrive.failures.jobs.job_record import JobRecord, State
from redrive.failures.jobs.local_journal import LocalJournal
from redrive.failures.message.failed_message import FailedMessage
from redrive.failures.message.groups import SharedIds
from redrive.failures.queue.failed_queue_base import source_of
from redrive.failures.queue.snapshot import Snapshot
from redrive.failures.store.filter import Filter, OpenFilter, failed_before, moment_before
from redrive.failures.store.look import Look
from redrive.number_text import count_of
from redrive.pubsub.url import BrokerURL

_INTERRUPTED = 130


@options.expanded
def discard(
    queue: options.FailedQueueName,
    file: message_options.File,
    where: message_options.Where = None,
    groups: message_options.Group = None,
    ids: Annotated[
        list[str] | None,
        typer.Option(
            "--id",
            metavar="ID",
            help="Only the message with this id. Can be repeated.",
            show_default=False,
        ),
    ] = None,
    limit: message_options.Limit = None,
    reason: job_options.Reason = "",
    journal: job_options.JournalFile = None,
    dry_run: options.DryRun = False,
    yes: options.Yes = False,
    *,
    broker: options.SourceOptions,
    output: options.Output = OutputFormat.TABLE,
) -> None:
    """Move failed messages to a file.

    It prints how many there are and asks; then it writes them to the file and deletes them from the
    queue. `redrive failed restore FILE` restores them.

    \b
    Example:
      redrive failed discard ucenter@user --group 3f2a -o gone.jsonl
    """
    printer = Printer(output)
    failed = message_options.failed_queue_of(printer, queue, broker)
    filter_ = cause_options.resolved(broker.url, message_options.filter_of(where, groups))
    if ids:
        chosen = chosen_by_id(printer, failed, ids)
        filter_ = replace(filter_, digests=frozenset(message.digest for message in chosen))
    job = JobRecord(
        str(uuid.uuid4()),
        "discard",
        source_of(failed).name,
        BrokerURL.parse(broker.url).address,
        {"selection": filter_.as_json(), "limit": limit},
        reason=reason,
        literal=source_of(failed).main is None,
    )
    shared = partial(job_options.opened_journal, printer, journal, broker.url)
    _move_out(printer, failed, job, filter_, file, shared, limit, dry_run=dry_run, yes=yes)


@options.expanded
def expire(
    queue: options.FailedQueueName,
    older_than: Annotated[
        str,
        typer.Option(
            "--older-than",
            metavar="DURATION",
            help="Move messages that failed longer ago than this: 30d, 12h.",
        ),
    ],
    file: Annotated[
        Path,
        typer.Option(
            "-o", "--file", "--to", metavar="FILE", help="A new file: .parquet, .jsonl or .duckdb."
        ),
    ],
    reason: job_options.Reason = "",
    journal: job_options.JournalFile = None,
    dry_run: options.DryRun = False,
    yes: options.Yes = False,
    *,
    broker: options.SourceOptions,
    output: options.Output = OutputFormat.TABLE,
) -> None:
    """Move old failed messages to a file.

    Messages without a failure time, such as those of services without redrive, stay in the queue.

    \b
    Example:
      redrive failed expire ucenter@user --older-than 30d -o old.parquet
    """
    printer = Printer(output)
    failed = message_options.failed_queue_of(printer, queue, broker)
    filter_ = failed_before(moment_before(older_than, datetime.now(UTC)))
    job = JobRecord(
        str(uuid.uuid4()),
        "expire",
        source_of(failed).name,
        BrokerURL.parse(broker.url).address,
        {"selection": filter_.as_json()},
        reason=reason,
        literal=source_of(failed).main is None,
    )
    shared = partial(job_options.opened_journal, printer, journal, broker.url)
    _move_out(printer, failed, job, filter_, file, shared, dry_run=dry_run, yes=yes)


def _move_out(
    printer: Printer,
    failed: FailedQueue,
    job: JobRecord,
    filter_: Filter,
    file: Path,
    journal: Callable[[], LocalJournal],
    limit: int | None = None,
    *,
    dry_run: bool,
    yes: bool,
) -> None:
    """Write the chosen messages to a file and, once it is on disk, delete exactly those."""
    kept, source = Snapshot(file), source_of(failed).queue
    with OpenFilter(filter_) as open_filter:

        def chosen_of(look: Look) -> Iterator[FailedMessage]:
            return islice(look.matching(open_filter), limit)

        shared_ids = SharedIds()
        count, look = asked(
            printer,
            failed,
            source,
            lambda look: sum(1 for _ in shared_ids.noted(chosen_of(look))),
        )
        check_read(source, look.looked_at, look.missing, count)
        message_options.check_groups(filter_.groups, count, source)
        messages.tell_shared_ids(printer, len(shared_ids))
        if dry_run or not count:
            printer.result(_json_of(job, file, shared_ids, count, 0))
            printer.say(
                f"{count_of(count, 'message')} of {source} would be written to {file} and deleted "
                "from the queue."
            )
            return
        if not printer.confirm(
            f"Move {count_of(count, 'message')} out of {source} into {file}?", yes=yes
        ):
            printer.note("Nothing was deleted.")
            raise typer.Exit(1)
        with journal() as opened:
            job = opened.begin(replace(job, planned=count, file=str(file)))
            chosen = Chosen()
            with interruptible() as cancel:
                try:
                    written, look = asked(
                        printer,
                        failed,
                        source,
                        lambda look: kept.write(chosen.noted(chosen_of(look))),
                    )
                    check_read(source, look.looked_at, look.missing)
                    with printer.progress("deleting", written) as done:
                        report = failed.discard(
                            chosen.again(),
                            on_progress=lambda so_far: done(so_far.requeued),
                            cancel=cancel,
                        )
                except BaseException as error:
                    opened.update(
                        replace(
                            job,
                            state=State.FAILED,
                            problem=(str(error) or "interrupted").partition("\n")[0],
                        )
                    )
                    raise
            opened.update(
                replace(
                    job,
                    state=State.INTERRUPTED if report.cancelled else State.DONE,
                    sent=report.discarded,
                )
            )
    printer.result(_json_of(job, file, shared_ids, written, report.discarded, report.held))
    printer.say(
        f"{count_of(written, 'message')} written to {file}, {report.discarded:,} deleted from "
        f"{source}."
    )
    if report.cancelled:
        printer.say(f"Stopped: the rest is still in {source}, and in {file} too.", "yellow")
        raise typer.Exit(_INTERRUPTED)
    if report.discarded < written:
        left = count_of(written - report.discarded, "message")
        printer.say(
            f"{left} of these could not be deleted: somebody else has taken them, or holds them. "
            f"{file} has them too.",
            "red",
        )
    if report.held != 0:
        printer.say(held_by_others(source, report.held, "still there, not looked at"), "yellow")
    if report.discarded < written or report.held != 0:
        raise typer.Exit(1)


def _json_of(
    job: JobRecord,
    file: Path,
    shared_ids: SharedIds,
    written: int,
    deleted: int,
    held: int | None = 0,
) -> dict[str, object]:
    return {
        "queue": job.queue,
        "file": str(file),
        "shared_ids": len(shared_ids),
        "written": written,
        "deleted": deleted,
        "held": held,
        "job": job.id if deleted else None,
    }
