"""Options that say which failed messages a command works on: a queue or a file, and a filter or
groups."""

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Annotated, TypeVar

import typer

from redrive.cli import completion
from redrive.cli.index_options import IndexOptions
from redrive.cli.look_output import OnShown, asked, showing
from redrive.cli.options import SourceOptions
from redrive.cli.output import Printer
from redrive.errors import ConfigurationError
from redrive.failures.failed_queue import FailedQueue
from redrive.failures.queue.failed_queue_base import consumers_of, source_of
from redrive.failures.queue.snapshot import Snapshot
from redrive.failures.store.filter import Filter
from redrive.failures.store.look import Look, NothingFound
from redrive.number_text import count_of
from redrive.pubsub.reports import LookProgress

T = TypeVar("T")

QueueOrFile = Annotated[
    str,
    typer.Argument(
        metavar="QUEUE",
        help="The main queue's name, such as ucenter@user, any dead-letter queue's, or a file that "
        "a snapshot wrote: .parquet, .jsonl or .duckdb.",
        autocompletion=completion.queues,
    ),
]
Where = Annotated[
    str | None,
    typer.Option(
        "--where",
        metavar="SQL",
        show_default=False,
        help="Only messages that match this filter: error_type = 'KeyError' and retries > 2",
    ),
]
Limit = Annotated[
    int | None,
    typer.Option(
        "--limit",
        metavar="N",
        min=1,
        help="How many messages at most, oldest first. Default: all.",
        show_default=False,
    ),
]
Group = Annotated[
    list[str] | None,
    typer.Option(
        "--group",
        metavar="ID",
        show_default=False,
        help="Only this group of `redrive failed groups`. Can be repeated.",
        autocompletion=completion.groups,
    ),
]
File = Annotated[
    Path,
    typer.Option("-o", "--file", metavar="FILE", help="A new file: .parquet, .jsonl or .duckdb."),
]
Archive = Annotated[
    Path | None,
    typer.Option(
        "--archive",
        metavar="PATH",
        show_default=False,
        help="Take the messages from a file that a snapshot or discard wrote, or from an archive "
        "of `redrive spark`. No broker is needed.",
    ),
]
LookAt = Annotated[
    int | None,
    typer.Option(
        "--look-at",
        metavar="N",
        min=1,
        show_default=False,
        help="Read only the N oldest messages. Default: all.",
    ),
]


def failed_queue_of(printer: Printer, queue: str, broker: SourceOptions) -> FailedQueue:
    """Return the failed queue of a subscription, or the dead-letter queue of this name; print a
    note if redrive did not make it."""
    failed = FailedQueue(
        broker.url,
        queue,
        broker.family,
        management_url=broker.management_url,
        literal=broker.literal,
    )
    source = source_of(failed)
    if source.main is None:
        printer.note(f"Taking {source.queue}, {source.description}.")
        consumers = consumers_of(failed)
        if consumers:
            what = "consumer takes" if consumers == 1 else "consumers take"
            printer.note(f"{consumers:,} {what} messages from it as well.")
    return failed


def filter_of(where: str | None, groups: list[str] | None) -> Filter:
    """Return the filter for these options."""
    return Filter(where, groups=tuple(groups or ()))


class Source:
    """A failed queue, or a snapshot of one."""

    def __init__(
        self, printer: Printer, name: str, broker: SourceOptions, *, is_queue: bool = False
    ) -> None:
        self._printer = printer
        self.is_file = not is_queue and Snapshot.is_meant(name)
        self._source: FailedQueue | Snapshot
        if self.is_file:
            self.name, self._source = name, Snapshot(Path(name))
        else:
            failed = failed_queue_of(printer, name, broker)
            self.name, self._source = source_of(failed).queue, failed

    @property
    def is_empty(self) -> bool:
        """Whether it is a queue without messages, including those that somebody else holds."""
        count = self._source.count() if isinstance(self._source, FailedQueue) else None
        return count is not None and count.messages == 0 and count.held == 0

    def ask(
        self,
        question: Callable[[Look], T],
        look_at: int | None = None,
        *,
        by_time: bool = False,
        index: IndexOptions | None = None,
        on_shown: OnShown = lambda _: None,
    ) -> tuple[T, Look]:
        """Return the answer to a question about a look at its messages, and the look."""

        def begun(progress: LookProgress) -> None:
            if by_time and progress.wanted < progress.total:
                raise ConfigurationError(
                    "a filter by time would miss the newest messages: only "
                    f"{progress.wanted:,} of {count_of(progress.total, 'message')} would be read",
                    "Leave out --look-at to read all of them.",
                )

        return asked(
            self._printer,
            self._source,
            self.name,
            question,
            look_at,
            begun=begun,
            recall=None if index is None else index.recall(self._printer),
            on_shown=on_shown,
        )

    def snapshot(self, file: Path, filter_: Filter) -> int:
        """Copy the messages that match a filter to a file; return how many."""
        with showing(self._printer, self.name) as told:
            return self._source.snapshot(file, filter_, on_progress=told)


def check_groups(groups: Iterable[str] | None, matching: int, source: str) -> None:
    """Check that messages were found, if groups were named."""
    named = list(groups or ())
    if named and not matching:
        which = f"group {named[0]}" if len(named) == 1 else f"one of the groups {', '.join(named)}"
        raise NothingFound(
            f"no message of {source!r} that matches is in {which}\nSee: redrive failed groups"
        )


def not_looked_at(look: Look) -> str:
    """Return a sentence about the messages that were not read; empty if all were."""
    if not look.is_partial:
        return ""
    return (
        f" Only the {look.looked_at:,} oldest of {count_of(look.total, 'message')} were read; "
        f"leave out --look-at to read the {look.total - look.looked_at:,} newer ones too."
    )
