"""Which failed messages are old: those that failed before a moment."""

from datetime import datetime

from redrive.errors import ConfigurationError
from redrive.failures.filter import Filter
from redrive.topology.durations import duration_of


def moment_before(older_than: str, now: datetime) -> datetime:
    """The moment before which a message has failed that is older than a duration."""
    try:
        return now - duration_of(older_than)
    except OverflowError as error:
        raise ConfigurationError(
            f"{older_than} ago is before the year 1", "Give a shorter duration."
        ) from error


def failed_before(moment: datetime) -> Filter:
    """A filter that means what failed before a moment. What has no time of failure, as services
    without redrive leave it, is not meant."""
    return Filter(f"failed_at < TIMESTAMPTZ '{moment.isoformat()}'")
