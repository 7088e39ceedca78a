"""The options that say which failed messages a command works on: a queue or a file, and a filter
or groups."""

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer

from redrive.cli import completion
from redrive.cli.index_options import IndexedQueue, IndexOptions
from redrive.cli.look_output import Look, looking
from redrive.cli.options import SourceOptions
from redrive.cli.output import Printer, count_of
from redrive.errors import ConfigurationError
from redrive.failures.failed_message import FailedMessage
from redrive.failures.failed_queue import FailedQueue
from redrive.failures.filter import Filter
from redrive.failures.snapshot import Snapshot
from redrive.pubsub.reports import LookProgress
from redrive.pubsub.url import BrokerURL

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
    """Return the failed queue of a subscription, or the dead-letter queue, that people have named;
    say which, if redrive did not make it.

    Raises:
        ConfigurationError: there is no such queue.
        BrokerUnavailable, PermissionDenied: the broker can't be reached.
    """
    failed = FailedQueue(
        broker.url,
        queue,
        broker.family,
        management_url=broker.management_url,
        literal=broker.literal,
    )
    source = failed.source()
    if source.main is None:
        printer.note(f"Taking {source.queue}, a dead-letter queue that redrive did not make.")
        consumers = failed.consumers()
        if consumers:
            what = "consumer takes" if consumers == 1 else "consumers take"
            printer.note(f"{consumers:,} {what} messages from it as well.")
    return failed


def filter_of(where: str | None, groups: list[str] | None) -> Filter:
    """Return the filter that these options make."""
    return Filter(where, groups=tuple(groups or ()))


class Source:
    """A failed queue, or a snapshot of one.

    Args:
        printer: where to show what was taken, and the progress.
        name: the queue's name, or a file.
        broker: where the queue is.
        is_queue: whether it is no file, whatever its name.

    Raises:
        ConfigurationError: there is no such queue.
    """

    def __init__(
        self, printer: Printer, name: str, broker: SourceOptions, *, is_queue: bool = False
    ) -> None:
        self._printer = printer
        self.is_file = not is_queue and Snapshot.is_meant(name)
        self._url = BrokerURL.parse(broker.url)
        self._source: FailedQueue | Snapshot
        if self.is_file:
            self.name, self._source = name, Snapshot(Path(name))
        else:
            failed = failed_queue_of(printer, name, broker)
            self.name, self._source = failed.source().queue, failed

    @property
    def is_empty(self) -> bool:
        """Whether it is a queue that has no message, nor has somebody else one of it."""
        count = self._source.count() if isinstance(self._source, FailedQueue) else None
        return count is not None and count.messages == 0 and count.held == 0

    @contextlib.contextmanager
    def looking(
        self,
        limit: int | None = None,
        *,
        by_time: bool = False,
        index: IndexOptions | None = None,
    ) -> Iterator[tuple[Iterator[FailedMessage], Look]]:
        """Give its messages and the look at them.

        Args:
            limit: how many messages at most.
            by_time: whether a filter asks when they failed.
            index: whether what an earlier look has found may answer, and what this one finds is
                kept; None for neither.

        Raises:
            ConfigurationError: a filter asks when they failed, and the newest would be left out.
        """

        def begun(progress: LookProgress) -> None:
            if by_time and progress.wanted < progress.total:
                raise ConfigurationError(
                    "a filter by time would miss the newest messages: only "
                    f"{progress.wanted:,} of {count_of(progress.total, 'message')} would be read",
                    "Leave out --look-at to read all of them.",
                )

        printer = self._printer
        if index is None or not isinstance(self._source, FailedQueue):
            with looking(printer, self._source, self.name, limit, begun) as found:
                yield found
            return
        queue = IndexedQueue(self._url, self._source, self.name)
        with index.answering(printer, queue, limit, begun) as answer:
            if answer is not None:
                yield answer
                return
        with index.keeping(printer, queue, limit) as keeping:
            with looking(printer, self._source, self.name, limit, begun) as (messages, look):
                yield keeping.noted(messages), look
            keeping.end(look)


def facts_of(look: Look) -> dict[str, object]:
    """Return what was read, as JSON values; `missing` is what others held, null if their number is
    unknown. `as_of` is when the look ended, and `depth_now` what the queue has since, if an earlier
    look answers."""
    return {
        "total": look.total,
        "looked_at": look.looked_at,
        "missing": look.missing,
        "answered_from": look.answered_from,
        "as_of": None if look.as_of is None else look.as_of.isoformat(),
        "depth_now": look.depth_now,
    }


def not_looked_at(look: Look) -> str:
    """Return a sentence about the messages that were not read; empty if all were."""
    if not look.is_partial:
        return ""
    return (
        f" Only the {look.looked_at:,} oldest of {count_of(look.total, 'message')} were read; "
        f"leave out --look-at to read the {look.total - look.looked_at:,} newer ones too."
    )
