"""Failure notes of Rebus, with its transport for RabbitMQ.

Source: Rebus 8.9.2, Retry/PoisonQueues/DeadletterQueueErrorHandler.cs. One header holds everything
about the errors; its times are in the culture of the machine that wrote them.
"""

import re

from redrive.failures.message.dialects.clues import Clues
from redrive.failures.message.dialects.dialect import Dialect
from redrive.failures.message.dialects.failure_notes import FailureNotes
from redrive.failures.message.dialects.renewal import HeaderEdit, of_headers

_DETAILS = "rbs2-error-details"
_MOST = 64 * 1024
_ERROR = re.compile(r"(?:^|: )([A-Za-z_][\w.+`]*Exception): ([^\r\n]*)", re.MULTILINE)


def read(clues: Clues) -> FailureNotes | None:
    if not clues.has(_DETAILS, "rbs2-source-queue"):
        return None
    details = clues.text(_DETAILS) or ""
    errors = [
        error
        for error in _ERROR.findall(details[:_MOST])
        if error[0] != "System.AggregateException"
    ]
    error_type, message = errors[-1] if errors else (None, details.partition("\n")[0] or None)
    return FailureNotes(
        "rebus",
        error_type=error_type,
        error_message=message,
        traceback=details or None,
        queue=clues.text("rbs2-source-queue"),
    )


DIALECT = Dialect(
    "rebus",
    read,
    of_headers(HeaderEdit(drop=frozenset({_DETAILS, "rbs2-source-queue", "rbs2-delivery-count"}))),
)
