"""Remarks about a cause: its state, or that it is the same as another one. They are in the journal,
so that a whole team and all of its programs see them."""

import re
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import StrEnum
from typing import Self

from redrive.errors import ConfigurationError
from redrive.failures.store.operator_name import whoami
from redrive.redaction import redact

LONGEST_NOTE, LONGEST_NAME, LONGEST_WHERE = 2000, 60, 4000
"""The maximum number of characters in a note, in a name or version, and in a filter."""
_WORDS = 300
_ID = re.compile(r"[0-9a-f]{12}")


class RemarkKind(StrEnum):
    """What a remark does."""

    STATE = "state"
    """Set the state of the cause."""
    MERGE = "merge"
    """Merge the cause into another one."""
    SPLIT = "split"
    """Make the messages that match a filter a cause of their own. Only older versions wrote it; it
    has no effect now."""
    UNDO = "undo"
    """Take back a remark."""


class CauseState(StrEnum):
    """The state of a cause."""

    NEW = "new"
    """There is no remark about it."""
    KNOWN = "known"
    FIXED = "fixed"
    MUTED = "muted"
    FAILING_AGAIN = "failing again"
    """It was marked as fixed, and messages have failed for it since."""


SAYABLE = (CauseState.NEW, CauseState.KNOWN, CauseState.FIXED, CauseState.MUTED)
"""The states that people can set; the other one is derived."""


@dataclass(frozen=True, slots=True)
class CauseRemark:
    """A remark about a cause.

    Args:
        kind: what it does.
        group: the group id of the cause.
        words: the cause, as readable text.
        state: the state of the cause.
        fixed_in: the version in which it is fixed.
        note: a note.
        into: the group id of the cause that it is merged into.
        where: the filter that matches the messages of a split cause.
        name: the name of that split cause.
        undoes: the id of the remark that is taken back.
        id: the remark's own id.
        at: when it was made.
        who: the author's operating-system user and host.
        user: the author's broker user if the broker vouches for it, otherwise empty.
    """

    kind: RemarkKind
    group: str
    words: str = ""
    state: CauseState = CauseState.KNOWN
    fixed_in: str = ""
    note: str = ""
    into: str = ""
    where: str = ""
    name: str = ""
    undoes: str = ""
    id: str = field(default_factory=lambda: str(uuid.uuid4()))
    at: datetime = field(default_factory=lambda: datetime.now(UTC))
    who: str = field(default_factory=whoami)
    user: str = ""

    def __post_init__(self) -> None:
        for group in (self.group, *([self.into] if self.into else [])):
            if not _ID.fullmatch(group):
                raise ConfigurationError(
                    f"{group[:40]!r} is not a group id", "Give all twelve digits."
                )
        for what, text, longest in (
            ("note", self.note, LONGEST_NOTE),
            ("name", self.name, LONGEST_NAME),
            ("version", self.fixed_in, LONGEST_NAME),
            ("filter", self.where, LONGEST_WHERE),
        ):
            if len(text) > longest:
                raise ConfigurationError(
                    f"the {what} has {len(text):,} characters", f"At most {longest:,} are kept."
                )
        self._check_kind()

    def _check_kind(self) -> None:
        if self.kind is RemarkKind.STATE and self.state not in SAYABLE:
            raise ConfigurationError(
                f"{self.state.value!r} can't be set", f"Give one of {', '.join(SAYABLE)}."
            )
        if self.kind is RemarkKind.MERGE and self.into in ("", self.group):
            raise ConfigurationError(
                "a cause can only be merged into another one", "Give that cause's group id."
            )
        if self.kind is RemarkKind.SPLIT and (not self.where or not _is_name(self.name)):
            raise ConfigurationError(
                "a split needs a filter and a name without brackets",
                "Give a filter for the messages to split off, and a name for them.",
            )
        if self.kind is RemarkKind.UNDO and not self.undoes:
            raise ConfigurationError(
                "no remark is given", "Give the id of the remark to take back."
            )

    def as_json(self) -> dict[str, object]:
        """Return the remark as JSON values, with secrets redacted. Its author and time are in the
        journal entry that contains it."""
        values = {
            "kind": self.kind.value,
            "group": self.group,
            "words": redact(self.words[:_WORDS]),
            "state": self.state.value,
            "fixed_in": redact(self.fixed_in),
            "note": redact(self.note),
            "into": self.into,
            "where": self.where,
            "name": self.name,
            "undoes": self.undoes,
        }
        return {name: value for name, value in values.items() if value}

    @classmethod
    def from_json(
        cls, values: Mapping[str, object], *, id_: str, at: datetime, who: str, user: str
    ) -> Self:
        """Return the remark that `as_json` wrote."""
        text = {name: value for name in _TEXTS if isinstance(value := values.get(name, ""), str)}
        return cls(
            RemarkKind(str(values["kind"])),
            state=CauseState(str(values.get("state", CauseState.KNOWN.value))),
            **{name: value[:LONGEST_WHERE] for name, value in text.items()},
            id=id_,
            at=at,
            who=who,
            user=user,
        )


_TEXTS = ("group", "words", "fixed_in", "note", "into", "where", "name", "undoes")


def _is_name(name: str) -> bool:
    return bool(name.strip()) and name.isprintable() and not set("[]") & set(name)
