"""Select old failed messages: those that failed before a given time."""

from datetime import datetime

from redrive.errors import ConfigurationError
from redrive.failures.store.filter import Filter
from redrive.topology.durations import duration_of


def moment_before(older_than: str, now: datetime) -> datetime:
    """Return the time before which messages must have failed to be older than a duration."""
    try:
        return now - duration_of(older_than)
    except OverflowError as error:
        raise ConfigurationError(
            f"{older_than} ago is before the year 1", "Give a shorter duration."
        ) from error


def failed_before(moment: datetime) -> Filter:
    """Return a filter that matches messages that failed before a time; those without a time of
    failure, as services without redrive leave them, do not match."""
    return Filter(f"failed_at < TIMESTAMPTZ '{moment.isoformat()}'")
