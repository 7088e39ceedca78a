"""The parameters of a page request."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from urllib.parse import urlencode

from redrive.errors import ConfigurationError
from redrive.failures.store.filter import Filter
from redrive.number_text import count_of

_MOST_REASON = 500


@dataclass(frozen=True, slots=True)
class QueuePlace:
    """The queue of a page.

    Args:
        name: the main queue of a subscription, or a dead-letter queue.
        literal: whether `name` is the exact name of a queue that redrive did not create.
    """

    name: str
    literal: bool = False

    @property
    def asks(self) -> dict[str, str]:
        """The queue as query parameters."""
        return {"queue": self.name, **({"literal": "1"} if self.literal else {})}


@dataclass(frozen=True, slots=True)
class PageRequest:
    """The parameters of a request.

    Args:
        values: the values of the query string or the form.
        root: the path that the console is mounted at; empty for the root.
    """

    values: Mapping[str, str] = field(default_factory=dict)
    root: str = ""

    def text(self, name: str) -> str:
        """Return a value without surrounding spaces; empty if it is missing."""
        return self.values.get(name, "").strip()

    def check_reason(self) -> str:
        """Return the reason for an action that needs one."""
        if not self.reason:
            raise ConfigurationError("no reason given", "Give one: it goes into the journal.")
        return self.reason

    def check_typed(self, count: int, done: str) -> None:
        """Check that the user has typed how many messages would be acted on."""
        if not count or self.number("typed", -1, most=10**12) != count:
            raise ConfigurationError(
                f"{count_of(count, 'message')} would be {done}, but you did not type {count}",
                "Type the number to confirm.",
            )

    @property
    def reason(self) -> str:
        """The reason for an action, shortened for the journal."""
        return self.text("reason")[:_MOST_REASON]

    def number(self, name: str, default: int, *, least: int = 0, most: int = 10**9) -> int:
        """Return a value as a whole number."""
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
        """The requested queue."""
        name = self.values.get("queue", "")
        if not name:
            raise ConfigurationError("no queue given", "Choose one on the overview.")
        return QueuePlace(name, self.text("literal") == "1")

    @property
    def filter(self) -> Filter:
        """The filter for the requested messages."""
        groups = [group.strip() for group in self.text("group").split(",") if group.strip()]
        return Filter(self.text("where") or None, groups=tuple(groups))

    def link(self, path: str, values: Mapping[str, object] | None = None) -> str:
        """Return the address of a page with these parameters, without the empty ones."""
        said = [(name, str(value)) for name, value in (values or {}).items() if value != ""]
        return f"{self.root}{path}" + (
            f"?{urlencode(said, errors='surrogateescape')}" if said else ""
        )
