"""Messages of a finished look, answering questions without another scan or parsing each message."""

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import timedelta
from itertools import chain, islice
from typing import TYPE_CHECKING, NamedTuple

from redrive.errors import RedriveError
from redrive.failures.message.cause import Cause
from redrive.failures.message.columns import Column
from redrive.failures.message.direction import Direction
from redrive.failures.message.failed_message import FailedMessage
from redrive.failures.message.groups import Groups
from redrive.failures.message.route import Route, WayBack
from redrive.failures.store.filter import Filter, OpenFilter

if TYPE_CHECKING:
    from redrive.failures.store.database import Database

_AT_A_TIME = 250
"""Messages between two progress reports."""


class IndexUnusable(RedriveError):
    """The index can't answer; the queue itself must be scanned.

    The index is damaged, comes from another version, or lacks a body that was too large.
    """


class BodyNotKept(IndexUnusable):
    """A requested body was too large to be kept. A new look would not keep it either."""


class Neighbours(NamedTuple):
    """The neighbours of a message among the messages with the same cause.

    Args:
        former: the failure id of the message before it; empty if there is none.
        later: the failure id of the message after it; empty if there is none.
        number: the message's position among them.
        among: how many there are; 0 if unknown.
    """

    former: str = ""
    later: str = ""
    number: int = 0
    among: int = 0


class CauseHistory(NamedTuple):
    """The history of the messages with the same cause.

    Args:
        hosts: the hosts that set them aside.
        requeued: number of messages that were requeued before.
        most: the highest number of requeues of one message.
    """

    hosts: list[str]
    requeued: int
    most: int


class ValueCounts(NamedTuple):
    """Numbers of messages by value.

    Args:
        values: the most frequent values, each with its number of messages; the value is None for
            messages without one.
        different: number of different values.
    """

    values: list[tuple[str | None, int]]
    different: int


class PlanCounts(NamedTuple):
    """What a requeue of messages would do, computed without parsing each message.

    Args:
        going: number of messages that would be sent.
        too_often: number of messages that stay because they were requeued too often.
        groups: number of messages that would be sent, by cause.
        routes: number of messages by route, or by the reason to stay, without those requeued too
            often.
        arrivals: the exchanges and keys by which the messages arrived where they are.
        first: the first few messages.
        sharing: messages whose failure id may not be unique.
        retries: the most retries of one message.
        retried_for: the longest time that one message was retried, in whole seconds.
    """

    going: int
    too_often: int
    groups: Counter[Cause]
    routes: Counter[Route]
    arrivals: set[WayBack]
    first: list[FailedMessage]
    sharing: Iterator[FailedMessage]
    retries: int
    retried_for: timedelta


class KeptMessages(ABC, Iterator[FailedMessage]):
    """Messages of an earlier look, oldest first.

    Every method raises IndexUnusable if the index can't answer.
    """

    def check(self, filter_: Filter) -> None:
        """Check that these messages can answer a filter."""

    @abstractmethod
    def matching(self, filter_: Filter) -> "KeptMessages":
        """Return the messages that match a filter without a function and without digests.

        Raises (on iteration):
            ConfigurationError: the filter can't be evaluated for a message.
        """

    @abstractmethod
    def count(self) -> int:
        """Count the messages."""

    @abstractmethod
    def first(self, limit: int, *, newest: bool, skip: int = 0) -> list[FailedMessage]:
        """Return the oldest messages after the skipped ones, or the newest by failure time.

        With `newest`, messages without a time come last.
        """

    @abstractmethod
    def named(self, id_: str) -> Iterator[FailedMessage]:
        """Return the messages that an id may stand for, and perhaps others."""

    @abstractmethod
    def around(self, failure_id: str, group_id: str) -> Neighbours:
        """Return the neighbours of a message among all with its cause."""

    @abstractmethod
    def groups(self, by: Column) -> Groups:
        """Group the messages by a column."""

    @abstractmethod
    def counts(self) -> dict[str, int]:
        """Count the messages of each cause, by the id of its group."""

    @abstractmethod
    def counted_by(self, expression: str, most: int) -> ValueCounts:
        """Return the most frequent values of a filter expression that yields text."""

    @abstractmethod
    def trips(self) -> dict[str, CauseHistory]:
        """Return the history of each cause's messages, by the id of its group."""

    @abstractmethod
    def plan_counts(self, direction: Direction, most_redrives: int | None, few: int) -> PlanCounts:
        """Return what a requeue of the messages would do."""

    @abstractmethod
    def database(self, columns: Sequence[Column]) -> "Database":
        """Return a sandboxed database whose table `failed` holds these columns of the messages."""


def matching(messages: Iterator[FailedMessage], open_filter: OpenFilter) -> Iterator[FailedMessage]:
    """Return the messages that match a filter, without parsing kept messages if possible."""
    asked = open_filter.filter
    if isinstance(messages, KeptMessages):
        messages.check(asked)
    if (
        isinstance(messages, KeptMessages)
        and not asked.digests
        and not callable(asked.where)
        and not open_filter.is_of_whole_rows
    ):
        return messages.matching(asked)
    return open_filter.of(messages)


def grouped(
    messages: Iterable[FailedMessage],
    by: Column,
    on_progress: Callable[[Groups], object] = lambda _: None,
) -> Groups:
    """Group the messages by a column."""
    if isinstance(messages, KeptMessages):
        return messages.groups(by)
    groups = Groups(by)
    left = iter(messages)
    while some := list(islice(left, 1)):
        groups.add(chain(some, islice(left, _AT_A_TIME - 1)))
        on_progress(groups)
    return groups
