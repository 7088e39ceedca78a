"""`redrive failed snapshot`: copies failed messages to a file."""

from redrive.cli import message_options, options
from redrive.cli.output import OutputFormat, Printer
from redrive.failures.queue.snapshot import Snapshot
from redrive.number_text import count_of


@options.expanded
def snapshot(
    source: message_options.QueueOrFile,
    file: message_options.File,
    where: message_options.Where = None,
    groups: message_options.Group = None,
    *,
    broker: options.SourceOptions,
    output: options.Output = OutputFormat.TABLE,
) -> None:
    """Copy failed messages to a file.

    The copy is exact, and the messages stay in the queue. Every command that reads a failed queue
    reads such a file too; `redrive failed restore` restores its messages to their failed queue.

    \b
    Example:
      redrive failed snapshot ucenter@user -o incident.parquet
    """
    printer = Printer(output)
    Snapshot(file)  # reject an invalid name before reading anything
    opened = message_options.Source(printer, source, broker)
    count = opened.snapshot(file, message_options.filter_of(where, groups))
    printer.result({"source": opened.name, "file": str(file), "messages": count})
    printer.say(f"{count_of(count, 'message')} of {opened.name} copied to {file}.")
