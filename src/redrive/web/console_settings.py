"""The settings of a console."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import assert_never

from redrive.errors import ConfigurationError
from redrive.failures.jobs.local_journal import default_path
from redrive.failures.message.mask import Mask
from redrive.topology.doctor.act_rights import OperatorAct
from redrive.topology.names import ExchangeFamily
from redrive.web.auth.access_config import AccessConfig
from redrive.web.tracker_link import TrackerLink


class Permit(StrEnum):
    """What users may do besides reading."""

    REQUEUE = "requeue"
    EDIT = "edit"
    NOTE = "note"
    STORE = "store"
    DISCARD = "discard"
    PAUSE = "pause"


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsoleSettings:
    """The settings of a console.

    Args:
        url: the broker's address, with the user to act as.
        family: the exchange family of the subscriptions.
        management_url: the address of the management API; None for the broker's host and the
            default port.
        permits: what users may do; empty for reading only.
        hide_bodies: whether bodies are hidden: none is shown, queried, downloaded or stored on
            disk.
        mask: what to mask in bodies; None for nothing.
        journal: the local journal file; None for the one in the user's state directory.
        trackers: the issue trackers to link causes to.
        store: the folder for copies; None for one in the user's state directory.
        access: who may sign in, and from where.
        operator: the user that a proxy names; empty for this process's user.
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
        """Return whether the console permits an act, provided the broker does too."""
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
            case OperatorAct.PAUSE:
                return Permit.PAUSE in self.permits
            case _:
                assert_never(act)

    def check_allowed(self, act: OperatorAct) -> None:
        """Check that the console permits an act."""
        if self.allows(act):
            return
        if not self.permits:
            raise ConfigurationError(
                "this console is read-only",
                f"Start it with --allow {act.value}, or copy the command.",
            )
        allowed = ",".join(sorted({*self.permits, act.value}))
        raise ConfigurationError(
            f"this console does not allow {act.value}",
            f"Start it with --allow {allowed}, or copy the command.",
        )

    @property
    def may_requeue(self) -> bool:
        """Whether messages may be requeued."""
        return Permit.REQUEUE in self.permits

    @property
    def may_edit(self) -> bool:
        """Whether bodies may be changed when messages are requeued."""
        return self.may_requeue and Permit.EDIT in self.permits

    @property
    def may_note(self) -> bool:
        """Whether notes on causes may be added."""
        return Permit.NOTE in self.permits

    @property
    def may_store(self) -> bool:
        """Whether messages may be copied to files and restored from them."""
        return Permit.STORE in self.permits

    @property
    def store_folder(self) -> Path:
        """The folder for copies."""
        return self.store or default_path().with_name("store")

    @property
    def may_discard(self) -> bool:
        """Whether messages may be moved from their queue to a file."""
        return Permit.DISCARD in self.permits


def permits_of(words: Iterable[str]) -> frozenset[Permit]:
    """Parse permits, given as comma-separated words."""
    named = [part.strip() for word in words for part in word.split(",") if part.strip()]
    known = {permit.value: permit for permit in Permit}
    for name in named:
        if name not in known:
            raise ConfigurationError(
                f"{name!r} is not a permit", f"Choose from {', '.join(known)}."
            )
    permits = frozenset(known[name] for name in named)
    if Permit.EDIT in permits and Permit.REQUEUE not in permits:
        raise ConfigurationError(
            "edit needs requeue: an edited message is requeued",
            "Allow both: --allow requeue,edit.",
        )
    return permits
