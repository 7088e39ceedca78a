"""`redrive failed snapshot`, `discard`, `expire` and `restore`: failed messages that go to a file, and come back."""

import uuid
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer

from redrive.cli import choosing, messages, options, sending
from redrive.cli.finding import find_some
from redrive.cli.interrupting import interruptible
from redrive.cli.looking import looked_at, looking
from redrive.cli.output import Form, Printer, count_of
from redrive.errors import ConfigurationError, RedriveError
from redrive.failures.journal import Journal
from redrive.failures.record import Job, State
from redrive.failures.selection import Chooser, Selection
from redrive.failures.shared_ids import SharedIds
from redrive.failures.snapshot import Snapshot
from redrive.pubsub.blocking.failed import FailedQueue
from redrive.pubsub.blocking.requeue import Choose
from redrive.pubsub.config import BrokerURL
from redrive.pubsub.message import FailedMessage
from redrive.topology import moves
from redrive.topology.digest import digest_of
from redrive.topology.durations import duration_of
from redrive.topology.headers import Delivery
from redrive.topology.names import ExchangeFamily, failed_queue, family_of

_INTERRUPTED = 130
File = Annotated[Path, typer.Option("-o", "--file", metavar="FILE", help="A new file: .parquet, .jsonl or .duckdb.")]
Reason = Annotated[str, typer.Option("--reason", metavar="TEXT", help="Why, for the journal.", show_default=False)]


def snapshot(
    source: choosing.QueueOrFile,
    file: File,
    where: choosing.Where = None,
    groups: choosing.Group = None,
    management_url: options.ManagementUrl = None,
    url: options.Url = options.DEFAULT_URL,
    exchange: options.Exchange = options.DEFAULT_EXCHANGE,
    output: options.Output = Form.TABLE,
) -> None:
    """Copy failed messages to a file, byte for byte; they stay where they are.

    Every command that looks at a queue looks at such a file too, and `failed restore` brings it back.

    \b
    Example:
      redrive failed snapshot ucenter@user -o incident.parquet
    """
    printer = Printer(output)
    kept = Snapshot(file)
    with Chooser(choosing.selection_of(where, groups)) as chooser:
        opened = choosing.Source(source, url, exchange, management_url)
        with opened.looking(printer) as (messages, _):
            count = kept.write(chooser.of(messages))
    printer.result({"source": opened.name, "file": str(file), "messages": count})
    printer.say(f"{count_of(count, 'message')} of {opened.name} copied to {file}.")


def discard(
    queue: options.Queue,
    file: File,
    where: choosing.Where = None,
    groups: choosing.Group = None,
    ids: Annotated[
        list[str] | None,
        typer.Option("--id", metavar="ID", help="Only this message. May be given several times.", show_default=False),
    ] = None,
    reason: Reason = "",
    journal: sending.JournalFile = None,
    dry_run: options.DryRun = False,
    yes: options.Yes = False,
    management_url: options.ManagementUrl = None,
    url: options.Url = options.DEFAULT_URL,
    exchange: options.Exchange = options.DEFAULT_EXCHANGE,
    output: options.Output = Form.TABLE,
) -> None:
    """Delete failed messages, after they were written to a file.

    It says how many there are, and asks. `failed restore FILE` brings them back.

    \b
    Example:
      redrive failed discard ucenter@user --group 3f2a -o gone.jsonl
    """
    printer = Printer(output)
    failed = FailedQueue(url, queue, exchange, management_url=management_url)
    selection = choosing.selection_of(where, groups)
    if ids:
        chosen = looked_at(printer, failed, failed_queue(queue), lambda messages: find_some(messages, ids, failed_queue(queue)))
        selection = replace(selection, digests=frozenset(message.digest for message in chosen))
    job = Job(str(uuid.uuid4()), "discard", queue, BrokerURL.parse(url).address, {"selection": selection.as_json()}, reason=reason)
    _move_out(printer, failed, job, selection, file, journal, dry_run=dry_run, yes=yes)


def expire(
    queue: options.Queue,
    older_than: Annotated[str, typer.Option("--older-than", metavar="DURATION", help="Set aside longer ago than this: 30d, 12h.")],
    file: Annotated[Path, typer.Option("--to", metavar="FILE", help="A new file: .parquet, .jsonl or .duckdb.")],
    journal: sending.JournalFile = None,
    dry_run: options.DryRun = False,
    yes: options.Yes = False,
    management_url: options.ManagementUrl = None,
    url: options.Url = options.DEFAULT_URL,
    exchange: options.Exchange = options.DEFAULT_EXCHANGE,
    output: options.Output = Form.TABLE,
) -> None:
    """Move failed messages that are too old out of their queue, into a file.

    A message of a peer that does not say when it was set aside stays.

    \b
    Example:
      redrive failed expire ucenter@user --older-than 30d --to old.parquet
    """
    failed = FailedQueue(url, queue, exchange, management_url=management_url)
    try:
        before = datetime.now(UTC) - duration_of(older_than)
    except OverflowError as error:
        raise ConfigurationError(f"{older_than} ago is before there were dates", "Give a shorter duration.") from error
    selection = Selection(f"failed_at < TIMESTAMPTZ '{before.isoformat()}'")
    job = Job(str(uuid.uuid4()), "expire", queue, BrokerURL.parse(url).address, {"selection": selection.as_json()})
    _move_out(Printer(output), failed, job, selection, file, journal, dry_run=dry_run, yes=yes)


def restore(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A file that snapshot, discard or expire has made.")],
    where: choosing.Where = None,
    reason: Reason = "",
    journal: sending.JournalFile = None,
    dry_run: options.DryRun = False,
    yes: options.Yes = False,
    url: options.Url = options.DEFAULT_URL,
    exchange: options.Exchange = options.DEFAULT_EXCHANGE,
    output: options.Output = Form.TABLE,
) -> None:
    """Set the messages of a file aside again, in the failed queues that they came from.

    It says how many there are, and how many of them are there already, and asks. The file stays: restoring it twice makes each message
    twice.

    \b
    Example:
      redrive failed restore gone.jsonl
    """
    printer = Printer(output)
    kept = Snapshot(file)
    with Chooser(choosing.selection_of(where, None)) as chooser:
        with looking(printer, kept, str(file)) as (found, _):
            queues = Counter(message.queue for message in chooser.of(found))
        what = ", ".join(f"{count:,} into {failed_queue(queue)}" for queue, count in sorted(queues.items()))
        there = {
            queue: _there_already(
                printer,
                FailedQueue(url, queue, exchange),
                (message for message in chooser.of(kept.browse()) if message.queue == queue),
                family_of(exchange),
                dry_run=dry_run,
            )
            for queue in sorted(queues)
        }
        restored: dict[str, int] = {}
        for queue, count in there.items():
            if count:
                printer.note(
                    f"{count_of(count, 'message')} of this file {_are(count)} in {failed_queue(queue)} already, and would be there twice."
                )
        if queues and not dry_run:
            if not printer.confirm(f"Put {what}{', though some are there already' if any(there.values()) else ''}?", yes=yes):
                printer.note("Nothing was restored.")
                raise typer.Exit(1)
            with Journal(journal) as opened:
                for queue, count in sorted(queues.items()):
                    job = Job(
                        str(uuid.uuid4()), "restore", queue, BrokerURL.parse(url).address, reason=reason, planned=count, file=str(file)
                    )
                    mine = (message for message in chooser.of(kept.browse()) if message.queue == queue)
                    with printer.progress(f"restoring into {failed_queue(queue)}", count) as done:
                        deliveries = (message.delivery for message in _counted(mine, done))
                        restored[queue] = _restore(opened, job, FailedQueue(url, queue, exchange), deliveries)
    printer.result({"file": str(file), "messages": queues.total(), "there_already": there, "restored": restored})
    if not queues:
        printer.say(f"{file} holds no such message.")
    for queue, count in sorted(queues.items()):
        printer.say(
            f"{count_of(count, 'message')} would be set aside in {failed_queue(queue)}."
            if dry_run
            else _restored(queue, restored[queue], count)
        )
    if not dry_run and sum(restored.values()) < queues.total():
        raise typer.Exit(1)


def _there_already(
    printer: Printer, failed: FailedQueue, messages: Iterable[FailedMessage], exchanges: ExchangeFamily, *, dry_run: bool
) -> int | None:
    """How many messages of a failed queue are in a file, as they are there or as they were restored before; None where nobody can tell."""
    try:
        if not failed.depth():
            return 0
        digests = {bytes.fromhex(digest) for message in messages for digest in (message.digest, _digest_restored(message, exchanges))}
        return sum(bytes.fromhex(message.digest) in digests for message in failed.browse())
    except RedriveError as error:
        if not dry_run:
            raise
        printer.note(f"Whether they are there already can't be asked: {str(error).partition(chr(10))[0]}")
        return None


def _digest_restored(message: FailedMessage, exchanges: ExchangeFamily) -> str:
    """The digest that a message has once it was restored: what can't travel is in its headers then."""
    publish = moves.restore(message.delivery, exchanges, frame_max=0)
    return digest_of(publish.routing_key, publish.properties.encode(), publish.body)


def _are(count: int) -> str:
    return "is" if count == 1 else "are"


def _restored(queue: str, done: int, count: int) -> str:
    return f"{done:,} of {count_of(count, 'message')} set aside again in {failed_queue(queue)}."


def _restore(journal: Journal, job: Job, failed: FailedQueue, deliveries: Iterator[Delivery]) -> int:
    job = journal.begin(job)
    try:
        report = failed.restore(deliveries)
    except RedriveError as error:
        journal.update(replace(job, state=State.FAILED, problem=str(error).partition("\n")[0]))
        raise
    journal.update(replace(job, state=State.DONE, sent=report.confirmed, not_sent=len(report.failed)))
    return report.confirmed


def _move_out(
    printer: Printer,
    failed: FailedQueue,
    job: Job,
    selection: Selection,
    file: Path,
    journal: Path | None,
    *,
    dry_run: bool,
    yes: bool,
) -> None:
    """Writes what is chosen to a file that is on the disk before the first message is deleted; deletes exactly what the file has."""
    kept, source = Snapshot(file), failed_queue(job.queue)
    with Chooser(selection) as chooser:
        shared_ids = SharedIds()
        count = looked_at(printer, failed, source, lambda messages: sum(1 for _ in shared_ids.noted(chooser.of(messages))))
        messages.tell_shared_ids(printer, len(shared_ids))
        if dry_run or not count:
            printer.result(_json_of(job, file, shared_ids, count, 0))
            printer.say(f"{count_of(count, 'message')} of {source} would be written to {file}, and deleted from the queue.")
            return
        if not printer.confirm(f"Move {count_of(count, 'message')} out of {source} into {file}?", yes=yes):
            printer.note("Nothing was deleted.")
            raise typer.Exit(1)
        with Journal(journal) as opened:
            job = opened.begin(replace(job, planned=count, file=str(file)))
            chosen = _Chosen()
            with interruptible() as cancel:
                try:
                    written = looked_at(printer, failed, source, lambda found: kept.write(chosen.noted(chooser.of(found))))
                    with printer.progress("deleting", written) as done:
                        report = failed.discard(chosen.again(), progress=lambda so_far: done(so_far.requeued), cancel=cancel)
                except BaseException as error:
                    opened.update(replace(job, state=State.FAILED, problem=(str(error) or "interrupted").partition("\n")[0]))
                    raise
            opened.update(replace(job, state=State.INTERRUPTED if report.cancelled else State.DONE, sent=report.requeued))
    printer.result(_json_of(job, file, shared_ids, written, report.requeued))
    printer.say(f"{count_of(written, 'message')} written to {file}, {report.requeued:,} deleted from {source}.")
    if report.cancelled:
        printer.say(f"Stopped: the rest is in {source}, and in {file} too.", "yellow")
        raise typer.Exit(_INTERRUPTED)


class _Chosen:
    """The messages that were written to a file, to be found once more in their queue."""

    def __init__(self) -> None:
        self._digests: Counter[bytes] = Counter()

    def noted(self, messages: Iterable[FailedMessage]) -> Iterator[FailedMessage]:
        """The messages, each of which is noted."""
        for message in messages:
            self._digests[bytes.fromhex(message.digest)] += 1
            yield message

    def again(self) -> Choose:
        """Picks each as often as it was noted: a peer's messages may be the same byte for byte. Not by its id, which may be made up."""
        left = Counter(self._digests)

        def choose(messages: Sequence[FailedMessage]) -> list[bool]:
            picked = []
            for message in messages:
                digest = bytes.fromhex(message.digest)
                picked.append(left[digest] > 0)
                if picked[-1]:
                    left[digest] -= 1
            return picked

        return choose


def _counted(messages: Iterator[FailedMessage], done: Callable[[int], None]) -> Iterator[FailedMessage]:
    for number, message in enumerate(messages, 1):
        yield message
        done(number)


def _json_of(job: Job, file: Path, shared_ids: SharedIds, written: int, deleted: int) -> dict[str, object]:
    return {
        "queue": job.queue,
        "file": str(file),
        "shared_ids": len(shared_ids),
        "written": written,
        "deleted": deleted,
        "job": job.id if deleted else None,
    }
