"""What somebody has said of a cause: that it is known or fixed, or that two are one. It stands in
the journal, so a team and all of its programs know the same."""

import re
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import StrEnum
from typing import Self

from redrive.errors import ConfigurationError
from redrive.failures.operator_name import whoami
from redrive.redaction import redact

LONGEST_NOTE, LONGEST_NAME, LONGEST_WHERE = 2000, 60, 4000
"""Characters of a note, of a name or a version, and of a filter."""
_WORDS = 300
_ID = re.compile(r"[0-9a-f]{12}")


class NoteKind(StrEnum):
    """What is said."""

    STATE = "state"
    """How far people are with it."""
    MERGE = "merge"
    """It is the same as another one."""
    SPLIT = "split"
    """Those of its messages that match a filter are a cause of their own: an older version said so,
    and it counts for nothing."""
    UNDO = "undo"
    """A remark is taken back."""


class CauseState(StrEnum):
    """How far people are with a cause."""

    NEW = "new"
    """Nobody has said anything of it."""
    KNOWN = "known"
    FIXED = "fixed"
    MUTED = "muted"
    FAILING_AGAIN = "failing again"
    """It is said to be fixed, and messages have failed for it since."""


SAYABLE = (CauseState.NEW, CauseState.KNOWN, CauseState.FIXED, CauseState.MUTED)
"""The states that people give; the other one is found."""


@dataclass(frozen=True, slots=True)
class CauseNote:
    """What somebody has said of a cause.

    Args:
        kind: what.
        group: the group id of the cause.
        words: the cause, in words for people.
        state: how far people are with it.
        fixed_in: the version that it is fixed in.
        note: a note.
        into: the group id of the cause that it is the same as.
        where: the filter that means the messages of a cause of its own.
        name: what that one is called.
        undoes: the id of the remark that is taken back.
        id: the remark's own id.
        at: when it was said.
        who: the operating system's user and its host.
        user: the broker's user, as the broker vouches for it; empty where it does not.
    """

    kind: NoteKind
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
                    f"{group[:40]!r} is no group id", "Give all of its twelve digits."
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
        if self.kind is NoteKind.STATE and self.state not in SAYABLE:
            raise ConfigurationError(
                f"{self.state.value!r} is found, and not said", f"Give one of {', '.join(SAYABLE)}."
            )
        if self.kind is NoteKind.MERGE and self.into in ("", self.group):
            raise ConfigurationError(
                "a cause is merged into another one", "Give the group id of that one."
            )
        if self.kind is NoteKind.SPLIT and (not self.where or not _is_name(self.name)):
            raise ConfigurationError(
                "a split needs a filter and a name without brackets",
                "Give which of its messages are apart, and what they are called.",
            )
        if self.kind is NoteKind.UNDO and not self.undoes:
            raise ConfigurationError("no remark is named", "Give the id of the one to take back.")

    def as_json(self) -> dict[str, object]:
        """It as JSON values, without what people must not read; who and when stand in the entry
        that has it."""
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
        """What `as_json` has written."""
        text = {name: value for name in _TEXTS if isinstance(value := values.get(name, ""), str)}
        return cls(
            NoteKind(str(values["kind"])),
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
