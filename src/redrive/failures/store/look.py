"""One look at failed messages: its answers, and what is known about the look itself."""

import heapq
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from itertools import islice
from typing import TYPE_CHECKING, Literal, NamedTuple, Self

from redrive.errors import ConfigurationError, RedriveError
from redrive.failures.message.columns import BY_NAME, Column, row_of_message
from redrive.failures.message.failed_message import FailedMessage
from redrive.failures.message.groups import Groups
from redrive.failures.store.filter import OpenFilter
from redrive.failures.store.index import MOST_BYTES
from redrive.failures.store.kept_messages import KeptMessages, grouped, matching
from redrive.pubsub.reports import LookProgress, LookStage

if TYPE_CHECKING:
    from redrive.failures.store.database import AnswerLimits

_MOST_NAMED = 5
_SURE, _BY_MESSAGE_ID, _BY_PREFIX = range(3)
_SHORT_DIGEST = 16
_DIGEST = re.compile(rf"[0-9a-f]{{{_SHORT_DIGEST},64}}")

_Matches = dict[str, list[FailedMessage]]
"""Messages by their digests."""


class NothingFound(RedriveError):
    """No message has the requested id."""


def find_one(failed: Iterable[FailedMessage], id_: str, source: str) -> FailedMessage:
    """Return the oldest message with this id.

    An id is a failure id or a unique prefix of one, the first 16 digits of a digest, or a message
    id.
    """
    search = _Search(id_)
    for message in failed:
        search.look_at(message)
        if search.is_found:
            break  # a queue of millions need not be read to its end to find one message
    return next(iter(search.result(source).values()))[0]


def find_some(
    failed: Iterable[FailedMessage], ids: Iterable[str], source: str
) -> list[FailedMessage]:
    """Return the messages with these ids, including exact copies of them.

    All messages are read, since any of them may have copied an id. An id shared by messages that
    differ is refused: nothing here tells which of them made it up.
    """
    searches = {id_: _Search(id_) for id_ in ids}
    for message in failed:
        for search in searches.values():
            search.look_at(message)
    found: _Matches = {}
    for search in searches.values():
        found |= search.result(source)
    return [message for messages in found.values() for message in messages]


class _Search:
    """The messages that match an id, the most certain matches first."""

    def __init__(self, wanted: str) -> None:
        self._wanted = wanted
        self._may_be_digest = _DIGEST.fullmatch(wanted) is not None
        self._found: tuple[_Matches, _Matches, _Matches] = ({}, {}, {})

    @property
    def is_found(self) -> bool:
        """Whether a message with this failure id was found."""
        return bool(self._found[_SURE])

    def look_at(self, message: FailedMessage) -> None:
        """Keep a message that matches. If there are too many, only some are kept, to save memory.

        The error for an ambiguous id names only some.
        """
        if message.failure_id == self._wanted or (
            self._may_be_digest and message.digest.startswith(self._wanted)
        ):
            matches = self._found[_SURE]
        elif message.message_id == self._wanted:
            matches = self._found[_BY_MESSAGE_ID]
        elif message.failure_id.startswith(self._wanted):
            matches = self._found[_BY_PREFIX]
        else:
            return
        if message.digest in matches or len(matches) <= _MOST_NAMED:
            matches.setdefault(message.digest, []).append(message)

    def result(self, source: str) -> _Matches:
        """Return the matching messages, which must all be the same message."""
        matches = next((matches for matches in self._found if matches), None)
        if matches is None:
            raise NothingFound(
                f"no message of {source!r} has the id {self._wanted!r}\nSee: redrive failed list"
            )
        if len(matches) > 1:
            more = "more than " if len(matches) > _MOST_NAMED else ""
            several = f"{more}{min(len(matches), _MOST_NAMED)} messages"
            ids = list(dict.fromkeys(messages[0].failure_id for messages in matches.values()))
            if len(ids) < len(matches):
                # Their failure ids don't tell them apart.
                digests = [digest[:_SHORT_DIGEST] for digest in list(matches)[:_MOST_NAMED]]
                raise ConfigurationError(
                    f"{self._wanted!r} matches {several} of {source!r} that differ, though some "
                    "share a failure id",
                    f"Give the digest of one: {', '.join(digests)}.",
                )
            raise ConfigurationError(
                f"{self._wanted!r} matches {several} of {source!r}",
                f"Give one of the failure ids: {', '.join(ids[:_MOST_NAMED])}.",
            )
        return matches


Notice = Callable[[str], None]
Keep = Callable[[Callable[[int], object]], str]
"""Stores what a look has found, reports how many messages are stored, and returns the problem, if
any."""


@dataclass(frozen=True, slots=True)
class CachePolicy:
    """How an earlier look may answer, and whether the result of a new one is kept.

    Args:
        max_age: how old a look may be to answer; 0 to always make a new one and keep it.
        most_bytes: how many bytes are kept for all queues together.
        on_notice: called with a sentence that says why nothing was kept, or could be used.
        later: receives the function that stores a look, to be called once; None stores the look as
            soon as it has ended.
        keeps_bodies: whether bodies are kept too.
        or_look: whether to scan the queue if no earlier look answers. If not, NothingKept is
            raised, and the queue's depth is not read either.
    """

    max_age: timedelta
    most_bytes: int = MOST_BYTES
    on_notice: Notice = lambda _: None
    later: Callable[[Keep], None] | None = None
    or_look: bool = True
    keeps_bodies: bool = True


class NothingKept(ConfigurationError):
    """No earlier look answers, and a new one was not allowed."""


class QueryResult(NamedTuple):
    """The answer to a query.

    Args:
        columns: the names of its columns.
        rows: its rows, as JSON values by column name.
    """

    columns: list[str]
    rows: list[dict[str, object]]


class FirstMessages(NamedTuple):
    """The first few of many messages.

    Args:
        messages: the requested messages.
        matching: how many there are in all.
    """

    messages: list[FailedMessage]
    matching: int


@dataclass(slots=True)
class Look(Iterator[FailedMessage]):
    """A look at the messages of a failed queue or a file, oldest first. Each question consumes the
    messages, so ask only one.

    Args:
        name: the queue, or the file.
        answered_from: where the messages come from: the queue, the index of an earlier look, or a
            file.
        total: number of messages in the queue or file.
        looked_at: number of messages read.
        missing: number of messages that somebody else held, so they could not be read; None if
            unknown.
        as_of: when the look at the queue that these messages come from ended.
        depth_now: number of messages in the queue now, if an earlier look answers and it is known.
        depth_problem: why the depth is unknown.
        came: number of messages that arrived after the look at the queue, and were followed.
        went: number of messages that the look saw and that were taken out since.
        has_ended: whether the look was completed.
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
        """Whether everything in the queue was read."""
        return self.has_ended and self.missing == 0 and self.looked_at == self.total

    @property
    def is_partial(self) -> bool:
        """Whether messages were left unread because the caller didn't ask for them."""
        return self.looked_at < self.total and self.missing == 0

    def note(self, progress: LookProgress) -> None:
        """Record the look's progress."""
        self.missing = progress.missing
        if progress.stage is LookStage.LOOKING:
            self.total = progress.total
        self.has_ended = progress.stage is LookStage.ENDED

    def as_json(self) -> dict[str, object]:
        """Return what is known about the look as JSON values; `missing` is null if unknown."""
        return {
            "total": self.total,
            "looked_at": self.looked_at,
            "missing": self.missing,
            "answered_from": self.answered_from,
            "as_of": None if self.as_of is None else self.as_of.isoformat(),
            "depth_now": self.depth_now,
        }

    def counted(self, messages: Iterator[FailedMessage]) -> Iterator[FailedMessage]:
        """Count the messages while iterating over them."""
        for message in messages:
            self.looked_at += 1
            yield message

    # --- questions --------------------------------------------------------------------------------

    def matching(self, filter_: OpenFilter) -> Iterator[FailedMessage]:
        """Return the messages that match a filter."""
        return matching(self.messages, filter_)

    def groups(
        self,
        by: Column = BY_NAME["group_id"],
        filter_: OpenFilter | None = None,
        on_progress: Callable[[Groups], object] = lambda _: None,
    ) -> Groups:
        """Group the messages that match a filter by a column; by cause by default.

        Args:
            by: the column.
            filter_: the filter; None for all messages.
            on_progress: called with the groups counted so far.
        """
        found = self.messages if filter_ is None else self.matching(filter_)
        return grouped(found, by, on_progress)

    @property
    def kept(self) -> KeptMessages:
        """The messages of an earlier look, which can be asked repeatedly."""
        if isinstance(self.messages, KeptMessages):
            return self.messages
        raise TypeError("only an earlier look that was kept can answer this")

    def kept_matching(self, filter_: OpenFilter) -> KeptMessages:
        """Return the kept messages that match a filter.

        Raises:
            ConfigurationError: the filter is about a message's whole row, which no file has.
        """
        if filter_.is_of_whole_rows:
            raise ConfigurationError(
                "cannot count by a filter on whole rows", "Name columns in it."
            )
        return self.kept.matching(filter_.filter)

    def first(self, limit: int, filter_: OpenFilter, *, newest: bool = False) -> FirstMessages:
        """Return the oldest matching messages, or the newest by failure time.

        With `newest`, messages without a time come last, by their position in the queue.
        """
        found = self.matching(filter_)
        if isinstance(found, KeptMessages):
            return FirstMessages(found.first(limit, newest=newest), found.count())
        counted = _Counted(found)
        shown = _newest(counted, limit) if newest else list(islice(counted, limit))
        for _ in counted:
            pass
        return FirstMessages(shown, counted.count)

    def named(self, id_: str) -> FailedMessage:
        """Return the oldest message with this id.

        An id is a failure id or a unique prefix of one, the first 16 digits of a digest, or a
        message id.

        Raises:
            NothingFound: no message has it.
            ConfigurationError: it stands for several messages.
        """
        found = self.messages
        return find_one(
            found.named(id_) if isinstance(found, KeptMessages) else found, id_, self.name
        )

    def all_named(self, ids: list[str]) -> list[FailedMessage]:
        """Return the messages with these ids, each of which must stand for exactly one message.

        Raises:
            NothingFound: no message has one of the ids.
            ConfigurationError: an id stands for several messages.
        """
        return find_some(self.messages, ids, self.name)

    def query(
        self, sql: str, columns: tuple[Column, ...], limits: "AnswerLimits | None" = None
    ) -> QueryResult:
        """Return the answer to a checked query that uses these columns.

        Raises:
            ConfigurationError: it fails on a row, or its answer exceeds the limits.
        """
        from redrive.failures.store.database import Database

        if isinstance(self.messages, KeptMessages):
            with self.messages.database(columns) as kept:
                return QueryResult(*kept.query(sql, limits))
        with Database(columns=columns) as database:
            database.insert(row_of_message(message, columns) for message in self.messages)
            return QueryResult(*database.query(sql, limits))


class _Counted:
    """Messages that are counted as they pass."""

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
