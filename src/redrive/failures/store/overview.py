"""Groups of failed messages across several queues."""

from collections import Counter
from dataclasses import dataclass, field
from datetime import UTC, datetime

from redrive.failures.message.groups import MOST_GROUPS, Group, Groups, Key

_LONG_AGO = datetime.min.replace(tzinfo=UTC)


@dataclass(slots=True)
class SharedGroup:
    """Messages of several queues that belong to the same group.

    Args:
        group: all of the messages; its example comes from the first queue added.
        queue: the queue that the example is in.
        queues: number of messages in each queue.
    """

    group: Group
    queue: str
    queues: Counter[str] = field(default_factory=Counter)


class Overview:
    """The groups of several queues, with equal groups merged."""

    def __init__(self) -> None:
        self._groups: dict[Key, SharedGroup] = {}
        self.queues: dict[str, int] = {}
        """Number of messages counted in each queue."""
        self.other = 0
        """Number of messages beyond the groups that can be told apart."""

    @property
    def total(self) -> int:
        """Number of messages counted."""
        return sum(self.queues.values())

    def take(self, queue: str, groups: Groups) -> None:
        """Add the groups of another queue."""
        self.queues[queue] = groups.total
        self.other += groups.other
        for group in groups.largest_first:
            shared = self._groups.get(group.key)
            if shared is None:
                if len(self._groups) >= MOST_GROUPS:
                    self.other += group.count
                    continue
                shared = SharedGroup(Group(group.key, group.first_id), queue)
                self._groups[group.key] = shared
            shared.group.take(group)
            shared.queues[queue] += group.count

    @property
    def latest_first(self) -> list[SharedGroup]:
        """All groups, the most recent failure first; groups without a time come last, the largest
        first."""
        return sorted(
            self._groups.values(),
            key=lambda shared: (shared.group.last or _LONG_AGO, shared.group.count),
            reverse=True,
        )
