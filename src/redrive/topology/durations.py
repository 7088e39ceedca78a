"""Durations as the command line and the topology file take them."""

from datetime import timedelta

from redrive.durations import LENGTHS, NoDuration, parse_duration
from redrive.errors import ConfigurationError


def duration_of(text: str) -> timedelta:
    """The duration in a text such as `500ms`, `30s` or `1h30m`.

    Raises:
        ConfigurationError: it is none; the message says which part.
    """
    try:
        return parse_duration(text)
    except NoDuration as error:
        raise ConfigurationError(error.problem, error.remedy) from error


def text_of(duration: timedelta) -> str:
    """A duration as `duration_of` reads it."""
    left = duration // LENGTHS["ms"]
    parts: list[str] = []
    for unit in reversed(LENGTHS):
        count, left = divmod(left, LENGTHS[unit] // LENGTHS["ms"])
        if count:
            parts.append(f"{count}{unit}")
    return "".join(parts) or "0s"
