"""`redrive failed restore`: restores messages from a file to their failed queues."""

import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated

import typer

from redrive.cli import job_options, message_options, options
from redrive.cli.look_output import asked
from redrive.cli.output import OutputFormat, Printer
from redrive.errors import RedriveError
from redrive.failures.failed_queue import FailedQueue
from redrive.failures.jobs.job_record import JobRecord
from redrive.failures.jobs.restore_target import (
    RestoreTarget,
    digests_in,
    missing_from,
    place_of,
    restored,
)
from redrive.failures.message.failed_message import FailedMessage
from redrive.failures.queue.snapshot import Snapshot
from redrive.failures.store.filter import OpenFilter
from redrive.number_text import count_of
from redrive.pubsub.url import BrokerURL


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
    duplicates: Annotated[
        bool,
        typer.Option(
            "--duplicates",
            help="Also restore messages that are in their queue already, which duplicates them.",
        ),
    ] = False,
    dry_run: options.DryRun = False,
    yes: options.Yes = False,
    *,
    broker: options.FamilyOptions,
    output: options.Output = OutputFormat.TABLE,
) -> None:
    """Restore failed messages from a file.

    Each message goes back into the failed queue that it came from, unless it is there already. The
    command prints how many there are, and asks. The file stays.

    \b
    Example:
      redrive failed restore gone.jsonl
    """
    printer = Printer(output)
    kept = Snapshot(file)
    with OpenFilter(message_options.filter_of(where, None)) as open_filter:
        in_file, _ = asked(
            printer,
            kept,
            str(file),
            lambda look: Counter(map(place_of, look.matching(open_filter))),
        )
        there = {
            place: _digests_in(printer, _failed_queue_at(place, broker), dry_run=dry_run)
            for place in sorted(in_file)
        }

        def messages(place: RestoreTarget, *, twice: bool) -> Iterator[FailedMessage]:
            of_place = (one for one in open_filter.of(kept.browse()) if place_of(one) == place)
            found = there[place]
            return of_place if twice or not found else missing_from(found, of_place, broker.family)

        already: dict[RestoreTarget, int | None] = {}
        planned: dict[RestoreTarget, int] = {}
        for place, found in there.items():
            new = sum(1 for _ in messages(place, twice=False))
            already[place] = None if found is None else in_file[place] - new
            planned[place] = in_file[place] if duplicates else new
            _tell(printer, place, already[place], twice=duplicates)
        sent: dict[RestoreTarget, int] = {}
        if any(planned.values()) and not dry_run:
            what = ", ".join(
                f"{count:,} into {place.queue}" for place, count in planned.items() if count
            )
            twice = duplicates and any(already.values())
            if not printer.confirm(
                f"Restore {what}{', some of them twice' if twice else ''}?", yes=yes
            ):
                printer.note("Nothing was restored.")
                raise typer.Exit(1)
            with job_options.opened_journal(printer, journal, broker.url) as opened:
                for place, count in planned.items():
                    if not count:
                        continue
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
                    with printer.progress(f"restoring into {place.queue}", count) as done:
                        chosen = _counted(messages(place, twice=duplicates), done)
                        deliveries = (message.delivery for message in chosen)
                        sent[place] = restored(
                            opened, job, _failed_queue_at(place, broker), deliveries
                        )
    printer.result(
        {
            "file": str(file),
            "messages": in_file.total(),
            "there_already": {place.name: count for place, count in already.items()},
            "restored": {place.name: count for place, count in sent.items()},
        }
    )
    if not in_file:
        printer.say(f"No message in {file} matches.")
    for place, count in planned.items():
        if dry_run:
            printer.say(f"{count_of(count, 'message')} would be restored into {place.queue}.")
        elif count:
            printer.say(
                f"{sent[place]:,} of {count_of(count, 'message')} restored into {place.queue}."
            )
    if not dry_run and sum(sent.values()) < sum(planned.values()):
        raise typer.Exit(1)


def _failed_queue_at(place: RestoreTarget, broker: options.FamilyOptions) -> FailedQueue:
    return FailedQueue(
        broker.url,
        place.name,
        broker.family,
        management_url=broker.management_url,
        literal=place.is_literal,
    )


def _digests_in(printer: Printer, failed: FailedQueue, *, dry_run: bool) -> Counter[bytes] | None:
    """Count the messages of a failed queue by their digests; None if it can't be read."""
    try:
        return digests_in(failed)
    except RedriveError as error:
        if not dry_run:
            raise
        printer.note(
            f"Can't tell how many of them are there already: {str(error).partition(chr(10))[0]}"
        )
        return None


def _tell(printer: Printer, place: RestoreTarget, already: int | None, *, twice: bool) -> None:
    """Say how many messages are in their queue already, and what becomes of them."""
    if already:
        verb = "is" if already == 1 else "are"
        them = "it" if already == 1 else "them"
        printer.note(
            f"{count_of(already, 'message')} of this file {verb} in {place.queue} already"
            + (
                f": --duplicates restores {them} once more."
                if twice
                else f" and {verb} skipped; --duplicates restores {them} once more."
            )
        )


def _counted(
    messages: Iterator[FailedMessage], done: Callable[[int], None]
) -> Iterator[FailedMessage]:
    for number, message in enumerate(messages, 1):
        yield message
        done(number)
