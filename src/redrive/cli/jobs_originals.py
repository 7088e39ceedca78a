"""`redrive jobs originals`: writes the messages that a job changed to a file, as they were
before."""

from pathlib import Path
from typing import Annotated

import typer

from redrive.cli import job_options, options
from redrive.cli.output import OutputFormat, Printer
from redrive.failures.message.failed_message import FailedMessage
from redrive.failures.queue.snapshot import Snapshot
from redrive.number_text import count_of


@options.expanded
def originals(
    id_: job_options.JobId,
    file: Annotated[
        Path,
        typer.Option(
            "-o", "--file", metavar="FILE", help="A new .parquet, .jsonl or .duckdb file."
        ),
    ],
    journal: job_options.JournalFile = None,
    *,
    broker: options.BrokerOptions,
    output: options.Output = OutputFormat.TABLE,
) -> None:
    """Write the messages a job changed, as they were, to a file.

    `redrive failed restore FILE` restores them to their failed queue.

    \b
    Example:
      redrive jobs originals 3f2a9c1e -o originals.jsonl
    """
    printer = Printer(output)
    with job_options.opened_journal(printer, journal, broker.url) as opened:
        job = opened.job(id_)
        count = Snapshot(file).write(
            FailedMessage(delivery) for delivery in opened.originals(job.id)
        )
        left_out, who = opened.left_out(job.id)
    printer.result({"job": job.id, "file": str(file), "messages": count, "left_out": left_out})
    printer.say(
        f"{count_of(count, 'message')} of job {job.id} written to {file}, as they were before."
    )
    if left_out:
        printer.note(
            f"{count_of(left_out, 'more original')} can't be written: the shared journal is kept "
            f"without bodies, and only the local file of {who} has them."
        )
