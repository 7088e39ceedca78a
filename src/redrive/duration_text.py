"""Read and write durations such as `500ms`, `30s` and `1h30m`.

This module imports nothing of redrive, since an error message may contain a duration.
"""

import re
from datetime import timedelta

LENGTHS = {
    "ms": timedelta(milliseconds=1),
    "s": timedelta(seconds=1),
    "m": timedelta(minutes=1),
    "h": timedelta(hours=1),
    "d": timedelta(days=1),
}
_PART = re.compile(r"(?P<number>[0-9]+(?:\.[0-9]+)?)(?P<unit>[^0-9.]*)")
_EXAMPLES = "Give numbers with a unit of ms, s, m, h or d: 500ms, 30s, 5m, 1h30m, 1d."


class NoDuration(ValueError):
    """A text that is not a valid duration."""

    def __init__(self, problem: str, remedy: str = _EXAMPLES) -> None:
        super().__init__(problem, remedy)
        self.problem = problem
        self.remedy = remedy


def parse_duration(text: str) -> timedelta:
    """Parse a duration such as `500ms`, `30s` or `1h30m`."""
    total = timedelta()
    position = 0
    units: set[str] = set()
    while position < len(text):
        part = _PART.match(text, position)
        if part is None:
            raise NoDuration(f"the duration {text!r} can't be read from {text[position:]!r} on")
        number, unit = part["number"], part["unit"]
        if not unit:
            raise NoDuration(f"the duration {text!r} has no unit after {number}")
        if unit not in LENGTHS:
            raise NoDuration(f"the duration {text!r} has the unknown unit {unit!r} in {part[0]!r}")
        if unit in units:
            raise NoDuration(f"the duration {text!r} has the unit {unit!r} twice")
        units.add(unit)
        try:
            total += float(number) * LENGTHS[unit]
        except OverflowError as error:
            raise NoDuration(
                f"the duration {text!r} is too long at {part[0]!r}", "Give a shorter one."
            ) from error
        position = part.end()
    if not units:
        raise NoDuration("the duration is empty")
    return total


def format_duration(duration: timedelta) -> str:
    """Format a duration the way `parse_duration` reads it, to the millisecond."""
    left = duration // LENGTHS["ms"]
    parts: list[str] = []
    for unit in reversed(LENGTHS):
        count, left = divmod(left, LENGTHS[unit] // LENGTHS["ms"])
        if count:
            parts.append(f"{count}{unit}")
    return "".join(parts) or "0s"
