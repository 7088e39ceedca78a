"""One look at failed messages: what is asked of them, and what is known of the look itself."""

import heapq
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from itertools import islice
from typing import Literal, NamedTuple, Self

from redrive.errors import ConfigurationError
from redrive.failures.answer_limits import AnswerLimits
from redrive.failures.columns import BY_NAME, Column, row_of_message
from redrive.failures.failed_message import FailedMessage
from redrive.failures.filter import OpenFilter
from redrive.failures.groups import Groups
from redrive.failures.index import MOST_BYTES
from redrive.failures.kept_messages import KeptMessages, grouped, matching
from redrive.failures.message_lookup import find_one, find_some
from redrive.pubsub.reports import LookProgress, LookStage

Notice = Callable[[str], None]
Keep = Callable[[Callable[[int], object]], str]
"""Keeps what a look has found; told how many messages are kept, and returns why none could be."""


@dataclass(frozen=True, slots=True)
class CachePolicy:
    """How an earlier look may answer, and whether what a new one finds is kept.

    Args:
        max_age: how old a look may be that answers; 0 for none, so that a new one is made and kept.
        most_bytes: how much is kept of all queues together.
        on_notice: is told, in a sentence, why nothing was kept, or could be used.
        later: is given what keeps a look, to be called once; None keeps it as soon as it has ended.
        keeps_bodies: whether bodies are kept, too.
        or_look: whether the queue is looked at where no earlier look answers. If not, NothingKept
            is raised then, and the depth of the queue is not asked for either.
    """

    max_age: timedelta
    most_bytes: int = MOST_BYTES
    on_notice: Notice = lambda _: None
    later: Callable[[Keep], None] | None = None
    or_look: bool = True
    keeps_bodies: bool = True


class NothingKept(ConfigurationError):
    """No earlier look answers, and the queue was not to be looked at."""


class QueryResult(NamedTuple):
    """The answer to a query.

    Args:
        columns: the names of its columns.
        rows: its rows, as JSON values by these names.
    """

    columns: list[str]
    rows: list[dict[str, object]]


class FirstMessages(NamedTuple):
    """Some messages of many.

    Args:
        messages: those that were asked for.
        matching: how many there are in all.
    """

    messages: list[FailedMessage]
    matching: int


@dataclass(slots=True)
class Look(Iterator[FailedMessage]):
    """A look at the messages of a failed queue or of a file, from the oldest on. What is asked of
    it reads them, so it is asked once.

    Args:
        name: the queue, or the file.
        answered_from: where they are read: from the queue, from the index of what an earlier look
            has found, or from a file.
        total: how many there are.
        looked_at: how many were read.
        missing: how many were held by somebody else, and could not be read; None if it is unknown
            how many.
        as_of: when the look at the queue ended that these are of.
        depth_now: how many are in the queue now, where an earlier look answers and that is known.
        depth_problem: why that is not known.
        came: how many of the messages came after the look at the queue, and were followed.
        went: how many of those that it saw were taken out since.
        has_ended: whether it came to its end.
        messages: the messages.
    """

    name: str
    answered_from: Literal["queue", "index", "file"] = "queue"
    total: int = 0
    looked_at: int = 0
    missing: int | None = 0
    as_of: datetime | None = None
    depth_now: int | None = None
    depth_problem: str = ""
    came: int = 0
    went: int = 0
    has_ended: bool = False
    messages: Iterator[FailedMessage] = field(default_factory=lambda: iter(()), repr=False)

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> FailedMessage:
        return next(self.messages)

    @property
    def is_whole(self) -> bool:
        """Whether all that is in the queue was read, to the end."""
        return self.has_ended and self.missing == 0 and self.looked_at == self.total

    @property
    def is_partial(self) -> bool:
        """Whether messages that are there were not read, because that was not asked for."""
        return self.looked_at < self.total and self.missing == 0

    def note(self, progress: LookProgress) -> None:
        """Notes how far it is."""
        self.missing = progress.missing
        if progress.stage is LookStage.LOOKING:
            self.total = progress.total
        self.has_ended = progress.stage is LookStage.ENDED

    def as_json(self) -> dict[str, object]:
        """What is known of it, as JSON values; `missing` is null if it is unknown how many."""
        return {
            "total": self.total,
            "looked_at": self.looked_at,
            "missing": self.missing,
            "answered_from": self.answered_from,
            "as_of": None if self.as_of is None else self.as_of.isoformat(),
            "depth_now": self.depth_now,
        }

    def counted(self, messages: Iterator[FailedMessage]) -> Iterator[FailedMessage]:
        """Messages of it, each of which is counted."""
        for message in messages:
            self.looked_at += 1
            yield message

    # --- what is asked of it ----------------------------------------------------------------------

    def matching(self, filter_: OpenFilter) -> Iterator[FailedMessage]:
        """Those that a filter means."""
        return matching(self.messages, filter_)

    def groups(
        self,
        by: Column = BY_NAME["group_id"],
        filter_: OpenFilter | None = None,
        on_progress: Callable[[Groups], object] = lambda _: None,
    ) -> Groups:
        """Groups of them by a column, or by cause; of those that a filter means.

        Args:
            by: the column.
            filter_: the filter; None for all.
            on_progress: is given what was counted so far, while a look goes on.
        """
        found = self.messages if filter_ is None else self.matching(filter_)
        return grouped(found, by, on_progress)

    @property
    def kept(self) -> KeptMessages:
        """Its messages, where an earlier look answers: what can be asked again and again."""
        if isinstance(self.messages, KeptMessages):
            return self.messages
        raise TypeError("only what is kept is asked for this")

    def kept_matching(self, filter_: OpenFilter) -> KeptMessages:
        """Those of them that a filter means.

        Raises:
            ConfigurationError: it speaks of a message's row as one, which no file has.
        """
        if filter_.is_of_whole_rows:
            raise ConfigurationError(
                "the filter speaks of whole rows, which can't be counted by", "Name columns in it."
            )
        return self.kept.matching(filter_.filter)

    def first(self, limit: int, filter_: OpenFilter, *, newest: bool = False) -> FirstMessages:
        """The oldest of those that a filter means, or those that failed last, newest first; those
        without a time come last then, by their place in the queue."""
        found = self.matching(filter_)
        if isinstance(found, KeptMessages):
            return FirstMessages(found.first(limit, newest=newest), found.count())
        counted = _Counted(found)
        shown = _newest(counted, limit) if newest else list(islice(counted, limit))
        for _ in counted:
            pass
        return FirstMessages(shown, counted.count)

    def named(self, id_: str) -> FailedMessage:
        """The oldest that an id names: a failure id, the first 16 digits of a digest, a message id,
        or the unique beginning of a failure id.

        Raises:
            NothingFound: there is none.
            ConfigurationError: it stands for several.
        """
        found = self.messages
        return find_one(
            found.named(id_) if isinstance(found, KeptMessages) else found, id_, self.name
        )

    def all_named(self, ids: list[str]) -> list[FailedMessage]:
        """Those that these ids name, each of which has to stand for one.

        Raises:
            NothingFound: an id stands for none.
            ConfigurationError: an id stands for several.
        """
        return find_some(self.messages, ids, self.name)

    def query(
        self, sql: str, columns: tuple[Column, ...], limits: AnswerLimits | None = None
    ) -> QueryResult:
        """The answer to a query that was checked, which speaks of these columns.

        Raises:
            ConfigurationError: it fails on a row, or its answer is beyond the limits.
        """
        from redrive.failures.database import Database

        if isinstance(self.messages, KeptMessages):
            with self.messages.database(columns) as kept:
                return QueryResult(*kept.query(sql, limits))
        with Database(columns=columns) as database:
            database.insert(row_of_message(message, columns) for message in self.messages)
            return QueryResult(*database.query(sql, limits))


class _Counted:
    """Messages, counted as they pass."""

    def __init__(self, messages: Iterator[FailedMessage]) -> None:
        self._messages = messages
        self.count = 0

    def __iter__(self) -> Iterator[FailedMessage]:
        for message in self._messages:
            self.count += 1
            yield message


def _newest(found: _Counted, limit: int) -> list[FailedMessage]:
    latest = heapq.nlargest(
        limit, enumerate(found), key=lambda numbered: (_when(numbered[1]), numbered[0])
    )
    return [message for _, message in latest]


def _when(message: FailedMessage) -> float:
    return message.failed_at.timestamp() if message.failed_at is not None else float("-inf")
