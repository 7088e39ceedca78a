"""Failed messages counted by what they have in common."""

from array import array
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from itertools import pairwise
from typing import NamedTuple

from redrive.failures.cause import Cause, cause_of
from redrive.failures.columns import BY_NAME, Column, Value
from redrive.failures.failed_message import FailedMessage

MOST_KEYS = 1000
"""Routing keys of a group that are told apart."""
FAR = 4
"""The rest must fit into the fourth part of the time, for a few to be left out of it."""
_LEAST_OF_MANY = 5
MOST_GROUPS = 10_000
"""Groups that are told apart; what comes after them is counted together, so that memory stays
bounded."""

Key = Cause | Value


class Histogram(NamedTuple):
    """How many there were when.

    Args:
        counts: how many in each part of the time.
        before: how many were so much earlier that they are left out.
        after: how many were so much later.
    """

    counts: list[int]
    before: int
    after: int


@dataclass(slots=True)
class Group:
    """Messages that have something in common.

    Args:
        key: what that is; None where it is not known.
        count: how many they are.
        first_id: the failure id of the first one.
        first: when the first one of them was set aside, as far as is known.
        last: when the last one was.
        routing_keys: how many have which.
        times: when each was set aside, in seconds since 1970.
    """

    key: Key
    first_id: str
    count: int = 0
    first: datetime | None = None
    last: datetime | None = None
    routing_keys: Counter[str] = field(default_factory=Counter)
    times: "array[float]" = field(default_factory=lambda: array("d"))
    _sorted_count: int = field(default=0, init=False, repr=False, compare=False)

    def add(self, message: FailedMessage) -> None:
        """Counts a message."""
        self.count += 1
        key = message.routing_key
        if len(self.routing_keys) < MOST_KEYS or key in self.routing_keys:
            self.routing_keys[key] += 1
        moment = message.failed_at
        if moment is not None:
            self.first = moment if self.first is None else min(self.first, moment)
            self.last = moment if self.last is None else max(self.last, moment)
            self.times.append(moment.timestamp())

    def take(self, other: "Group") -> None:
        """Counts the messages of another group as well, which have the same in common."""
        self.count += other.count
        for key, count in other.routing_keys.items():
            if len(self.routing_keys) < MOST_KEYS or key in self.routing_keys:
                self.routing_keys[key] += count
        self.first = min((one for one in (self.first, other.first) if one), default=None)
        self.last = max((one for one in (self.last, other.last) if one), default=None)
        self.times.extend(other.times)

    def _copy(self) -> "Group":
        """One that can be changed by itself."""
        copied = replace(self, routing_keys=self.routing_keys.copy(), times=self.times[:])
        copied._sorted_count = self._sorted_count
        return copied

    def failed_since(self, moment: float) -> int:
        """How many were set aside since a moment, in seconds since 1970."""
        times = self._sorted()
        return len(times) - bisect_left(times, moment)

    def _sorted(self) -> "array[float]":
        if self._sorted_count != len(self.times):
            self.times = array("d", sorted(self.times))
            self._sorted_count = len(self.times)
        return self.times

    @property
    def span(self) -> tuple[datetime, datetime] | None:
        """The time that its histogram is of, from and to; None where none of its times is
        known."""
        if not self.times:
            return None
        times = self._sorted()
        begin, end = _most_of(times)
        first, last = times[begin], max(times[end], times[begin] + 1.0)
        return datetime.fromtimestamp(first, UTC), datetime.fromtimestamp(last, UTC)

    def histogram(self, bins: int) -> Histogram:
        """How many were set aside in each of so many equal parts of the time in which most of them
        were.

        A few that are far from all others, at most one in twenty, are left out: they would flatten
        all the rest.
        """
        times = self._sorted()
        begin, end = _most_of(times)
        first, span = times[begin], max(1.0, times[end] - times[begin])

        def part_of(moment: float) -> int:
            return min(bins - 1, int((moment - first) / span * bins))

        edges = [bisect_left(times, part, begin, end + 1, key=part_of) for part in range(bins)]
        counts = [after - before for before, after in pairwise([*edges, end + 1])]
        return Histogram(counts, begin, len(times) - 1 - end)


def _most_of(times: Sequence[float]) -> tuple[int, int]:
    """The first and the last of most of these sorted times; of all of them where no few are far
    away."""
    last = len(times) - 1
    few = max(1, len(times) // 20) if len(times) >= _LEAST_OF_MANY else 0
    # The closest that so many are to each other, and what is next to them.
    span, begin = min((times[last - few + start] - times[start], start) for start in range(few + 1))
    first, final = (
        bisect_left(times, times[begin] - span),
        bisect_right(times, times[begin + last - few] + span) - 1,
    )
    return (
        (first, final)
        if (times[final] - times[first]) * FAR <= times[last] - times[0]
        else (0, last)
    )


class Groups:
    """Groups by cause, or by a column.

    Args:
        by: the column; None for the cause.
    """

    def __init__(self, by: Column | None = None) -> None:
        self._by = None if by is BY_NAME["group_id"] else by
        self._groups: dict[Key, Group] = {}
        self.total = 0
        self.other = 0
        """Messages in further groups than can be told apart."""

    def add(self, messages: Iterable[FailedMessage]) -> None:
        """Counts messages."""
        for message in messages:
            self.count(message, cause_of(message) if self._by is None else self._by.read(message))

    def count(self, message: FailedMessage, key: Key) -> None:
        """Counts a message in the group with a key."""
        self.total += 1
        group = self._groups.get(key)
        if group is None:
            if len(self._groups) >= MOST_GROUPS:
                self.other += 1
                return
            group = self._groups[key] = Group(key, message.failure_id)
        group.add(message)

    def take(self, groups: Iterable[Group], total: int) -> None:
        """Takes groups that were counted elsewhere, and how many messages there were in all; what
        is in none of these groups is in further ones."""
        self._groups = {group.key: group for group in groups}
        self.total = total
        self.other = total - sum(group.count for group in self._groups.values())

    def copy(self) -> "Groups":
        """Groups whose counts can be changed by themselves."""
        return self.of(lambda _: True)

    def of(self, means: Callable[[Key], bool]) -> "Groups":
        """Copies of those with such a key, where all of them are told apart."""
        groups = Groups(self._by)
        groups._groups = {key: group._copy() for key, group in self._groups.items() if means(key)}
        groups.other = self.other
        groups.total = self.other + sum(group.count for group in groups._groups.values())
        return groups

    def put_times_in_order(self) -> None:
        """Sorts the times of each once, for whoever asks for its histogram."""
        for group in self._groups.values():
            group._sorted()

    def add_groups(self, others: "Groups") -> None:
        """Counts the messages of other groups by the same, which came later."""
        self.total += others.total
        self.other += others.other
        for key, group in others._groups.items():
            known = self._groups.get(key)
            if known is not None:
                known.take(group)
            elif len(self._groups) < MOST_GROUPS:
                self._groups[key] = group
            else:
                self.other += group.count

    @property
    def largest_first(self) -> list[Group]:
        """All groups, the largest first."""
        return sorted(self._groups.values(), key=lambda group: -group.count)
