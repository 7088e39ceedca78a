"""Failure notes of NServiceBus, with its transport for RabbitMQ.

Source: NServiceBus 10.2.8, Recoverability/Faults; NServiceBus.RabbitMQ 11.2.1.
"""

import re

from redrive.failures.message.dialects.clues import Clues, moment_of
from redrive.failures.message.dialects.dialect import Dialect
from redrive.failures.message.dialects.failure_notes import FailureNotes
from redrive.failures.message.dialects.renewal import HeaderEdit, of_headers

_ERROR = "NServiceBus.ExceptionInfo"
_TIME = re.compile(r"(\d{4}-\d\d-\d\d) (\d\d:\d\d:\d\d):(\d{6}) Z", re.ASCII)


def read(clues: Clues) -> FailureNotes | None:
    queue = clues.text("NServiceBus.FailedQ")
    if queue is None:
        return None
    return FailureNotes(
        "nservicebus",
        error_type=clues.text(f"{_ERROR}.ExceptionType"),
        error_message=clues.text(f"{_ERROR}.Message"),
        traceback=clues.text(f"{_ERROR}.StackTrace"),
        failed_at=moment_of(_iso(clues.text("NServiceBus.TimeOfFailure"))),
        host=clues.text("NServiceBus.ProcessingMachine"),
        # Old versions append the machine, after an @.
        queue=queue.partition("@")[0],
    )


def _iso(text: str | None) -> str | None:
    """Convert the wire format, which has a colon before the microseconds, to ISO 8601."""
    found = _TIME.fullmatch(text or "")
    return f"{found[1]}T{found[2]}.{found[3]}Z" if found else None


DIALECT = Dialect(
    "nservicebus",
    read,
    of_headers(
        HeaderEdit(
            drop=frozenset(
                {"NServiceBus.FailedQ", "NServiceBus.FLRetries", "NServiceBus.TimeOfFailure"}
            ),
            drop_prefixes=("NServiceBus.Retries", f"{_ERROR}."),
        )
    ),
)
