"""Count failed messages in groups, by cause or by column."""

from array import array
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from itertools import pairwise
from typing import NamedTuple

from redrive.failures.message.cause import Cause, cause_of
from redrive.failures.message.columns import BY_NAME, Column, Value
from redrive.failures.message.failed_message import FailedMessage


class SharedIds:
    """Counts the failure ids that are shared by different messages. Exact copies don't count."""

    def __init__(self) -> None:
        # Store hashes instead of texts: there may be millions of them.
        self._digests: dict[int, int] = {}
        self._shared: set[int] = set()

    def add(self, message: FailedMessage) -> None:
        """Add a message."""
        own_id = message.own_failure_id
        if own_id is None:
            return
        name, digest = hash(own_id), hash(message.digest)
        if self._digests.setdefault(name, digest) != digest:
            self._shared.add(name)

    def noted(self, messages: Iterable[FailedMessage]) -> Iterator[FailedMessage]:
        """Add each message while iterating."""
        for message in messages:
            self.add(message)
            yield message

    def __len__(self) -> int:
        return len(self._shared)


MOST_KEYS = 1000
"""The maximum number of distinct routing keys that are counted in a group."""
FAR = 4
"""Outliers are left out of a histogram only if the rest fits into a quarter of the time."""
_LEAST_OF_MANY = 5
MOST_GROUPS = 10_000
"""The maximum number of separate groups. Further messages are counted together, so that memory
stays bounded."""

Key = Cause | Value


class Histogram(NamedTuple):
    """Counts of messages over time.

    Args:
        counts: how many messages are in each part of the time.
        before: how many were left out because they are much earlier.
        after: how many were left out because they are much later.
    """

    counts: list[int]
    before: int
    after: int


@dataclass(slots=True)
class Group:
    """Messages with the same cause, or the same value of a column.

    Args:
        key: that cause or value; None if unknown.
        count: how many messages there are.
        first_id: the failure id of the first message.
        first: when the first of them was set aside, if known.
        last: when the last of them was set aside, if known.
        routing_keys: the number of messages by routing key.
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
        """Count a message."""
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
        """Add the counts of another group with the same key."""
        self.count += other.count
        for key, count in other.routing_keys.items():
            if len(self.routing_keys) < MOST_KEYS or key in self.routing_keys:
                self.routing_keys[key] += count
        self.first = min((one for one in (self.first, other.first) if one), default=None)
        self.last = max((one for one in (self.last, other.last) if one), default=None)
        self.times.extend(other.times)

    def _copy(self) -> "Group":
        """Return a copy that can be changed independently."""
        copied = replace(self, routing_keys=self.routing_keys.copy(), times=self.times[:])
        copied._sorted_count = self._sorted_count
        return copied

    def failed_since(self, moment: float) -> int:
        """Return how many messages were set aside at or after a time, in seconds since 1970."""
        times = self._sorted()
        return len(times) - bisect_left(times, moment)

    def _sorted(self) -> "array[float]":
        if self._sorted_count != len(self.times):
            self.times = array("d", sorted(self.times))
            self._sorted_count = len(self.times)
        return self.times

    @property
    def span(self) -> tuple[datetime, datetime] | None:
        """The start and end of the histogram's time; None if no times are known."""
        if not self.times:
            return None
        times = self._sorted()
        begin, end = _most_of(times)
        first, last = times[begin], max(times[end], times[begin] + 1.0)
        return datetime.fromtimestamp(first, UTC), datetime.fromtimestamp(last, UTC)

    def histogram(self, bins: int) -> Histogram:
        """Return how many messages were set aside in each of `bins` equal parts of the time.

        Outliers far from all other messages, at most one in twenty, are left out, because they
        would flatten everything else.
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
    """Return the indexes of the first and the last of the sorted times without outliers; of all
    times if there are no outliers."""
    last = len(times) - 1
    few = max(1, len(times) // 20) if len(times) >= _LEAST_OF_MANY else 0
    # Find the closest cluster without the outliers, and extend it by its neighbours.
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
        """Messages beyond the maximum number of groups."""

    def add(self, messages: Iterable[FailedMessage]) -> None:
        """Count messages."""
        for message in messages:
            self.count(message, cause_of(message) if self._by is None else self._by.read(message))

    def count(self, message: FailedMessage, key: Key) -> None:
        """Count a message in the group with this key."""
        self.total += 1
        group = self._groups.get(key)
        if group is None:
            if len(self._groups) >= MOST_GROUPS:
                self.other += 1
                return
            group = self._groups[key] = Group(key, message.failure_id)
        group.add(message)

    def take(self, groups: Iterable[Group], total: int) -> None:
        """Set the groups from counts made elsewhere, and the total number of messages; those in
        none of the groups count as other."""
        self._groups = {group.key: group for group in groups}
        self.total = total
        self.other = total - sum(group.count for group in self._groups.values())

    def copy(self) -> "Groups":
        """Return a copy whose counts can be changed independently."""
        return self.of(lambda _: True)

    def of(self, means: Callable[[Key], bool]) -> "Groups":
        """Return copies of the groups whose keys match. Use it only if `other` is 0."""
        groups = Groups(self._by)
        groups._groups = {key: group._copy() for key, group in self._groups.items() if means(key)}
        groups.other = self.other
        groups.total = self.other + sum(group.count for group in groups._groups.values())
        return groups

    def put_times_in_order(self) -> None:
        """Sort the times of each group once, for the histograms."""
        for group in self._groups.values():
            group._sorted()

    def add_groups(self, others: "Groups") -> None:
        """Add the counts of other groups by the same column, whose messages came later."""
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
        """All groups, largest first."""
        return sorted(self._groups.values(), key=lambda group: -group.count)
