"""Watermill's poison queue, for Go.

Source: ThreeDotsLabs/watermill, message/router/middleware/poison.go. A queue is called as its topic
is by watermill-amqp's `NewDurableQueueConfig`; others add a suffix, which the message does not say.
"""

from redrive.failures.dialects.clues import Clues
from redrive.failures.dialects.dialect import Dialect
from redrive.failures.dialects.failure_notes import FailureNotes
from redrive.failures.dialects.renewal import HeaderEdit, of_headers

_REASON, _TOPIC = "reason_poisoned", "topic_poisoned"


def read(clues: Clues) -> FailureNotes | None:
    """Reads what Watermill leaves."""
    if not clues.has(_REASON):
        return None
    return FailureNotes(
        "watermill", error_message=clues.text(_REASON), queue=clues.text(_TOPIC) or None
    )


DIALECT = Dialect(
    "watermill",
    read,
    of_headers(HeaderEdit(frozenset({_REASON, _TOPIC, "handler_poisoned", "subscriber_poisoned"}))),
)
