"""A team's remarks about causes, applied to messages: states, notes, and causes that are merged.
Every user interface groups and filters messages by them."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from datetime import datetime

from redrive.errors import ConfigurationError
from redrive.failures.jobs.cause_remark import CauseRemark, CauseState, RemarkKind
from redrive.failures.message.cause import Cause
from redrive.failures.message.columns import BY_NAME
from redrive.failures.message.groups import Group, Groups
from redrive.failures.store.filter import Filter, OpenFilter
from redrive.failures.store.look import Look

OnGroups = Callable[[Groups], object]


@dataclass(frozen=True, slots=True)
class CauseStatus:
    """The state of a cause.

    Args:
        state: the state.
        note: the team's note.
        fixed_in: the version in which it is fixed; empty if nobody gave one.
        who: who made the last remark.
        at: when that was.
    """

    state: CauseState = CauseState.NEW
    note: str = ""
    fixed_in: str = ""
    who: str = ""
    at: datetime | None = None


class CauseRemarks:
    """A team's remarks about causes."""

    def __init__(self, remarks: Iterable[CauseRemark] = ()) -> None:
        # Sort them, so that every machine has the same order however the remarks arrived.
        known = sorted(remarks, key=lambda one: (one.at, one.id))
        undone = {one.undoes for one in known if one.kind is RemarkKind.UNDO}
        self.remarks = [
            one for one in known if one.id not in undone and one.kind is not RemarkKind.UNDO
        ]
        """The remarks in effect, oldest first. Those that split a cause are listed, but have no
        effect."""
        self._said = {one.group: one for one in self.remarks if one.kind is RemarkKind.STATE}
        self._into: dict[str, str] = {}
        for one in self.remarks:
            # Ignore a merge of causes that are already merged, which would make a circle.
            if one.kind is RemarkKind.MERGE and self._root(one.into) != self._root(one.group):
                self._into[self._root(one.group)] = self._root(one.into)

    def _root(self, group_id: str) -> str:
        while group_id in self._into:
            group_id = self._into[group_id]
        return group_id

    def about(self, group_id: str) -> list[CauseRemark]:
        """Return the remarks in effect about a cause and the causes merged with it."""
        ids = self.members(group_id)
        return [one for one in self.remarks if one.group in ids or one.into in ids]

    def members(self, group_id: str) -> set[str]:
        """Return the group ids of all causes merged with a cause, including its own."""
        root = self._root(group_id)
        return {root, group_id, *(one for one in self._into if self._root(one) == root)}

    def standing_of(self, group: Group) -> CauseStatus:
        """Return the state of a group's cause."""
        if not isinstance(group.key, Cause):
            return CauseStatus()
        said = [one for id_ in self.members(group.key.group_id) if (one := self._said.get(id_))]
        if not said:
            return CauseStatus()
        last = max(said, key=lambda one: (one.at, one.id))
        is_back = last.state is CauseState.FIXED and group.last is not None and group.last > last.at
        return CauseStatus(
            CauseState.FAILING_AGAIN if is_back else last.state,
            last.note,
            last.fixed_in,
            f"{last.who}{f' as {last.user}' if last.user else ''}",
            last.at,
        )

    def named(self, remark_id: str) -> CauseRemark:
        """Return the remark whose id is or begins with this one."""
        found = [one for one in self.remarks if remark_id and one.id.startswith(remark_id)]
        if len(found) != 1:
            raise ConfigurationError(
                f"{remark_id!r} names {len(found) or 'no'} remarks", "See: redrive causes list."
            )
        return found[0]

    # --- which messages ---------------------------------------------------------------------------

    def resolved(self, filter_: Filter) -> Filter:
        """Return a filter that also matches messages of causes merged with those it names."""
        if not filter_.groups or not self._into:
            return filter_
        known = {*self._into, *self._into.values()}
        ids: set[str] = set()
        for prefix in filter_.groups:
            ids.update(*(self.members(one) for one in known if one.startswith(prefix)))
        return replace(filter_, groups=tuple({*filter_.groups, *ids}))

    # --- groups -----------------------------------------------------------------------------------

    def groups_of(
        self, look: Look, filter_: OpenFilter, on_progress: OnGroups = lambda _: None
    ) -> Groups:
        """Return the groups of a look by cause, with merged causes combined."""
        return self._merged(look.groups(BY_NAME["group_id"], filter_, on_progress))

    def counts_of(self, look: Look) -> dict[str, int]:
        """Return how many messages of a former look each cause has, by group id, with merged causes
        combined. It is cheap enough to call again and again."""
        counts = look.kept.counts()
        found: dict[str, str] = {}
        totals: dict[str, int] = {}
        for group_id in sorted(counts, key=lambda one: -counts[one]):
            root = self._root(group_id)
            totals[root] = totals.get(root, 0) + counts[group_id]
            # Use the same id as for merged groups: that of the merge's target, or of the largest
            # cause.
            if root not in found or group_id == root:
                found[root] = group_id
        return {found[root]: count for root, count in totals.items()}

    def count_of(self, look: Look, group_id: str) -> int:
        """Return how many messages of a former look have a cause."""
        counts = look.kept.counts()
        return sum(counts.get(one, 0) for one in self.members(group_id))

    def _merged(self, groups: Groups) -> Groups:
        """Combine merged groups; each gets the key of the merge's target, or of its largest
        group."""
        if not self._into:
            return groups
        found: dict[object, Group] = {}
        for group in groups.largest_first:
            root: object = group.key
            if isinstance(group.key, Cause):
                root = self._root(group.key.group_id)
            known = found.get(root)
            if known is None:
                found[root] = group
                continue
            if isinstance(group.key, Cause) and group.key.group_id == root:
                known.key = group.key
            known.take(group)
        merged = Groups()
        merged.take(found.values(), groups.total)
        return merged
