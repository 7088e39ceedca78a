"""Links to an issue tracker: a URL template that is filled in for a cause."""

import re
from dataclasses import dataclass
from typing import Self
from urllib.parse import quote, urlsplit

from redrive.errors import ConfigurationError
from redrive.failures.message.cause import Cause

_PLACE = re.compile(r"\{([^{}]*)\}")
_KNOWN = ("type", "message", "frame", "group", "queue")
_LONGEST = 300
"""Most characters of each value that is filled in."""


@dataclass(frozen=True, slots=True)
class TrackerLink:
    """A URL template such as `https://tracker/search?q={type}`.

    Args:
        template: the template.
        host: the tracker's host, which names the link.
    """

    template: str
    host: str

    @classmethod
    def of(cls, template: str) -> Self:
        """Parse a template."""
        named = _PLACE.findall(template)
        bare = _PLACE.sub("", template)
        try:
            parts = urlsplit(template)
            is_address = (
                parts.scheme in ("http", "https")
                and bool(parts.hostname)
                and not set("{}@") & set(parts.netloc)
                and template.isprintable()
                and " " not in template
            )
        except ValueError:
            is_address = False
        if not is_address or set("{}") & set(bare):
            raise ConfigurationError(f"{template[:80]!r} is not a tracker URL", _EXAMPLE)
        if not named or not set(named) <= set(_KNOWN):
            raise ConfigurationError(
                f"{template[:80]!r} has the fields {', '.join(sorted(set(named))) or '(none)'}",
                f"Use one or more of {', '.join(f'{{{one}}}' for one in _KNOWN)}.",
            )
        return cls(template, str(parts.hostname))

    def address(self, cause: Cause, queue: str) -> str:
        """Return the URL for a cause. All values are quoted: they come from messages, and must not
        change the rest of the URL."""
        values = {
            "type": cause.error_type.rpartition(".")[2],
            "message": cause.message,
            "frame": cause.frame,
            "group": cause.group_id,
            "queue": queue,
        }
        return _PLACE.sub(
            lambda found: quote(values[found[1]][:_LONGEST], safe="", errors="replace"),
            self.template,
        )


_EXAMPLE = "Give one such as 'https://tracker/search?q={type}'."
