"""Which failed messages a command is about: of a queue or of a file, and those among them that people mean."""

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer

from redrive.cli.looking import Look, looking
from redrive.cli.output import Printer, count_of
from redrive.errors import ConfigurationError
from redrive.failures.selection import Selection
from redrive.failures.snapshot import Snapshot
from redrive.pubsub.blocking.failed import FailedQueue
from redrive.pubsub.message import FailedMessage
from redrive.pubsub.report import LookProgress
from redrive.topology.names import failed_queue

QueueOrFile = Annotated[
    str,
    typer.Argument(metavar="QUEUE", help="The main queue's name, such as ucenter@user; or a snapshot: a .parquet, .jsonl or .duckdb file."),
]
Where = Annotated[
    str | None,
    typer.Option(
        "--where", metavar="SQL", show_default=False, help="Only messages of which this is true: error_type = 'KeyError' and retries > 2"
    ),
]
Group = Annotated[
    list[str] | None,
    typer.Option("--group", metavar="ID", show_default=False, help="Only this group of `failed groups`. May be given several times."),
]
LookAt = Annotated[
    int | None,
    typer.Option(
        "--look-at", metavar="N", min=1, show_default=False, help="Look only at the oldest so many messages; without it, at all of them."
    ),
]


def selection_of(where: str | None, groups: list[str] | None) -> Selection:
    """What people have given, as a selection of this moment."""
    return Selection(where, groups=tuple(groups or ()))


class Source:
    """A failed queue, or a snapshot of one.

    Args:
        name: what people have given: the main queue's name, or a file.
        failed: the failed queue that it would be.
    """

    def __init__(self, name: str, url: str, exchange: str, management_url: str | None) -> None:
        self.is_file = Snapshot.is_meant(name)
        self.name = name if self.is_file else failed_queue(name)
        self._source = Snapshot(Path(name)) if self.is_file else FailedQueue(url, name, exchange, management_url=management_url)

    @contextlib.contextmanager
    def looking(
        self, printer: Printer, limit: int | None = None, *, by_time: bool = False
    ) -> Iterator[tuple[Iterator[FailedMessage], Look]]:
        """Its messages, at most so many, and the look at them.

        Args:
            printer: where it is shown how far it is.
            limit: how many messages at most.
            by_time: whether a filter asks when they failed.

        Raises:
            ConfigurationError: a filter asks when they failed, and the newest would be left out.
        """

        def begun(progress: LookProgress) -> None:
            if by_time and progress.wanted < progress.total:
                raise ConfigurationError(
                    "a filter by time would leave out the newest: "
                    f"{progress.wanted:,} of {count_of(progress.total, 'message')} would be looked at",
                    "Leave out --look-at: all are looked at then.",
                )

        with looking(printer, self._source, self.name, limit, begun) as found:
            yield found


def facts_of(look: Look) -> dict[str, object]:
    """What was looked at, as JSON values; `missing` is what others held, null for an unknown number."""
    return {"total": look.total, "looked_at": look.looked_at, "missing": look.missing}


def not_looked_at(look: Look) -> str:
    """A sentence about the messages that were not looked at; empty where all were."""
    if not look.is_partial:
        return ""
    return (
        f" Only the {look.looked_at:,} oldest of {count_of(look.total, 'message')} were looked at, and not the "
        f"{look.total - look.looked_at:,} newer; without --look-at, all are."
    )
