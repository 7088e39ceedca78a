"""Failure notes of Ecotone's error and dead-letter channels on RabbitMQ, for PHP.

Source: ecotoneframework/ecotone-dev 1.326.1, packages/Ecotone: Support/ErrorMessage.php,
Handler/Recoverability/ErrorContext.php and DelayedRetryErrorHandler.php. Ecotone knows the channel
that a message failed in, but doesn't send it (Serialization/OutboundMessageConverter.php).
"""

from redrive.failures.message.dialects.clues import Clues
from redrive.failures.message.dialects.dialect import Dialect
from redrive.failures.message.dialects.failure_notes import FailureNotes
from redrive.failures.message.dialects.renewal import HeaderEdit, of_headers

_MESSAGE, _FILE, _LINE = "exception-message", "exception-file", "exception-line"
_TYPE, _TRACE, _RETRIES = "ecotone-class", "exception-stacktrace", "ecotone_retry_number"


def read(clues: Clues) -> FailureNotes | None:
    if not clues.has(_MESSAGE, _FILE, _LINE):
        return None
    return FailureNotes(
        "ecotone",
        error_type=clues.text(_TYPE),
        error_message=clues.text(_MESSAGE),
        traceback=clues.text(_TRACE),
        retries=clues.count(_RETRIES),
    )


DIALECT = Dialect(
    "ecotone",
    read,
    of_headers(
        HeaderEdit(
            drop=frozenset({_MESSAGE, _FILE, _LINE, _TYPE, _TRACE, _RETRIES, "exception-code"})
        )
    ),
)
