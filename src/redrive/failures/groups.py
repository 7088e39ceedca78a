"""Failed messages counted by what they have in common."""

from array import array
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime

from redrive.failures.cause import Cause, cause_of
from redrive.failures.columns import BY_NAME, Column, Value
from redrive.pubsub.message import FailedMessage

_MOST_KEYS = 1000
MOST_GROUPS = 10_000
"""Groups that are told apart; what comes after them is counted together, so that memory stays bounded."""

Key = Cause | Value


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

    def add(self, message: FailedMessage) -> None:
        """Counts a message."""
        self.count += 1
        if len(self.routing_keys) < _MOST_KEYS or message.routing_key in self.routing_keys:
            self.routing_keys[message.routing_key] += 1
        moment = message.failed_at
        if moment is not None:
            self.first = moment if self.first is None else min(self.first, moment)
            self.last = moment if self.last is None else max(self.last, moment)
            self.times.append(moment.timestamp())

    def histogram(self, begin: datetime, end: datetime, bins: int) -> list[int]:
        """How many were set aside in each of so many equal parts of a span of time."""
        counts = [0] * bins
        start, span = begin.timestamp(), max(1.0, end.timestamp() - begin.timestamp())
        for moment in self.times:
            counts[min(bins - 1, max(0, int((moment - start) / span * bins)))] += 1
        return counts


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
            self.total += 1
            key = cause_of(message) if self._by is None else self._by.read(message)
            group = self._groups.get(key)
            if group is None:
                if len(self._groups) >= MOST_GROUPS:
                    self.other += 1
                    continue
                group = self._groups[key] = Group(key, message.failure_id)
            group.add(message)

    @property
    def largest_first(self) -> list[Group]:
        """All groups, the largest first."""
        return sorted(self._groups.values(), key=lambda group: -group.count)

    @property
    def span(self) -> tuple[datetime, datetime] | None:
        """When the first and the last of all messages were set aside; None where that is not known of any."""
        moments = [moment for group in self._groups.values() for moment in (group.first, group.last) if moment is not None]
        return (min(moments), max(moments)) if moments else None
