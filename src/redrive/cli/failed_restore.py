"""`redrive failed restore`: restores messages from a file to their failed queues."""

import uuid
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Annotated

import typer

from redrive.cli import job_options, message_options, options
from redrive.cli.look_output import asked
from redrive.cli.output import OutputFormat, Printer, count_of
from redrive.errors import RedriveError
from redrive.failures.failed_message import FailedMessage
from redrive.failures.failed_queue import FailedQueue
from redrive.failures.filter import OpenFilter
from redrive.failures.job_record import JobRecord
from redrive.failures.restore_target import RestoreTarget, place_of, restored, there_already
from redrive.failures.snapshot import Snapshot
from redrive.pubsub.url import BrokerURL
from redrive.topology.names import ExchangeFamily


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
    output: options.Output = OutputFormat.TABLE,
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
        queues, _ = asked(
            printer,
            kept,
            str(file),
            lambda look: Counter(map(place_of, look.matching(open_filter))),
        )
        what = ", ".join(f"{count:,} into {place.queue}" for place, count in sorted(queues.items()))
        there = {
            place: _there_already(
                printer,
                _failed_queue_at(place, broker),
                (one for one in open_filter.of(kept.browse()) if place_of(one) == place),
                broker.family,
                dry_run=dry_run,
            )
            for place in sorted(queues)
        }
        sent: dict[RestoreTarget, int] = {}
        for place, count in there.items():
            if count:
                printer.note(
                    f"{count_of(count, 'message')} of this file {_are(count)} in "
                    f"{place.queue} already and would be duplicated."
                )
        if queues and not dry_run:
            if not printer.confirm(
                f"Restore {what}{' and duplicate some' if any(there.values()) else ''}?",
                yes=yes,
            ):
                printer.note("Nothing was restored.")
                raise typer.Exit(1)
            with job_options.opened_journal(printer, journal, broker.url) as opened:
                for place, count in sorted(queues.items()):
                    job = JobRecord(
                        str(uuid.uuid4()),
                        "restore",
                        place.name,
                        BrokerURL.parse(broker.url).address,
                        reason=reason,
                        planned=count,
                        file=str(file),
                        literal=place.is_literal,
                    )
                    chosen = open_filter.of(kept.browse())
                    mine = (message for message in chosen if place_of(message) == place)
                    with printer.progress(f"restoring into {place.queue}", count) as done:
                        deliveries = (message.delivery for message in _counted(mine, done))
                        sent[place] = restored(
                            opened, job, _failed_queue_at(place, broker), deliveries
                        )
    printer.result(
        {
            "file": str(file),
            "messages": queues.total(),
            "there_already": {place.name: count for place, count in there.items()},
            "restored": {place.name: count for place, count in sent.items()},
        }
    )
    if not queues:
        printer.say(f"No message in {file} matches.")
    for place, count in sorted(queues.items()):
        printer.say(
            f"{count_of(count, 'message')} would be restored into {place.queue}."
            if dry_run
            else f"{sent[place]:,} of {count_of(count, 'message')} restored into {place.queue}."
        )
    if not dry_run and sum(sent.values()) < queues.total():
        raise typer.Exit(1)


def _failed_queue_at(place: RestoreTarget, broker: options.FamilyOptions) -> FailedQueue:
    return FailedQueue(
        broker.url,
        place.name,
        broker.family,
        management_url=broker.management_url,
        literal=place.is_literal,
    )


def _there_already(
    printer: Printer,
    failed: FailedQueue,
    messages: Iterable[FailedMessage],
    exchanges: ExchangeFamily,
    *,
    dry_run: bool,
) -> int | None:
    """Count the messages of a failed queue that a file also has, unchanged or as they were restored
    earlier; None if the queue can't be read."""
    try:
        return there_already(failed, messages, exchanges)
    except RedriveError as error:
        if not dry_run:
            raise
        printer.note(
            f"Can't tell how many of them are there already: {str(error).partition(chr(10))[0]}"
        )
        return None


def _are(count: int) -> str:
    return "is" if count == 1 else "are"


def _counted(
    messages: Iterator[FailedMessage], done: Callable[[int], None]
) -> Iterator[FailedMessage]:
    for number, message in enumerate(messages, 1):
        yield message
        done(number)
