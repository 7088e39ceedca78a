"""Failure notes of services that use redrive's topology with another library, as in PHP or Java.

They republish a failed message to a retry queue, and finally to the failed queue, with its original
routing key. They don't record the error.
"""

from redrive.failures.message.dialects.clues import Clues
from redrive.failures.message.dialects.dialect import Dialect
from redrive.failures.message.dialects.failure_notes import FailureNotes
from redrive.topology.headers import ORIG_ROUTING_KEY
from redrive.topology.names import RETRY_SUFFIX


def read(clues: Clues) -> FailureNotes | None:
    """Recognize messages that a peer has retried; others carry no trace of it."""
    routing_key, waited_in = clues.text(ORIG_ROUTING_KEY), clues.died_in
    if routing_key is None or waited_in is None or not waited_in.endswith(RETRY_SUFFIX):
        return None
    return FailureNotes(
        "peer",
        failed_at=clues.died_at,
        queue=waited_in.removesuffix(RETRY_SUFFIX),
        routing_key=routing_key,
    )


# Its count is only in x-death, which no requeue keeps.
DIALECT = Dialect("peer", read)
