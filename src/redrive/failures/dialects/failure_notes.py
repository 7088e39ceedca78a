"""What a message says of its failure, whatever framework wrote it."""

from dataclasses import dataclass
from datetime import datetime


@dataclass(frozen=True, slots=True)
class FailureNotes:
    """What a message says of its failure; what its framework does not say is None.

    Args:
        dialect: whose words these are.
        error_type: the class of the exception.
        error_message: its text.
        traceback: where it was raised, in the words of the language.
        failed_at: when it failed for good, or the last time that is known; aware, in UTC.
        retries: how many retries were made before.
        host: where it failed.
        queue: the queue that it failed in.
        exchange: the exchange that it was first published to; empty for the default one.
        routing_key: the key that it was first published with.
    """

    dialect: str
    error_type: str | None = None
    error_message: str | None = None
    traceback: str | None = None
    failed_at: datetime | None = None
    retries: int | None = None
    host: str | None = None
    queue: str | None = None
    exchange: str | None = None
    routing_key: str | None = None
