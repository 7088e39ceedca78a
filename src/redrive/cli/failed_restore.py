"""`redrive failed restore`: restores messages of a file to their failed queues."""

import uuid
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from redrive.cli import job_options, message_options, options
from redrive.cli.look_output import looking
from redrive.cli.output import Form, Printer, count_of
from redrive.errors import RedriveError
from redrive.failures.failed_message import FailedMessage
from redrive.failures.failed_queue import FailedQueue
from redrive.failures.filter import OpenFilter
from redrive.failures.job_record import Job, State
from redrive.failures.journal import Journal
from redrive.failures.snapshot import Snapshot
from redrive.pubsub.url import BrokerURL
from redrive.topology import rewrite
from redrive.topology.digest import digest_of
from redrive.topology.headers import Delivery
from redrive.topology.names import ExchangeFamily, failed_queue


@options.expanded
def restore(
    file: Annotated[
        Path,
        typer.Argument(
            metavar="FILE",
            help="A file written by snapshot, discard, expire or originals, or the folder of an "
            "archive of `redrive spark`.",
        ),
    ],
    where: message_options.Where = None,
    reason: job_options.Reason = "",
    journal: job_options.JournalFile = None,
    dry_run: options.DryRun = False,
    yes: options.Yes = False,
    *,
    broker: options.FamilyOptions,
    output: options.Output = Form.TABLE,
) -> None:
    """Restore failed messages from a file.

    Each message goes back into the failed queue that it came from. The command prints how many
    there are and how many of them are in the queue already, and asks. The file stays: restoring it
    twice duplicates its messages.

    \b
    Example:
      redrive failed restore gone.jsonl
    """
    printer = Printer(output)
    kept = Snapshot(file)
    with OpenFilter(message_options.filter_of(where, None)) as open_filter:
        with looking(printer, kept, str(file)) as (found, _):
            queues = Counter(message.queue for message in open_filter.of(found))
        what = ", ".join(
            f"{count:,} into {failed_queue(queue)}" for queue, count in sorted(queues.items())
        )
        there = {
            queue: _there_already(
                printer,
                message_options.failed_queue_of(queue, broker),
                (message for message in open_filter.of(kept.browse()) if message.queue == queue),
                broker.family,
                dry_run=dry_run,
            )
            for queue in sorted(queues)
        }
        restored: dict[str, int] = {}
        for queue, count in there.items():
            if count:
                printer.note(
                    f"{count_of(count, 'message')} of this file {_are(count)} in "
                    f"{failed_queue(queue)} already and would be duplicated."
                )
        if queues and not dry_run:
            if not printer.confirm(
                f"Restore {what}{' and duplicate some' if any(there.values()) else ''}?",
                yes=yes,
            ):
                printer.note("Nothing was restored.")
                raise typer.Exit(1)
            with job_options.opened_journal(printer, journal, broker.url) as opened:
                for queue, count in sorted(queues.items()):
                    job = Job(
                        str(uuid.uuid4()),
                        "restore",
                        queue,
                        BrokerURL.parse(broker.url).address,
                        reason=reason,
                        planned=count,
                        file=str(file),
                    )
                    chosen = open_filter.of(kept.browse())
                    mine = (message for message in chosen if message.queue == queue)
                    with printer.progress(f"restoring into {failed_queue(queue)}", count) as done:
                        deliveries = (message.delivery for message in _counted(mine, done))
                        restored[queue] = _restore(
                            opened, job, message_options.failed_queue_of(queue, broker), deliveries
                        )
    printer.result(
        {
            "file": str(file),
            "messages": queues.total(),
            "there_already": there,
            "restored": restored,
        }
    )
    if not queues:
        printer.say(f"No message in {file} matches.")
    for queue, count in sorted(queues.items()):
        printer.say(
            f"{count_of(count, 'message')} would be restored into {failed_queue(queue)}."
            if dry_run
            else _restored(queue, restored[queue], count)
        )
    if not dry_run and sum(restored.values()) < queues.total():
        raise typer.Exit(1)


def _there_already(
    printer: Printer,
    failed: FailedQueue,
    messages: Iterable[FailedMessage],
    exchanges: ExchangeFamily,
    *,
    dry_run: bool,
) -> int | None:
    """Count the messages of a failed queue that a file has too, as they are or as they were
    restored before; None if the queue can't be read."""
    try:
        if not failed.depth():
            return 0
        digests = {
            bytes.fromhex(digest)
            for message in messages
            for digest in (message.digest, _digest_restored(message, exchanges))
        }
        return sum(bytes.fromhex(message.digest) in digests for message in failed.browse())
    except RedriveError as error:
        if not dry_run:
            raise
        printer.note(
            f"Can't tell how many of them are there already: {str(error).partition(chr(10))[0]}"
        )
        return None


def _digest_restored(message: FailedMessage, exchanges: ExchangeFamily) -> str:
    """Return the digest that a message has once it is restored: properties that can't travel are in
    its headers then."""
    publish = rewrite.restore(message.delivery, exchanges, frame_max=0)
    return digest_of(publish.routing_key, publish.properties.encode(), publish.body)


def _are(count: int) -> str:
    return "is" if count == 1 else "are"


def _restored(queue: str, done: int, count: int) -> str:
    return f"{done:,} of {count_of(count, 'message')} restored into {failed_queue(queue)}."


def _restore(
    journal: Journal, job: Job, failed: FailedQueue, deliveries: Iterator[Delivery]
) -> int:
    job = journal.begin(job)
    try:
        report = failed.restore(deliveries)
    except RedriveError as error:
        journal.update(replace(job, state=State.FAILED, problem=str(error).partition("\n")[0]))
        raise
    journal.update(
        replace(job, state=State.DONE, sent=report.confirmed, not_sent=len(report.failed))
    )
    return report.confirmed


def _counted(
    messages: Iterator[FailedMessage], done: Callable[[int], None]
) -> Iterator[FailedMessage]:
    for number, message in enumerate(messages, 1):
        yield message
        done(number)
