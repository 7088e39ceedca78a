"""Messages of a look that has ended, which can be asked without looking at their queue again, and
without making each of them anew."""

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import timedelta
from itertools import chain, islice
from typing import TYPE_CHECKING, NamedTuple

from redrive.errors import RedriveError
from redrive.failures.cause import Cause
from redrive.failures.columns import Column
from redrive.failures.direction import Direction
from redrive.failures.failed_message import FailedMessage
from redrive.failures.filter import Filter, OpenFilter
from redrive.failures.groups import Groups
from redrive.failures.route import Route
from redrive.failures.way_back import WayBack

if TYPE_CHECKING:
    from redrive.failures.database import Database

_AT_A_TIME = 250
"""Messages between two tellings of how far it is."""


class IndexUnusable(RedriveError):
    """What the index knows can't answer this: it is damaged, another version's, or lacks a body
    that was too large. The queue itself has to be looked at."""


class BodyNotKept(IndexUnusable):
    """A body is asked for that was too large to be kept. A new look would not keep it either."""


class Neighbours(NamedTuple):
    """The messages next to one, among those of its cause.

    Args:
        former: the failure id of the one before it; empty if there is none.
        later: that of the one behind it.
        number: which of them it is.
        among: how many they are; 0 if it is not known.
    """

    former: str = ""
    later: str = ""
    number: int = 0
    among: int = 0


class CauseHistory(NamedTuple):
    """What the messages of a cause have behind them.

    Args:
        hosts: the hosts that have set them aside.
        requeued: how many of them were requeued before.
        most: how often one of them was, at most.
    """

    hosts: list[str]
    requeued: int
    most: int


class ValueCounts(NamedTuple):
    """How many messages have which value.

    Args:
        values: the most frequent values, each with how many have it; None where they have none.
        different: how many different values there are.
    """

    values: list[tuple[str | None, int]]
    different: int


class PlanCounts(NamedTuple):
    """What a requeue of messages would do, as far as it can be said without making each of them.

    Args:
        going: how many go.
        too_often: how many stay because they were requeued too often.
        groups: how many of each cause go.
        routes: which way how many of those go that were not requeued too often, or why they stay.
        arrivals: by which exchanges and keys they came to where they are.
        first: the first few.
        sharing: those whose failure id others may have, too.
        retries: the most retries that one of them had.
        retried_for: the longest that one of them was retried, in whole seconds.
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
    """Messages of a former look, from the oldest on.

    Whatever is asked of them raises IndexUnusable where they can't answer it.
    """

    def check(self, filter_: Filter) -> None:
        """Check that a filter may be asked of them."""

    @abstractmethod
    def matching(self, filter_: Filter) -> "KeptMessages":
        """Those that a filter without a function and without digests means.

        Raises (when they are asked):
            ConfigurationError: the filter can't be said of one of them.
        """

    @abstractmethod
    def count(self) -> int:
        """How many they are."""

    @abstractmethod
    def first(self, limit: int, *, newest: bool, skip: int = 0) -> list[FailedMessage]:
        """The oldest ones, behind those that are skipped; or those that failed last, newest first,
        and those without a time last."""

    @abstractmethod
    def named(self, id_: str) -> Iterator[FailedMessage]:
        """Those that an id may stand for, and perhaps others."""

    @abstractmethod
    def around(self, failure_id: str, group_id: str) -> Neighbours:
        """The messages next to one, among all of a cause."""

    @abstractmethod
    def groups(self, by: Column) -> Groups:
        """Groups of them by a column."""

    @abstractmethod
    def counts(self) -> dict[str, int]:
        """How many of them each cause has, by the id of its group."""

    @abstractmethod
    def counted_by(self, expression: str, most: int) -> ValueCounts:
        """The most frequent values of an expression of the filter language whose value is a
        text."""

    @abstractmethod
    def trips(self) -> dict[str, CauseHistory]:
        """What the messages of each cause have behind them, by the id of its group."""

    @abstractmethod
    def prospects(self, direction: Direction, most_redrives: int | None, few: int) -> PlanCounts:
        """What a requeue of them would do."""

    @abstractmethod
    def database(self, columns: Sequence[Column]) -> "Database":
        """A database whose table `failed` has these columns of them, and which reaches nothing
        else."""


def matching(messages: Iterator[FailedMessage], open_filter: OpenFilter) -> Iterator[FailedMessage]:
    """Those of the messages that a filter means; kept ones are not made for it."""
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
    """Groups of the messages by a column."""
    if isinstance(messages, KeptMessages):
        return messages.groups(by)
    groups = Groups(by)
    left = iter(messages)
    while some := list(islice(left, 1)):
        groups.add(chain(some, islice(left, _AT_A_TIME - 1)))
        on_progress(groups)
    return groups
