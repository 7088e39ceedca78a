"""`redrive failed purge`: deletes all messages of a failed queue."""

import typer

from redrive.cli import message_options, options
from redrive.cli.output import OutputFormat, Printer
from redrive.failures.queue.failed_queue_base import source_of
from redrive.number_text import count_of


@options.expanded
def purge(
    queue: options.FailedQueueName,
    dry_run: options.DryRun = False,
    yes: options.Yes = False,
    *,
    broker: options.SourceOptions,
    output: options.Output = OutputFormat.TABLE,
) -> None:
    """Delete all failed messages of a queue for good.

    It prints how many there are and asks. They can't be restored: `redrive failed discard` writes
    them to a file first.

    \b
    Example:
      redrive failed purge ucenter@user
    """
    printer = Printer(output)
    failed = message_options.failed_queue_of(printer, queue, broker)
    source = source_of(failed)
    count = failed.depth()
    name = source.queue
    if dry_run or not count:
        printer.result({"queue": queue, "messages": count, "deleted": 0})
        printer.say(
            f"{count_of(count, 'message')} of {name} would be deleted for good."
            if count
            else f"{name} is empty."
        )
        return
    if not printer.confirm(f"Delete {count_of(count, 'message')} of {name} for good?", yes=yes):
        printer.note("Nothing was deleted.")
        raise typer.Exit(1)
    deleted = failed.purge()
    printer.result({"queue": queue, "messages": count, "deleted": deleted})
    printer.say(f"{count_of(deleted, 'message')} deleted from {name}.")
