"""Counts and times that each thread keeps for itself without a lock, to be summed when metrics are
collected.

A metrics library takes six microseconds for an increment and nine for a time: with several of these
per message, a service would have little time left for the message.
"""

import math
import threading
from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from operator import add, sub

AT_A_TIME = 512
"""Values that are sorted into buckets together."""
Series = tuple[str, str, str]
"""Key of a count or distribution: the instrument's name, the queue or exchange, and a detail such
as the type of an error; empty for none."""


class Count:
    """A count that one thread adds to."""

    __slots__ = ("value",)

    def __init__(self) -> None:
        self.value = 0


@dataclass(frozen=True, slots=True)
class Sums:
    """Summary of a set of values.

    Args:
        buckets: number of values in each bucket.
        total: sum of the values.
        least: the smallest value.
        most: the largest value.
    """

    buckets: tuple[int, ...]
    total: float = 0.0
    least: float = math.inf
    most: float = -math.inf

    @property
    def count(self) -> int:
        """Number of values."""
        return sum(self.buckets)

    def plus(self, other: "Sums") -> "Sums":
        """Return the summary of these and other values, with the same bounds."""
        return Sums(
            tuple(map(add, self.buckets, other.buckets)),
            self.total + other.total,
            min(self.least, other.least),
            max(self.most, other.most),
        )


class Distribution:
    """Number of values in each bucket, and their sum.

    Finding a value's bucket takes longer than everything else done with it, so values are sorted in
    batches: `note` is a list's own `append`, and its callers must call `sort_in` after every few
    hundred values.
    """

    __slots__ = ("_known", "bounds", "note")

    def __init__(self, bounds: Sequence[float]) -> None:
        self.bounds = bounds
        self._begin(Sums((0,) * (len(bounds) + 1)))

    def add(self, value: float) -> None:
        """Add a value."""
        self.add_all((value,))

    def add_all(self, values: Iterable[float]) -> None:
        """Add some values."""
        noted = self._known[1]
        noted.extend(values)
        if len(noted) >= AT_A_TIME:
            self.sort_in()

    def sort_in(self) -> None:
        """Sort the noted values into buckets."""
        self._begin(self.sums)

    def merge(self, other: "Distribution") -> None:
        """Add the current values of another distribution with the same bounds."""
        self._begin(self.sums.plus(other.sums))

    @property
    def sums(self) -> Sums:
        """Summary of its values."""
        sums, values = self._known
        values = sorted(values)  # a copy, since its thread may add to it meanwhile
        if not values:
            return sums
        below = [0, *(bisect_right(values, bound) for bound in self.bounds), len(values)]
        buckets = tuple(map(sub, below[1:], below))
        return sums.plus(Sums(buckets, sum(values), values[0], values[-1]))

    def _begin(self, sums: Sums) -> None:
        values: list[float] = []
        # Replaced together, so that another thread that reads them meanwhile sees each value once.
        self._known = (sums, values)
        self.note = values.append


class Shard:
    """Counts and times of one thread; no other thread writes to it."""

    __slots__ = ("attempts", "counts", "distributions", "ends")

    def __init__(self) -> None:
        self.counts: dict[Series, Count] = {}
        self.distributions: dict[Series, Distribution] = {}
        self.attempts: dict[str, tuple[Count, Distribution]] = {}
        """The count and distribution that each attempt updates, by queue, so that one lookup finds
        both."""
        self.ends: dict[str, tuple[Count, Distribution]] = {}
        """The same for each handled message."""

    def count(self, series: Series) -> Count:
        """Return the count of a series."""
        found = self.counts.get(series)
        if found is None:
            found = self.counts[series] = Count()
        return found

    def distribution(self, series: Series, bounds: Sequence[float]) -> Distribution:
        """Return the distribution of a series with these bounds."""
        found = self.distributions.get(series)
        if found is None:
            found = self.distributions[series] = Distribution(bounds)
        return found

    def merge(self, other: "Shard") -> None:
        """Add the current values of another shard."""
        # Copied, since its thread may add to a dict during the iteration. Times come first, so that
        # the number of attempts started is never below the number ended.
        for series, distribution in dict(other.distributions).items():
            self.distribution(series, distribution.bounds).merge(distribution)
        for series, count in dict(other.counts).items():
            self.count(series).value += count.value


_MOST_SHARDS = 64


class _Own(threading.local):
    """The shard of the current thread."""

    def __init__(self, begin: Callable[[], Shard]) -> None:
        self.shard = begin()  # once in each thread


class ThreadTally:
    """One shard per thread, and their sum.

    `own.shard` is the current thread's shard: an attribute rather than a call, since it is needed
    for each message.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._shards: list[tuple[threading.Thread, Shard]] = []
        self._ended = Shard()
        """Sum of the shards of threads that have ended."""
        self.own = _Own(self._new)

    def total(self) -> Shard:
        """Return the sum over all threads."""
        total = Shard()
        with self._lock:
            total.merge(self._ended)
            for _, shard in self._shards:
                total.merge(shard)
        return total

    def _new(self) -> Shard:
        shard = Shard()
        with self._lock:
            if len(self._shards) >= _MOST_SHARDS:
                ended = [one for one in self._shards if not one[0].is_alive()]
                self._shards = [one for one in self._shards if one not in ended]
                for _, counted in ended:
                    self._ended.merge(counted)
            self._shards.append((threading.current_thread(), shard))
        return shard
