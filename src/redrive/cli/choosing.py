"""Which failed messages a command is about: of a queue or of a file, and those among them that people mean."""

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer

from redrive.cli.output import Printer, count_of
from redrive.failures.selection import Selection
from redrive.failures.snapshot import Snapshot
from redrive.pubsub.blocking.failed import FailedQueue
from redrive.pubsub.message import FailedMessage
from redrive.topology.names import failed_queue

LOOK_AT = 100_000

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
LookAt = Annotated[int, typer.Option("--look-at", metavar="N", min=1, help="How many messages are looked at, from the head of the queue.")]


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
        self.total = self._source.depth()

    def browse(self, limit: int | None = None) -> Iterator[FailedMessage]:
        """Its messages, at most so many."""
        return self._source.browse(limit)

    def say_what_was_looked_at(self, printer: Printer, looked_at: int) -> None:
        """Says so where that was not all."""
        if looked_at < self.total:
            printer.note(f"Looked at the first {looked_at:,} of {count_of(self.total, 'message')}; --look-at {self.total} looks at all.")
