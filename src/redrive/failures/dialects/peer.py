"""Services that share the pattern of redrive with another library, as the PHP and Java ones do.

They republish what failed to a retry queue, and then to the failed queue, with the key that it was
first published with; they write nothing of the error.
"""

from redrive.failures.dialects.clues import Clues
from redrive.failures.dialects.dialect import Dialect
from redrive.failures.dialects.failure_notes import FailureNotes
from redrive.topology.headers import ORIG_ROUTING_KEY
from redrive.topology.names import RETRY_SUFFIX


def read(clues: Clues) -> FailureNotes | None:
    """Reads what a peer leaves of a message that it has retried; of another it leaves no more than
    anybody."""
    routing_key, waited_in = clues.text(ORIG_ROUTING_KEY), clues.died_in
    if routing_key is None or waited_in is None or not waited_in.endswith(RETRY_SUFFIX):
        return None
    return FailureNotes(
        "peer",
        failed_at=clues.died_at,
        queue=waited_in.removesuffix(RETRY_SUFFIX),
        routing_key=routing_key,
    )


# What it has counted is in x-death alone, which no requeue keeps.
DIALECT = Dialect("peer", read)
