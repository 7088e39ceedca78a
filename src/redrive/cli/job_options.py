"""Options that name a job and its journal."""

import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated

import typer

from redrive.cli import completion, environment
from redrive.cli.options import BrokerOptions
from redrive.cli.output import Printer
from redrive.errors import ConfigurationError
from redrive.failures.jobs.journal import Journal
from redrive.failures.jobs.journal_stream import DEFAULT_MAX_AGE
from redrive.topology.durations import duration_of
from redrive.topology.names import ExchangeFamily

JournalFile = Annotated[
    Path | None,
    typer.Option(
        "--journal",
        metavar="FILE",
        show_default=False,
        help="The local copy of the journal of jobs. Default: one in the user's state directory.",
    ),
]
JobId = Annotated[
    str,
    typer.Argument(
        metavar="ID",
        help="The job's id or its first characters.",
        autocompletion=completion.jobs,
    ),
]

JobExchange = Annotated[
    str | None,
    typer.Option(
        "--exchange",
        metavar="NAME",
        show_default=False,
        help="The main exchange of the exchange family. Default: the job's own.",
    ),
]
JobRetrySuffix = Annotated[
    str | None,
    typer.Option(
        "--retry-suffix",
        metavar="TEXT",
        show_default=False,
        help="The suffix of the retry exchange's name. Default: the job's own.",
    ),
]
JobFailedSuffix = Annotated[
    str | None,
    typer.Option(
        "--failed-suffix",
        metavar="TEXT",
        show_default=False,
        help="The suffix of the failed exchange's name. Default: the job's own.",
    ),
]
Digest = Annotated[
    str | None,
    typer.Option(
        "--digest",
        metavar="TEXT",
        show_default=False,
        help="The digest of the order that you have seen, as jobs show prints it. Required "
        "without a terminal.",
    ),
]
Reason = Annotated[
    str, typer.Option("--reason", metavar="TEXT", help="Why, for the journal.", show_default=False)
]


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedJobOptions(BrokerOptions):
    """Options for the broker of a recorded job, and for an exchange family other than the recorded
    one."""

    exchange: JobExchange = None
    retry_suffix: JobRetrySuffix = None
    failed_suffix: JobFailedSuffix = None

    def over(self, own: ExchangeFamily) -> ExchangeFamily:
        """Return a job's exchange family, with the parts that options override."""
        return replace(
            own,
            main=own.main if self.exchange is None else self.exchange,
            retry_suffix=own.retry_suffix if self.retry_suffix is None else self.retry_suffix,
            failed_suffix=own.failed_suffix if self.failed_suffix is None else self.failed_suffix,
        )


def opened_journal(
    printer: Printer, file: Path | None, url: str, program: str = "command line"
) -> Journal:
    """Return the journal that is shared at a broker; if it can't be shared, a note on stderr says
    so."""
    age = os.environ.get(environment.JOURNAL_AGE_VARIABLE)
    kept = duration_of(age, environment.JOURNAL_AGE_VARIABLE) if age else DEFAULT_MAX_AGE
    bodies = os.environ.get(environment.JOURNAL_BODIES_VARIABLE) or "yes"
    if bodies not in ("yes", "no"):
        raise ConfigurationError(
            f"{environment.JOURNAL_BODIES_VARIABLE} is {bodies!r:.40}", "Give yes or no."
        )
    return Journal(
        url,
        file,
        max_age=kept,
        bodies=bodies == "yes",
        on_notice=printer.note,
        program=program,
    )


def tell_unread(printer: Printer, journal: Journal) -> None:
    """Print how many entries of the shared journal can't be read, if any."""
    unreadable, newer = journal.unread()
    if unreadable:
        printer.note(f"{_entries(unreadable)} of the shared journal can't be read: ignored.")
    if newer:
        printer.note(
            f"{_entries(newer)} of the shared journal can't be read by this version of redrive: a "
            "newer one has written them."
        )


def _entries(number: int) -> str:
    return f"{number:,} entr{'y' if number == 1 else 'ies'}"
