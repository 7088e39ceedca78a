"""EasyNetQ's error queue: an envelope of JSON around what failed.

Source: EasyNetQ 8.1.5, SystemMessages/Error.cs and Consumer/DefaultConsumeErrorStrategy.cs.
"""

import re

from redrive.failures.dialects.clues import Clues, moment_of, text_of
from redrive.failures.dialects.failure_notes import FailureNotes

_ERROR = re.compile(r"([A-Za-z_][\w.+`]*)(?:: ([^\r\n]*))?")


def read(clues: Clues) -> FailureNotes | None:
    """Reads what EasyNetQ leaves."""
    if not (clues.type or "").startswith("EasyNetQ.SystemMessages.Error"):
        return None
    exception = text_of(clues.envelope.get("Exception"))
    found = _ERROR.match(exception or "")
    return FailureNotes(
        "easynetq",
        error_type=found[1] if found else None,
        error_message=found[2] if found else exception,
        traceback=exception,
        failed_at=moment_of(clues.envelope.get("DateTime")),
        queue=text_of(clues.envelope.get("Queue")),
    )
