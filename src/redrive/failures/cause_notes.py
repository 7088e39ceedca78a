"""What a team has said of causes, as it is true of messages: states and notes, and causes that are
the same. Every shell groups and chooses by the same book."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from datetime import datetime

from redrive.errors import ConfigurationError
from redrive.failures.cause import Cause
from redrive.failures.cause_note import CauseNote, CauseState, NoteKind
from redrive.failures.columns import BY_NAME
from redrive.failures.filter import Filter, OpenFilter
from redrive.failures.groups import Group, Groups
from redrive.failures.look import Look

OnGroups = Callable[[Groups], object]


@dataclass(frozen=True, slots=True)
class CauseStatus:
    """How far people are with a cause.

    Args:
        state: that.
        note: what they have noted.
        fixed_in: the version that it is fixed in; empty where nobody has said so.
        who: who has said it last.
        at: when that was.
    """

    state: CauseState = CauseState.NEW
    note: str = ""
    fixed_in: str = ""
    who: str = ""
    at: datetime | None = None


class CauseNotes:
    """What a team has said of causes."""

    def __init__(self, remarks: Iterable[CauseNote] = ()) -> None:
        # In one order on every machine, whichever way the remarks have come there.
        known = sorted(remarks, key=lambda one: (one.at, one.id))
        undone = {one.undoes for one in known if one.kind is NoteKind.UNDO}
        self.remarks = [
            one for one in known if one.id not in undone and one.kind is not NoteKind.UNDO
        ]
        """Those that hold, the oldest first; those that split a cause are told of, and no more."""
        self._said = {one.group: one for one in self.remarks if one.kind is NoteKind.STATE}
        self._into: dict[str, str] = {}
        for one in self.remarks:
            # Whoever merges two that are one already has said nothing new, and no circle.
            if one.kind is NoteKind.MERGE and self._root(one.into) != self._root(one.group):
                self._into[self._root(one.group)] = self._root(one.into)

    def _root(self, group_id: str) -> str:
        while group_id in self._into:
            group_id = self._into[group_id]
        return group_id

    def about(self, group_id: str) -> list[CauseNote]:
        """The remarks that hold of a cause, and of those that are one with it."""
        ids = self.members(group_id)
        return [one for one in self.remarks if one.group in ids or one.into in ids]

    def members(self, group_id: str) -> set[str]:
        """The group ids of all causes that are one with it, itself included."""
        root = self._root(group_id)
        return {root, group_id, *(one for one in self._into if self._root(one) == root)}

    def standing_of(self, group: Group) -> CauseStatus:
        """How far people are with the cause of a group."""
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

    def named(self, remark_id: str) -> CauseNote:
        """The remark of this id, or with an id that begins so."""
        found = [one for one in self.remarks if remark_id and one.id.startswith(remark_id)]
        if len(found) != 1:
            raise ConfigurationError(
                f"{remark_id!r} names {len(found) or 'no'} remarks", "See: redrive causes list."
            )
        return found[0]

    # --- which messages ---------------------------------------------------------------------------

    def resolved(self, filter_: Filter) -> Filter:
        """Return a filter that means the messages of its groups as the book has these: of all
        causes that are one."""
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
        """The groups of a look by cause, as the book has them."""
        return self._merged(look.groups(BY_NAME["group_id"], filter_, on_progress))

    def counts_of(self, look: Look) -> dict[str, int]:
        """How many messages each cause of a former look has, by the id of its group, as the book
        has causes: for whoever asks again and again."""
        counts = look.kept.counts()
        found: dict[str, str] = {}
        totals: dict[str, int] = {}
        for group_id in sorted(counts, key=lambda one: -counts[one]):
            root = self._root(group_id)
            totals[root] = totals.get(root, 0) + counts[group_id]
            # Called as where groups are merged: by the one they were merged into, or the largest.
            if root not in found or group_id == root:
                found[root] = group_id
        return {found[root]: count for root, count in totals.items()}

    def count_of(self, look: Look, group_id: str) -> int:
        """How many messages of a former look are of a cause."""
        counts = look.kept.counts()
        return sum(counts.get(one, 0) for one in self.members(group_id))

    def _merged(self, groups: Groups) -> Groups:
        """The groups, with those that are one as one: the largest of them, or the one that the
        others were merged into, is what it is called."""
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
