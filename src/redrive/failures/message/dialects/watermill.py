"""Failure notes of Watermill's poison queue, for Go.

Source: ThreeDotsLabs/watermill, message/router/middleware/poison.go. With watermill-amqp's
`NewDurableQueueConfig`, a queue has the name of its topic; other configurations add a suffix, which
the message doesn't contain.
"""

from redrive.failures.message.dialects.clues import Clues
from redrive.failures.message.dialects.dialect import Dialect
from redrive.failures.message.dialects.failure_notes import FailureNotes
from redrive.failures.message.dialects.renewal import HeaderEdit, of_headers

_REASON, _TOPIC = "reason_poisoned", "topic_poisoned"


def read(clues: Clues) -> FailureNotes | None:
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
