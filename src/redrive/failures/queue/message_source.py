"""Queries over failed messages in a queue or a file."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Generator
from contextlib import AbstractContextManager
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from redrive.errors import ConfigurationError
from redrive.failures.message.columns import BY_NAME, Column
from redrive.failures.message.failed_message import FailedMessage
from redrive.failures.message.groups import Group
from redrive.failures.store.filter import Filter, OpenFilter, Predicate
from redrive.failures.store.kept_messages import BodyNotKept, IndexUnusable
from redrive.failures.store.look import CachePolicy, Look, QueryResult
from redrive.failures.store.look_reporter import OnLook
from redrive.failures.store.look_store import anew
from redrive.failures.store.snapshot_file import check_path, write_messages
from redrive.topology.durations import Duration, duration_of

if TYPE_CHECKING:
    from redrive.failures.store.database import Database

T = TypeVar("T")
Where = Filter | str | Predicate | None


class MessageSource(ABC):
    """A source of failed messages that can be queried. The messages stay where they are."""

    @abstractmethod
    def _look(
        self,
        look_at: int | None = None,
        *,
        recall: CachePolicy | None = None,
        on_progress: OnLook | None = None,
        patience: Duration | None = None,
    ) -> AbstractContextManager[Look]:
        """Look at the messages within the block."""

    def messages(
        self,
        where: Where = None,
        limit: int | None = None,
        *,
        look_at: int | None = None,
        on_progress: OnLook | None = None,
    ) -> Generator[FailedMessage, None, None]:
        """Iterate over the messages that match a filter, oldest first. They stay where they are.

        A queue is held during the iteration, as `FailedQueue.browse` explains: take the messages
        out of the iterator, with `list` or a short loop, before you do anything slow with them.

        Args:
            where: an expression of the filter language, such as `error_type = 'KeyError'`, a
                function that decides for each message, or a `Filter`; None for all. An expression
                needs `redrive[cli]`.
            limit: how many messages to return at most.
            look_at: how many of the oldest messages to read at most; None for all.
            on_progress: called about ten times a second with the progress of the look.

        Raises:
            ConfigurationError: there is no such queue or file, or the expression can't be used.
            BrokerUnavailable: the connection was lost.
        """
        with open_filter(where) as filter_, self._look(look_at, on_progress=on_progress) as look:
            yield from islice(filter_.of(look), None if limit is None else max(0, limit))

    def causes(
        self,
        where: Where = None,
        *,
        by: str = "group_id",
        look_at: int | None = None,
        max_age: Duration | None = None,
        on_progress: OnLook | None = None,
    ) -> list[Group]:
        """Group messages by the cause of their failure, the most frequent cause first.

        A cause is the error's type, its message without the variable parts, and the innermost frame
        of the service's own code.

        Args:
            where: which messages, as for `messages`.
            by: a column to group by instead of the cause.
            look_at: how many of the oldest messages to read at most; None for all.
            max_age: how old an earlier look from this machine's index may be to answer; a new look
                is kept in the index. None reads the messages themselves and keeps nothing.
            on_progress: called about ten times a second with the progress of the look.

        Raises:
            ConfigurationError: there is no such queue or file, no such column, or the expression
                can't be used.
            BrokerUnavailable: the connection was lost.
        """
        column = column_named(by)
        with open_filter(where) as filter_:
            groups, _ = answer_of(
                self,
                lambda look: look.groups(column, filter_),
                look_at,
                recall=_recall(max_age),
                on_progress=on_progress,
            )
        return groups.largest_first

    def query(
        self,
        sql: str,
        *,
        look_at: int | None = None,
        max_age: Duration | None = None,
        on_progress: OnLook | None = None,
    ) -> QueryResult:
        """Return the result of a SELECT from the table `failed`, whose rows are the messages.

        The query is DuckDB's SQL over the columns that `redrive failed columns` lists, without
        access to files or the network. It needs `redrive[cli]`.

        Args:
            sql: the query.
            look_at: how many of the oldest messages to read at most; None for all.
            max_age: how old an earlier look may be to answer, as for `causes`.
            on_progress: called about ten times a second with the progress of the look.

        Raises:
            ConfigurationError: it is not a SELECT, or can't be run; or there is no such queue or
                file.
            BrokerUnavailable: the connection was lost.
        """
        sql, columns = checked_query(sql)
        answer, _ = answer_of(
            self,
            lambda look: look.query(sql, columns),
            look_at,
            recall=_recall(max_age),
            on_progress=on_progress,
        )
        return answer

    def snapshot(
        self, path: Path | str, where: Where = None, *, on_progress: OnLook | None = None
    ) -> int:
        """Copy messages to a file, byte for byte; they stay where they are.

        Args:
            path: a new file: `.parquet`, `.jsonl` or `.duckdb`.
            where: which messages, as for `messages`.
            on_progress: called about ten times a second with the progress of the look.

        Returns:
            How many messages were written; they are safe on disk.

        Raises:
            ConfigurationError: the file exists or can't be written, or there is no such queue or
                file to read from.
            BrokerUnavailable: the connection was lost.
        """
        check_path(Path(path))
        with open_filter(where) as filter_, self._look(on_progress=on_progress) as look:
            return write_messages(Path(path), filter_.of(look))


def answer_of(
    source: MessageSource,
    question: Callable[[Look], T],
    look_at: int | None = None,
    *,
    recall: CachePolicy | None = None,
    on_progress: OnLook | None = None,
    patience: Duration | None = None,
) -> tuple[T, Look]:
    """Answer a question from a look; return the answer and the look.

    If an earlier look turns out to be unable to answer, the messages themselves are read.

    Args:
        source: the messages.
        question: a function that receives the look.
        look_at: how many of the oldest messages to read; None for all that are there at the start.
        recall: how an earlier look may answer; None reads the messages themselves and keeps
            nothing.
        on_progress: called about ten times a second with the progress of the look.
        patience: how long to wait for a look by somebody else.
    """
    try:
        with source._look(
            look_at, recall=recall, on_progress=on_progress, patience=patience
        ) as look:
            return question(look), look
    except IndexUnusable as error:
        assert recall is not None
        if isinstance(error, BodyNotKept) and not recall.or_look:
            raise ConfigurationError(
                str(error).partition(": ")[0],
                "Use other columns, or the command line, which looks at the queue itself.",
            ) from error
        recall.on_notice(str(error))
    with source._look(
        look_at, recall=anew(recall), on_progress=on_progress, patience=patience
    ) as look:
        return question(look), look


def open_filter(where: Where) -> OpenFilter:
    """Make a filter, to be entered as a context manager."""
    return OpenFilter(where if isinstance(where, Filter) else Filter(where))


def column_named(name: str) -> Column:
    """Return the column of the filter language with this name.

    Raises:
        ConfigurationError: there is no such column.
    """
    if name not in BY_NAME:
        raise ConfigurationError(
            f"there is no column {name!r}", f"Give one of {', '.join(BY_NAME)}."
        )
    return BY_NAME[name]


def checked_query(sql: str) -> tuple[str, tuple[Column, ...]]:
    """Return a query without its semicolon, and the columns that it uses, at least one.

    Raises:
        ConfigurationError: it is not a SELECT, or can't be run; or DuckDB is not installed.
    """
    sql = sql.strip().removesuffix(";")
    with _database() as parser:
        return sql, parser.columns_of_query(sql) or (BY_NAME["failure_id"],)


def _database() -> "Database":
    try:
        from redrive.failures.store.database import Database
    except ModuleNotFoundError as error:
        raise ConfigurationError(
            "a query needs DuckDB, which is not installed", "pip install 'redrive[cli]'."
        ) from error
    return Database()


def _recall(max_age: Duration | None) -> CachePolicy | None:
    return None if max_age is None else CachePolicy(duration_of(max_age, "max_age"))
