"""Durations as Python code, the command line and topology files give them."""

from datetime import timedelta

from redrive.duration_text import NoDuration, parse_duration
from redrive.errors import ConfigurationError

Duration = timedelta | float | str
"""A timedelta, a number of seconds, or a text such as `500ms`, `30s` or `1h30m`."""


def duration_of(value: Duration, what: str = "the duration") -> timedelta:
    """Convert a value to a duration."""
    match value:
        case timedelta():
            return value
        case str():
            try:
                return parse_duration(value)
            except NoDuration as error:
                raise ConfigurationError(error.problem, error.remedy) from error
        case int() | float() if not isinstance(value, bool):
            try:
                return timedelta(seconds=value)
            except (OverflowError, ValueError):
                pass
    raise ConfigurationError(
        f"{what} is {value!r:.200}",
        "Give a timedelta, a number of seconds, or a text such as '30s'.",
    )
