"""What a console is told when it starts."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import assert_never

from redrive.errors import ConfigurationError
from redrive.failures.local_journal import default_path
from redrive.failures.mask import Mask
from redrive.topology.doctor.act_rights import OperatorAct
from redrive.topology.names import ExchangeFamily
from redrive.web.access_config import AccessConfig
from redrive.web.tracker_link import TrackerLink


class Permit(StrEnum):
    """What people may do besides reading."""

    REQUEUE = "requeue"
    EDIT = "edit"
    NOTE = "note"
    STORE = "store"
    DISCARD = "discard"


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsoleSettings:
    """What a console is told when it starts.

    Args:
        url: the broker's address, with the user that acts.
        family: the exchange family of the subscriptions.
        management_url: where the management API is; None for the broker's host and the usual port.
        permits: what may be done; none for reading alone.
        hide_bodies: whether no body is shown, asked for, given for download or kept on the disk.
        mask: what is hidden in bodies; None for nothing.
        journal: the local file of the journal; None for the one in the user's state directory.
        trackers: where the team keeps track of what is wrong.
        store: the folder of copies; None for one in the user's state directory.
        access: who may come in, and from where.
        operator: who acts, where a proxy says it; empty for this process's user.
    """

    url: str = field(repr=False)
    family: ExchangeFamily = field(default_factory=ExchangeFamily)
    management_url: str | None = None
    permits: frozenset[Permit] = frozenset()
    hide_bodies: bool = False
    mask: Mask | None = None
    journal: Path | None = None
    trackers: tuple[TrackerLink, ...] = ()
    store: Path | None = None
    access: AccessConfig = field(default_factory=AccessConfig)
    operator: str = ""

    def allows(self, act: OperatorAct) -> bool:
        """Whether the console does this, if the broker lets the user."""
        match act:
            case OperatorAct.LOOK:
                return True
            case OperatorAct.REQUEUE:
                return self.may_requeue
            case OperatorAct.EDIT:
                return self.may_edit
            case OperatorAct.DISCARD:
                return self.may_discard
            case OperatorAct.DECLARE:
                return False
            case _:
                assert_never(act)

    def check_allowed(self, act: OperatorAct) -> None:
        """Checks that the console does this."""
        if self.allows(act):
            return
        if not self.permits:
            raise ConfigurationError(
                "this console only reads",
                f"Start it with --allow {act.value}, or copy the command.",
            )
        allowed = ",".join(sorted({*self.permits, act.value}))
        raise ConfigurationError(
            f"this console does not {act.value}",
            f"Start it with --allow {allowed}, or copy the command.",
        )

    @property
    def may_requeue(self) -> bool:
        """Whether messages may be requeued."""
        return Permit.REQUEUE in self.permits

    @property
    def may_edit(self) -> bool:
        """Whether bodies may be changed on their way."""
        return self.may_requeue and Permit.EDIT in self.permits

    @property
    def may_note(self) -> bool:
        """Whether something may be said of causes."""
        return Permit.NOTE in self.permits

    @property
    def may_store(self) -> bool:
        """Whether messages may be copied to files, and restored from them."""
        return Permit.STORE in self.permits

    @property
    def store_folder(self) -> Path:
        """The folder of copies."""
        return self.store or default_path().with_name("store")

    @property
    def may_discard(self) -> bool:
        """Whether messages may be moved out of their queue into a file."""
        return Permit.DISCARD in self.permits


def permits_of(words: Iterable[str]) -> frozenset[Permit]:
    """What is permitted by words with commas between them."""
    named = [part.strip() for word in words for part in word.split(",") if part.strip()]
    known = {permit.value: permit for permit in Permit}
    for name in named:
        if name not in known:
            raise ConfigurationError(
                f"{name!r} can't be allowed", f"Give some of {', '.join(known)}."
            )
    permits = frozenset(known[name] for name in named)
    if Permit.EDIT in permits and Permit.REQUEUE not in permits:
        raise ConfigurationError(
            "edit is allowed, and requeue is not: an edited message is requeued",
            "Allow both: --allow requeue,edit.",
        )
    return permits
