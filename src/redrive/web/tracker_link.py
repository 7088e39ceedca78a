"""Links to where a team keeps track of what is wrong: a template of an address, in which a cause is
filled in."""

import re
from dataclasses import dataclass
from typing import Self
from urllib.parse import quote, urlsplit

from redrive.errors import ConfigurationError
from redrive.failures.cause import Cause

_PLACE = re.compile(r"\{([^{}]*)\}")
_KNOWN = ("type", "message", "frame", "group", "queue")
_LONGEST = 300
"""Characters of what is filled in."""


@dataclass(frozen=True, slots=True)
class TrackerLink:
    """A template such as `https://tracker/search?q={type}`.

    Args:
        template: it.
        host: what it is called.
    """

    template: str
    host: str

    @classmethod
    def of(cls, template: str) -> Self:
        """The tracker of a template."""
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
            raise ConfigurationError(f"{template[:80]!r} is no address of a tracker", _EXAMPLE)
        if not named or not set(named) <= set(_KNOWN):
            raise ConfigurationError(
                f"{template[:80]!r} asks for {', '.join(sorted(set(named))) or 'nothing'}",
                f"Put some of {', '.join(f'{{{one}}}' for one in _KNOWN)} into it.",
            )
        return cls(template, str(parts.hostname))

    def address(self, cause: Cause, queue: str) -> str:
        """The address that a cause makes of it. What a stranger has written is a value in it, and
        never more."""
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
