"""What messages of several queues have in common."""

from collections import Counter
from dataclasses import dataclass, field
from datetime import UTC, datetime

from redrive.failures.groups import MOST_GROUPS, Group, Groups, Key

_LONG_AGO = datetime.min.replace(tzinfo=UTC)


@dataclass(slots=True)
class SharedGroup:
    """Messages of several queues that have something in common.

    Args:
        group: all of them; its example is of the first queue that was taken.
        queue: the queue that the example is in.
        queues: how many are in which queue.
    """

    group: Group
    queue: str
    queues: Counter[str] = field(default_factory=Counter)


class Overview:
    """The groups of several queues: what is the same in two of them is one group."""

    def __init__(self) -> None:
        self._groups: dict[Key, SharedGroup] = {}
        self.queues: dict[str, int] = {}
        """How many messages were counted in which queue."""
        self.other = 0
        """Messages in further groups than can be told apart."""

    @property
    def total(self) -> int:
        """How many messages were counted."""
        return sum(self.queues.values())

    def take(self, queue: str, groups: Groups) -> None:
        """Takes the groups of one more queue."""
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
        """All groups, the one whose last message failed most recently first; those of which nobody
        knows when come last, the largest first."""
        return sorted(
            self._groups.values(),
            key=lambda shared: (shared.group.last or _LONG_AGO, shared.group.count),
            reverse=True,
        )
