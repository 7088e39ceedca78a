"""The options that name a job and the journal it is in."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated

import typer

from redrive.cli import completion
from redrive.cli.options import BrokerOptions
from redrive.failures.job_record import Job
from redrive.topology.names import ExchangeFamily

JournalFile = Annotated[
    Path | None,
    typer.Option(
        "--journal",
        metavar="FILE",
        show_default=False,
        help="The journal of jobs. Default: one in the user's state directory.",
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
Reason = Annotated[
    str, typer.Option("--reason", metavar="TEXT", help="Why, for the journal.", show_default=False)
]


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedJobOptions(BrokerOptions):
    """The options that say where a job's broker is, and its exchange family, if that is not the one
    that the journal has."""

    exchange: JobExchange = None
    retry_suffix: JobRetrySuffix = None
    failed_suffix: JobFailedSuffix = None

    def over(self, own: ExchangeFamily) -> ExchangeFamily:
        """Return a job's own exchange family, with each part that an option names instead.

        Raises:
            ConfigurationError: a name in it is invalid.
        """
        return replace(
            own,
            main=own.main if self.exchange is None else self.exchange,
            retry_suffix=own.retry_suffix if self.retry_suffix is None else self.retry_suffix,
            failed_suffix=own.failed_suffix if self.failed_suffix is None else self.failed_suffix,
        )


def json_of(job: Job) -> dict[str, object]:
    """Return a job as JSON values, a requeue with what became of its messages."""
    if job.kind != "requeue":
        return job.as_json()
    return {**job.as_json(), **job.outcome, "reported_twice": job.reported_twice}
