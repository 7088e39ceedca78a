"""What a console is told when it starts."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Self

from redrive.errors import ConfigurationError
from redrive.failures.local_journal import default_path
from redrive.topology.names import ExchangeFamily
from redrive.web.tracker import Tracker


class Permit(StrEnum):
    """What people may do besides reading."""

    REQUEUE = "requeue"
    EDIT = "edit"
    NOTE = "note"
    STORE = "store"


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsoleSettings:
    """What a console is told when it starts.

    Args:
        url: the broker's address.
        family: the exchange family of the subscriptions.
        management_url: where the management API is; None for the broker's host and the usual port.
        permits: what may be done; none for reading alone.
        hide_bodies: whether no body is shown, asked for or given for download.
        journal: the local file of the journal; None for the one in the user's state directory.
        trackers: where the team keeps track of what is wrong.
        store: the folder of copies; None for one in the user's state directory.
    """

    url: str
    family: ExchangeFamily = field(default_factory=ExchangeFamily)
    management_url: str | None = None
    permits: frozenset[Permit] = frozenset()
    hide_bodies: bool = False
    journal: Path | None = None
    trackers: tuple[Tracker, ...] = ()
    store: Path | None = None

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


@dataclass(frozen=True, slots=True)
class ListenPlace:
    """Where a console listens.

    Args:
        host: an address of the loopback.
        port: the port; 0 for any that is free.
    """

    host: str
    port: int

    @classmethod
    def of(cls, text: str) -> Self:
        """The place in a text such as `127.0.0.1:8015`, `[::1]:8015` or `localhost:0`.

        Raises:
            ConfigurationError: it is none, or others than this machine could reach it.
        """
        host, separator, port = text.rpartition(":")
        is_bracketed = host.startswith("[") and host.endswith("]")
        host = host[1:-1] if is_bracketed else host
        if not separator or not port.isdecimal() or int(port) > 65535 or not port.isascii():
            raise ConfigurationError(f"{text!r} is no host and port to listen at", _EXAMPLE)
        if host not in _LOOPBACK:
            raise ConfigurationError(
                f"the console would be reached at {text!r} by others, and has no login",
                "Listen on the loopback, 127.0.0.1 or [::1], and reach it by ssh -L.",
            )
        return cls(host, int(port))

    def hosts(self, port: int) -> frozenset[str]:
        """The names with a port that a browser on this machine asks for it by: what a `Host` header
        may say."""
        return frozenset(f"{host}:{port}" for host in ("127.0.0.1", "localhost", "[::1]"))

    def address(self, port: int) -> str:
        """Where a browser finds it."""
        return f"http://{f'[{self.host}]' if ':' in self.host else self.host}:{port}"


def permits_of(words: Iterable[str]) -> frozenset[Permit]:
    """What is permitted by words with commas between them.

    Raises:
        ConfigurationError: one of them is no permit, or depends on one that is missing.
    """
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


_EXAMPLE = "Give one such as 127.0.0.1:8015 or [::1]:8015."
_LOOPBACK = frozenset({"127.0.0.1", "::1", "localhost"})
