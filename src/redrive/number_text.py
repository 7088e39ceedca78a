"""Numbers as people read them: counts, sizes and ages.

This module imports nothing of redrive, so that all parts can use it.
"""

from datetime import UTC, datetime, timedelta

_UNITS = {
    "day": timedelta(days=1),
    "hour": timedelta(hours=1),
    "minute": timedelta(minutes=1),
    "second": timedelta(seconds=1),
}


def count_of(number: int, noun: str) -> str:
    """Return a number and its noun: `1 message`, `1,200 messages`."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def size_in_words(size: float) -> str:
    """Return a size in bytes as text, such as `512 B` or `1.2 MiB`."""
    for unit, digits in (("B", 0), ("KiB", 0), ("MiB", 1), ("GiB", 1)):
        if size < 1024:
            return f"{size:.{digits}f} {unit}"
        size /= 1024
    return f"{size:.1f} TiB"


def age_in_words(moment: datetime | None, now: datetime) -> str:
    """Return how long ago a time was, in its largest unit: `2 hours ago`."""
    if moment is None:
        return "at an unknown time"
    age = now - moment
    for unit, length in _UNITS.items():
        if age >= length:
            return f"{count_of(age // length, unit)} ago"
    return "just now"


def moment_in_words(moment: datetime | None) -> str:
    """Return a time in UTC, to the second."""
    return "–" if moment is None else f"{moment.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC"
