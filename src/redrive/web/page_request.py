"""What a page was asked for."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from urllib.parse import urlencode

from redrive.errors import ConfigurationError
from redrive.failures.filter import Filter

_MOST_REASON = 500


@dataclass(frozen=True, slots=True)
class QueuePlace:
    """A queue that a page is about.

    Args:
        name: the main queue of a subscription, or a dead-letter queue.
        literal: whether the queue of this very name is meant, which redrive did not make.
    """

    name: str
    literal: bool = False

    @property
    def asks(self) -> dict[str, str]:
        """It as a part of an address."""
        return {"queue": self.name, **({"literal": "1"} if self.literal else {})}


@dataclass(frozen=True, slots=True)
class PageRequest:
    """A request, as far as pages look at it.

    Args:
        values: what the address says, or the form.
        root: the path that the console is mounted at; empty for the root.
    """

    values: Mapping[str, str] = field(default_factory=dict)
    root: str = ""

    def text(self, name: str) -> str:
        """A value without spaces around it; empty where it was not given."""
        return self.values.get(name, "").strip()

    @property
    def reason(self) -> str:
        """Why somebody does something, as the journal takes it."""
        return self.text("reason")[:_MOST_REASON]

    def number(self, name: str, default: int, *, least: int = 0, most: int = 10**9) -> int:
        """A whole number."""
        text = self.text(name).replace(",", "")
        if not text:
            return default
        if not text.isdecimal() or not text.isascii() or not least <= int(text[:18]) <= most:
            raise ConfigurationError(
                f"{name} is {text[:40]!r}",
                f"Give a whole number from {least:,} to {most:,}.",
            )
        return int(text)

    @property
    def place(self) -> QueuePlace:
        """The queue that is meant."""
        name = self.values.get("queue", "")
        if not name:
            raise ConfigurationError("no queue was named", "Choose one on the overview.")
        return QueuePlace(name, self.text("literal") == "1")

    @property
    def filter(self) -> Filter:
        """Which messages are meant."""
        groups = [group.strip() for group in self.text("group").split(",") if group.strip()]
        return Filter(self.text("where") or None, groups=tuple(groups))

    def link(self, path: str, values: Mapping[str, object] | None = None) -> str:
        """The address of a page of the console, with what it is asked for; what is empty is left
        out."""
        said = [(name, str(value)) for name, value in (values or {}).items() if value != ""]
        return f"{self.root}{path}" + (
            f"?{urlencode(said, errors='surrogateescape')}" if said else ""
        )
