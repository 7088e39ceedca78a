"""What can be asked of failed messages, wherever they are: in a queue, or in a file."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Generator
from contextlib import AbstractContextManager
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from redrive.errors import ConfigurationError
from redrive.failures.columns import BY_NAME, Column
from redrive.failures.failed_message import FailedMessage
from redrive.failures.filter import Filter, OpenFilter, Predicate
from redrive.failures.groups import Group
from redrive.failures.kept_messages import BodyNotKept, IndexUnusable
from redrive.failures.look import CachePolicy, Look, QueryResult
from redrive.failures.look_reporter import OnLook
from redrive.failures.look_store import anew
from redrive.failures.snapshot_file import check_path, write_messages
from redrive.topology.durations import Duration, duration_of

if TYPE_CHECKING:
    from redrive.failures.database import Database

T = TypeVar("T")
Where = Filter | str | Predicate | None


class MessageSource(ABC):
    """Failed messages that can be asked, and stay where they are."""

    @abstractmethod
    def _look(
        self,
        look_at: int | None = None,
        *,
        recall: CachePolicy | None = None,
        on_progress: OnLook | None = None,
        patience: Duration | None = None,
    ) -> AbstractContextManager[Look]:
        """Look at the messages for as long as the block."""

    def messages(
        self,
        where: Where = None,
        limit: int | None = None,
        *,
        look_at: int | None = None,
        on_progress: OnLook | None = None,
    ) -> Generator[FailedMessage, None, None]:
        """The messages that a filter means, from the oldest on. Each stays where it is.

        A queue is held while they are asked for, as `FailedQueue.browse` says: take them out of the
        iterator, with `list` or a short loop, before anything slow is done with them.

        Args:
            where: which: an expression of the filter language, such as `error_type = 'KeyError'`,
                a function that says it of a message, or a `Filter`; None for all. An expression
                needs `redrive[cli]`.
            limit: how many at most.
            look_at: how many of the oldest are read at most; None for all.
            on_progress: told about ten times a second how far it is.

        Raises:
            ConfigurationError: there are no such messages, or the expression can't be used.
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
        """What the messages have failed for, the most frequent cause first: the error's type, its
        message without what differs, and the innermost frame of the service's own code.

        Args:
            where: of which messages, as for `messages`.
            by: a column to group by in place of the cause.
            look_at: how many of the oldest are read at most; None for all.
            max_age: how old an earlier look may be that answers, from this machine's index of
                looks; a new one is kept there. None looks at the messages, and keeps nothing.
            on_progress: told about ten times a second how far it is.

        Raises:
            ConfigurationError: there are no such messages, no such column, or the expression can't
                be used.
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
        """The answer to a SELECT from the table `failed`, whose rows are the messages: DuckDB's SQL
        over the columns that `redrive failed columns` lists, without access to files or the
        network. It needs `redrive[cli]`.

        Args:
            sql: the query.
            look_at: how many of the oldest are read at most; None for all.
            max_age: how old an earlier look may be that answers, as for `causes`.
            on_progress: told about ten times a second how far it is.

        Raises:
            ConfigurationError: it is no SELECT, or can't be run; or there are no such messages.
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
        """Copies messages to a file, byte for byte; they stay where they are.

        Args:
            path: a new file: `.parquet`, `.jsonl` or `.duckdb`.
            where: which messages, as for `messages`.
            on_progress: told about ten times a second how far it is.

        Returns:
            How many; they are on the disk.

        Raises:
            ConfigurationError: there is such a file, or it can't be written; or there are no such
                messages.
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
    """What a function finds in a look, and the look. Where an earlier look turns out not to
    answer it, the messages themselves are looked at.

    Args:
        source: the messages.
        question: is given the look.
        look_at: how many of the oldest; None for all that are there when it begins.
        recall: how an earlier look may answer; None looks at the messages themselves, and keeps
            nothing.
        on_progress: told about ten times a second how far it is.
        patience: how long another's look is waited for.
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
                "Ask by other columns, or by the command line, which looks at the queue.",
            ) from error
        recall.on_notice(str(error))
    with source._look(
        look_at, recall=anew(recall), on_progress=on_progress, patience=patience
    ) as look:
        return question(look), look


def open_filter(where: Where) -> OpenFilter:
    """The filter that was given in whichever way, to be entered."""
    return OpenFilter(where if isinstance(where, Filter) else Filter(where))


def column_named(name: str) -> Column:
    """The column of the filter language with this name.

    Raises:
        ConfigurationError: there is none.
    """
    if name not in BY_NAME:
        raise ConfigurationError(
            f"there is no column {name!r}", f"Give one of {', '.join(BY_NAME)}."
        )
    return BY_NAME[name]


def checked_query(sql: str) -> tuple[str, tuple[Column, ...]]:
    """A query without its semicolon, and the columns that it speaks of, at least one.

    Raises:
        ConfigurationError: it is no SELECT, or can't be run; or DuckDB is not installed.
    """
    sql = sql.strip().removesuffix(";")
    with _database() as parser:
        return sql, parser.columns_of_query(sql) or (BY_NAME["failure_id"],)


def _database() -> "Database":
    try:
        from redrive.failures.database import Database
    except ModuleNotFoundError as error:
        raise ConfigurationError(
            "a query needs DuckDB, which is not installed", "pip install 'redrive[cli]'."
        ) from error
    return Database()


def _recall(max_age: Duration | None) -> CachePolicy | None:
    return None if max_age is None else CachePolicy(duration_of(max_age, "max_age"))
