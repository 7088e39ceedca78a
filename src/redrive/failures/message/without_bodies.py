"""Failed messages stored without their bodies, with facts from the body beside them."""

import json
from dataclasses import asdict, replace
from datetime import datetime

from redrive.failures.message.dialects.failure_notes import FailureNotes
from redrive.failures.message.failed_message import FailedMessage


def told_of(message: FailedMessage) -> str:
    """Return facts about a message that are lost without its body, as JSON.

    These are its ids, its size, and its framework's failure notes: some frameworks write them into
    the body, like Symfony in its PHP envelope.
    """
    notes = asdict(message._told)
    if message._told.failed_at is not None:
        notes["failed_at"] = message._told.failed_at.isoformat()
    ids = (message.queue, message.failure_id, message.digest, message.message_id)
    return json.dumps([*ids, message.size, notes])


def with_told(message: FailedMessage, told: str) -> FailedMessage:
    """Restore the facts about a message that was rebuilt without its body."""
    try:
        queue, failure_id, digest, message_id, size, notes = json.loads(told)
        if notes["failed_at"] is not None:
            notes["failed_at"] = datetime.fromisoformat(notes["failed_at"])
        found = FailedMessage(replace(message.delivery, queue=queue), FailureNotes(**notes))
    except (TypeError, LookupError, RecursionError) as error:
        raise ValueError(str(error)) from error
    found._failure_id, found._digest, found._known_id = failure_id, digest, message_id
    found._size = size
    return found
