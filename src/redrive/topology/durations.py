"""Durations as people write them: `500ms`, `30s`, `1h30m`."""

import re
from datetime import timedelta

from redrive.errors import ConfigurationError

_LENGTHS = {
    "ms": timedelta(milliseconds=1),
    "s": timedelta(seconds=1),
    "m": timedelta(minutes=1),
    "h": timedelta(hours=1),
    "d": timedelta(days=1),
}
_PART = re.compile(r"(?P<number>[0-9]+(?:\.[0-9]+)?)(?P<unit>[^0-9.]*)")
_EXAMPLES = "Give numbers with a unit of ms, s, m, h or d: 500ms, 30s, 5m, 1h30m, 1d."


def duration_of(text: str) -> timedelta:
    """The duration in a text such as `500ms`, `30s` or `1h30m`.

    Raises:
        ConfigurationError: it is none; the message says which part.
    """
    total = timedelta()
    position = 0
    units: set[str] = set()
    while position < len(text):
        part = _PART.match(text, position)
        if part is None:
            raise ConfigurationError(f"the duration {text!r} can't be read from {text[position:]!r} on", _EXAMPLES)
        number, unit = part["number"], part["unit"]
        if not unit:
            raise ConfigurationError(f"the duration {text!r} has no unit after {number}", _EXAMPLES)
        if unit not in _LENGTHS:
            raise ConfigurationError(f"the duration {text!r} has the unit {unit!r} in {part[0]!r}, which is none", _EXAMPLES)
        if unit in units:
            raise ConfigurationError(f"the duration {text!r} has the unit {unit!r} twice", _EXAMPLES)
        units.add(unit)
        try:
            total += float(number) * _LENGTHS[unit]
        except OverflowError as error:
            raise ConfigurationError(f"the duration {text!r} is too long at {part[0]!r}", "Give a shorter one.") from error
        position = part.end()
    if not units:
        raise ConfigurationError("the duration is empty", _EXAMPLES)
    return total


def text_of(duration: timedelta) -> str:
    """A duration as `duration_of` reads it."""
    left = duration // _LENGTHS["ms"]
    parts: list[str] = []
    for unit in reversed(_LENGTHS):
        count, left = divmod(left, _LENGTHS[unit] // _LENGTHS["ms"])
        if count:
            parts.append(f"{count}{unit}")
    return "".join(parts) or "0s"
