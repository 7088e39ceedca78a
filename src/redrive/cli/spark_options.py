"""Options that only `redrive spark` has. Those that it shares with `redrive failed` are declared
there."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from redrive.cli import completion, guards, job_options, options
from redrive.spark_reprocess.settings import BATCH, LEAST_SHARE, SendSettings
from redrive.topology.rates import rate_of

Queues = Annotated[
    list[str],
    typer.Argument(
        metavar="QUEUE",
        help="The main queues' names, such as ucenter@user, or any dead-letter queues'.",
        autocompletion=completion.queues,
    ),
]
QueuesOrFile = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="QUEUE",
        show_default=False,
        help="The main queues' names, such as ucenter@user, or any dead-letter queues'; none with "
        "--from.",
        autocompletion=completion.queues,
    ),
]
From = Annotated[
    Path | None,
    typer.Option(
        "--from",
        metavar="FILE",
        show_default=False,
        help="Take the messages of a file that redrive failed snapshot, discard or expire wrote, "
        "instead of those in failed queues.",
    ),
]
ArchivePlace = Annotated[
    str,
    typer.Option(
        "--archive",
        metavar="PLACE",
        help="Where to keep the messages: a folder, s3a://bucket/folder, hdfs://…",
    ),
]
Master = Annotated[
    str | None,
    typer.Option(
        "--master",
        metavar="URL",
        show_default=False,
        help="Where Spark runs: local[2], spark://host:7077, yarn. Default: this machine, with all "
        "its cores.",
    ),
]
Partitions = Annotated[
    int | None,
    typer.Option(
        "--partitions",
        metavar="N",
        min=1,
        show_default=False,
        help="How many tasks. Default: as many as there are cores.",
    ),
]
Batch = Annotated[
    int,
    typer.Option(
        "--batch",
        metavar="N",
        min=1,
        help="How many messages a task sends before it records what was confirmed. After a crash, "
        "at most these are sent again.",
    ),
]
RunId = Annotated[
    str | None,
    typer.Option(
        "--run",
        metavar="RUN",
        show_default=False,
        help="Which run of the archive. Default: the latest.",
    ),
]
CanaryWait = Annotated[
    str | None, typer.Option("--canary-wait", hidden=True, help="The former name of --watch.")
]
LeastShare = Annotated[
    float,
    typer.Option(
        "--least-share",
        metavar="SHARE",
        min=0,
        max=1,
        help="Stop if less than this share of a task's last messages is confirmed.",
    ),
]
AnotherBroker = Annotated[
    bool,
    typer.Option(
        "--another-broker",
        help="Send to this broker even though the messages came from another one.",
    ),
]
OrderBy = Annotated[
    str | None,
    typer.Option(
        "--order-by",
        metavar="KEY",
        show_default=False,
        help="Send the messages of one key one after another, oldest first: a path such as "
        "$.customer.id, header:NAME or routing_key. Other keys are sent beside them.",
    ),
]
Keep = Annotated[
    bool,
    typer.Option(
        "--keep",
        help="Keep what is not chosen in the archive instead of restoring it to where it came "
        "from.",
    ),
]


@dataclass(frozen=True, slots=True, kw_only=True)
class WayOptions:
    """Options that say where messages are sent."""

    to: options.To = None
    via: options.Via = False
    unchecked: guards.Unchecked = False


@dataclass(frozen=True, slots=True, kw_only=True)
class JournalOptions:
    """Options that name the journal, and the reason to record in it."""

    reason: job_options.Reason = ""
    journal: job_options.JournalFile = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SendOptions:
    """Options that say how fast and how carefully messages are sent."""

    rate: options.Rate = None
    least_share: LeastShare = LEAST_SHARE
    batch: Batch = BATCH
    order_by: OrderBy = None

    @property
    def settings(self) -> SendSettings:
        """These options as settings of the job."""
        return SendSettings(
            rate=None if self.rate is None else rate_of(self.rate),
            batch=self.batch,
            least_share=self.least_share,
        )
