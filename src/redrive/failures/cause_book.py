"""What a team has said of causes, as it is true of messages: states and notes, causes that are the
same, and causes that were split. Every shell groups and chooses by the same book."""

import contextlib
import hashlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from redrive.errors import ConfigurationError
from redrive.failures.cause import Cause, cause_of
from redrive.failures.cause_remark import CauseRemark, CauseState, RemarkKind
from redrive.failures.columns import BY_NAME
from redrive.failures.failed_message import FailedMessage
from redrive.failures.filter import Filter, OpenFilter
from redrive.failures.groups import Group, Groups
from redrive.failures.kept_messages import KeptMessages
from redrive.failures.look import Look

_OPEN, _CLOSE = "  [", "]"
"""Around the name of a part. A masked message never has two spaces."""
_HEX = frozenset("0123456789abcdef")
_ID_LENGTH = 12
OnGroups = Callable[[Groups], object]


class CausePart(Cause):
    """Messages of a cause that were split from it; its message ends with their name."""

    __slots__ = ()

    @property
    def group_id(self) -> str:
        """Twelve hex digits that are the same for the same part, on every machine."""
        message, _, name = self.message.rpartition(_OPEN)
        return part_id(
            Cause(self.error_type, message, self.frame).group_id, name.removesuffix(_CLOSE)
        )

    @classmethod
    def of(cls, cause: Cause, name: str) -> "CausePart":
        """The part of a cause with this name."""
        return cls(cause.error_type, f"{cause.message}{_OPEN}{name}{_CLOSE}", cause.frame)


def part_id(group_id: str, name: str) -> str:
    """The group id of a part of a cause."""
    return hashlib.sha256(f"{group_id}\n{name}".encode()).hexdigest()[:_ID_LENGTH]


@dataclass(frozen=True, slots=True)
class CauseStanding:
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


class CauseBook:
    """What a team has said of causes.

    Args:
        remarks: all remarks, those taken back included.
    """

    def __init__(self, remarks: Iterable[CauseRemark] = ()) -> None:
        # In one order on every machine, whichever way the remarks have come there.
        known = sorted(remarks, key=lambda one: (one.at, one.id))
        undone = {one.undoes for one in known if one.kind is RemarkKind.UNDO}
        self.remarks = [
            one for one in known if one.id not in undone and one.kind is not RemarkKind.UNDO
        ]
        """Those that hold, the oldest first."""
        self.problem = ""
        """Why the parts of causes were not told apart when last asked; empty if they were."""
        self._said = {one.group: one for one in self.remarks if one.kind is RemarkKind.STATE}
        self._splits = {
            (one.group, one.name): one for one in self.remarks if one.kind is RemarkKind.SPLIT
        }
        self._into: dict[str, str] = {}
        for one in self.remarks:
            # Whoever merges two that are one already has said nothing new, and no circle.
            if one.kind is RemarkKind.MERGE and self._root(one.into) != self._root(one.group):
                self._into[self._root(one.group)] = self._root(one.into)

    def _root(self, group_id: str) -> str:
        while group_id in self._into:
            group_id = self._into[group_id]
        return group_id

    def about(self, group_id: str) -> list[CauseRemark]:
        """The remarks that hold of a cause, of those that are one with it, and of its parts."""
        ids = self.members(group_id)
        return [
            one
            for one in self.remarks
            if one.group in ids or part_id(one.group, one.name) in ids or one.into in ids
        ]

    def members(self, group_id: str) -> set[str]:
        """The group ids of all causes that are one with it, itself included."""
        root = self._root(group_id)
        return {root, group_id, *(one for one in self._into if self._root(one) == root)}

    def standing_of(self, group: Group) -> CauseStanding:
        """How far people are with the cause of a group."""
        if not isinstance(group.key, Cause):
            return CauseStanding()
        said = [one for id_ in self.members(group.key.group_id) if (one := self._said.get(id_))]
        if not said:
            return CauseStanding()
        last = max(said, key=lambda one: (one.at, one.id))
        is_back = last.state is CauseState.FIXED and group.last is not None and group.last > last.at
        return CauseStanding(
            CauseState.FAILING_AGAIN if is_back else last.state,
            last.note,
            last.fixed_in,
            f"{last.who}{f' as {last.user}' if last.user else ''}",
            last.at,
        )

    def named(self, remark_id: str) -> CauseRemark:
        """The remark of this id, or with an id that begins so.

        Raises:
            ConfigurationError: none holds, or several begin so.
        """
        found = [one for one in self.remarks if remark_id and one.id.startswith(remark_id)]
        if len(found) != 1:
            raise ConfigurationError(
                f"{remark_id!r} names {len(found) or 'no'} remarks", "See: redrive causes list."
            )
        return found[0]

    # --- which messages ---------------------------------------------------------------------------

    def resolved(self, filter_: Filter) -> Filter:
        """A filter that means the messages of its groups as the book has these: of all causes that
        are one, and of a cause without the parts that were split from it.

        Raises:
            ConfigurationError: it has a function besides, and a group that was split.
        """
        if not filter_.groups or not (self._into or self._splits):
            return filter_
        ids: set[str] = set()
        for prefix in filter_.groups:
            ids.update(*(self.members(one) for one in self._known() if one.startswith(prefix)))
        parts = {part_id(*key): one for key, one in self._splits.items()}
        split = {group for group, _ in self._splits}
        if not ids & (parts.keys() | split):
            return replace(filter_, groups=tuple({*filter_.groups, *ids}))
        if callable(filter_.where):
            raise ConfigurationError(
                "a group that was split can't be chosen together with a function",
                "Give an expression of the filter language.",
            )
        meant = [self._term(one) for one in sorted(ids)]
        meant += [
            f"starts_with(group_id, '{prefix}')"
            + "".join(f" AND group_id <> '{one}'" for one in sorted(split))
            for prefix in filter_.groups
            if _HEX.issuperset(prefix)
        ]
        terms = " OR ".join(f"({term})" for term in meant)
        where = f"({terms})" if filter_.where is None else f"({filter_.where}\n) AND ({terms})"
        return replace(filter_, where=where, groups=())

    def _known(self) -> set[str]:
        """All group ids that a merge or a split speaks of."""
        parts = {part_id(*key) for key in self._splits}
        return {*self._into, *self._into.values(), *parts, *(group for group, _ in self._splits)}

    def _term(self, group_id: str) -> str:
        """The expression that means the messages of one cause, without those of its parts."""
        for (group, name), one in self._splits.items():
            if part_id(group, name) == group_id:
                before = self._before(one)
                return f"group_id = '{group}'{''.join(map(_not, before))}{_and(one)}"
        apart = [one for one in self._splits.values() if one.group == group_id]
        return f"group_id = '{group_id}'{''.join(map(_not, apart))}"

    def _before(self, split: CauseRemark) -> list[CauseRemark]:
        """The splits of the same cause that come first: what they mean is theirs."""
        of_group = [one for one in self._splits.values() if one.group == split.group]
        return of_group[: of_group.index(split)]

    # --- groups -----------------------------------------------------------------------------------

    def groups_of(
        self, look: Look, filter_: OpenFilter, on_progress: OnGroups = lambda _: None
    ) -> Groups:
        """The groups of a look by cause, as the book has them.

        Args:
            look: the look.
            filter_: which of its messages, as it is resolved.
            on_progress: is given what was counted so far, while a look goes on.

        Raises:
            ConfigurationError: the filter of a split can't be said of a message.
        """
        by = BY_NAME["group_id"]
        if not self._splits:
            found = look.groups(by, filter_, on_progress)
        elif isinstance(look.messages, KeptMessages):
            try:
                found = self._kept_groups(look, filter_.filter)
            except ConfigurationError as error:
                # If that was the filter that was given, it is no better without the splits.
                found = look.groups(by, filter_)
                self.problem = str(error)
        else:
            found = self._counted(look, filter_, on_progress)
        return self._merged(found)

    def counts_of(self, look: Look) -> dict[str, int]:
        """How many messages each cause of a former look has, by the id of its group, as the book
        has causes: for whoever asks again and again."""
        if self._splits:
            with OpenFilter(Filter()) as all_:
                groups = self.groups_of(look, all_).largest_first
            return {one.key.group_id: one.count for one in groups if isinstance(one.key, Cause)}
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
        if not self._splits:
            counts = look.kept.counts()
            return sum(counts.get(one, 0) for one in self.members(group_id))
        with OpenFilter(self.resolved(Filter(groups=(group_id,)))) as of_cause:
            return look.kept_matching(of_cause).count()

    def _kept_groups(self, look: Look, filter_: Filter) -> Groups:
        """One question for what was split from nothing, and one for each part."""
        with OpenFilter(_within(filter_, self._rest())) as rest:
            found = look.groups(filter_=rest)
        groups, total = found.largest_first, found.total
        for one in self._splits.values():
            term = self._term(part_id(one.group, one.name))
            with OpenFilter(_within(filter_, term)) as of_part:
                part = look.groups(filter_=of_part)
            total += part.total
            for group in part.largest_first:
                if isinstance(group.key, Cause):
                    group.key = CausePart.of(group.key, one.name)
                groups.append(group)
        all_of_them = Groups()
        all_of_them.take(groups, total)
        return all_of_them

    def _rest(self) -> str:
        """The expression that means what is in no part."""
        parts = (self._term(part_id(one.group, one.name)) for one in self._splits.values())
        return " AND ".join(f"NOT ({term})" for term in parts)

    def _counted(self, look: Look, filter_: OpenFilter, on_progress: OnGroups) -> Groups:
        with contextlib.ExitStack() as held:
            splits = [
                (one, held.enter_context(OpenFilter(Filter(one.where, groups=(one.group,)))))
                for one in self._splits.values()
            ]
            groups = _PartGroups(splits)
            some: list[FailedMessage] = []
            for message in look.matching(filter_):
                some.append(message)
                if len(some) == _AT_A_TIME:
                    groups.add(some)
                    on_progress(groups)
                    some = []
            groups.add(some)
        return groups

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


_AT_A_TIME = 250


class _PartGroups(Groups):
    """Groups by cause, in which the parts that were split from a cause are apart."""

    def __init__(self, splits: Sequence[tuple[CauseRemark, OpenFilter]]) -> None:
        super().__init__()
        self._splits = splits

    def add(self, messages: Iterable[FailedMessage]) -> None:
        """Counts messages."""
        some = list(messages)
        names: dict[int, str] = {}
        for split, means in self._splits if some else ():
            for number, is_meant in enumerate(means(some)):
                if is_meant:
                    names.setdefault(number, split.name)
        for number, message in enumerate(some):
            cause = cause_of(message)
            name = names.get(number)
            self.count(message, cause if name is None else CausePart.of(cause, name))


def _and(split: CauseRemark) -> str:
    return f" AND coalesce((\n{split.where}\n), false)"


def _not(split: CauseRemark) -> str:
    return f" AND NOT coalesce((\n{split.where}\n), false)"


def _within(filter_: Filter, term: str) -> Filter:
    where = filter_.where
    return replace(filter_, where=term if where is None else f"(\n{where}\n) AND ({term})")
