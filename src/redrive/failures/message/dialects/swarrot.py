"""Failure notes of Swarrot, for PHP.

Source: swarrot/swarrot 4.20.0, RetryProcessor.php and AckProcessor.php in Processor. A message that
has used up its retries is nacked unchanged, without the error.
"""

from redrive.failures.message.dialects.clues import Clues
from redrive.failures.message.dialects.dialect import Dialect
from redrive.failures.message.dialects.failure_notes import FailureNotes
from redrive.failures.message.dialects.renewal import HeaderEdit, of_headers

_ATTEMPTS = "swarrot_retry_attempts"


def read(clues: Clues) -> FailureNotes | None:
    if not clues.has(_ATTEMPTS):
        return None
    return FailureNotes(
        "swarrot", failed_at=clues.died_at, retries=clues.count(_ATTEMPTS), queue=clues.died_in
    )


DIALECT = Dialect("swarrot", read, of_headers(HeaderEdit(drop=frozenset({_ATTEMPTS}))))
