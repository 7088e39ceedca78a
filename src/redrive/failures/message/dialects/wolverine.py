"""Failure notes of Wolverine's dead letters.

Source: Wolverine 6.29.2, Transports/DeadLetterQueueConstants.cs. An endpoint with default settings
nacks the message unchanged, without the error.
"""

from redrive.failures.message.dialects.clues import Clues, moment_of_milliseconds
from redrive.failures.message.dialects.dialect import Dialect
from redrive.failures.message.dialects.failure_notes import FailureNotes
from redrive.failures.message.dialects.renewal import HeaderEdit, of_headers


def read(clues: Clues) -> FailureNotes | None:
    if not clues.has("wolverine-protocol-version"):
        return None
    destination = clues.text("original-destination")
    return FailureNotes(
        "wolverine",
        error_type=clues.text("exception-type"),
        error_message=clues.text("exception-message"),
        traceback=clues.text("exception-stack"),
        failed_at=moment_of_milliseconds(clues.text("failed-at")) or clues.died_at,
        queue=destination.rpartition("/")[2] if destination else clues.died_in,
    )


DIALECT = Dialect(
    "wolverine",
    read,
    of_headers(
        HeaderEdit(
            drop=frozenset({"attempts", "failed-at", "original-destination"}),
            drop_prefixes=("exception-",),
        )
    ),
)
