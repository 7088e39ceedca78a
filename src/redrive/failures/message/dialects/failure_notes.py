"""What a message says about its failure, in one form for all frameworks."""

from dataclasses import dataclass
from datetime import datetime


@dataclass(frozen=True, slots=True)
class FailureNotes:
    """What a message says about its failure. A field is None if the framework doesn't record it.

    Args:
        dialect: the name of the framework that wrote the notes.
        error_type: the class of the exception.
        error_message: the text of the exception.
        traceback: the stack trace, in the format of the framework's language.
        failed_at: when it failed for good, or the last known failure; aware, in UTC.
        retries: number of retries made before.
        host: the host that it failed on.
        queue: the queue that it failed in.
        exchange: the exchange that it was first published to; empty for the default exchange.
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
