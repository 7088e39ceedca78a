"""MassTransit's `_error` and `_skipped` queues.

Source: MassTransit 8.5.8, Contexts/SendContextExtensions.cs and MessageHeaders.cs. Older versions
leave some of these headers out.
"""

from urllib.parse import unquote, urlsplit

from redrive.failures.dialects.clues import Clues, moment_of
from redrive.failures.dialects.dialect import Dialect
from redrive.failures.dialects.failure_notes import FailureNotes
from redrive.failures.dialects.renewal import HeaderEdit, of_headers


def read(clues: Clues) -> FailureNotes | None:
    """Reads what MassTransit leaves."""
    if not clues.has("MT-Reason"):
        return None
    return FailureNotes(
        "masstransit",
        error_type=clues.text("MT-Fault-ExceptionType"),
        error_message=clues.text("MT-Fault-Message"),
        traceback=clues.text("MT-Fault-StackTrace"),
        failed_at=moment_of(clues.text("MT-Fault-Timestamp")),
        retries=clues.count("MT-Fault-RetryCount"),
        host=clues.text("MT-Host-MachineName"),
        queue=_queue_of(clues.text("MT-Fault-InputAddress")),
    )


def _queue_of(address: str | None) -> str | None:
    """The queue of an address such as `rabbitmq://host/vhost/queue?temporary=true`."""
    try:
        path = urlsplit(address or "").path
    except ValueError:
        return None
    return unquote(path.rpartition("/")[2]) or None


DIALECT = Dialect(
    "masstransit",
    read,
    of_headers(
        HeaderEdit(
            drop=frozenset({"MT-Reason", "MT-Redelivery-Count"}),
            drop_prefixes=("MT-Fault-", "MT-Host-"),
        )
    ),
)
