"""Failure notes of ServiceStack on RabbitMQ.

Source: ServiceStack 10.1.4, ServiceStack.RabbitMq/RabbitMqExtensions.cs and RabbitMqQueueClient.cs,
ServiceStack.Interfaces/Messaging/QueueNames.cs. If a message has headers of its own, they overwrite
the error.
"""

import re

from redrive.failures.message.dialects.clues import Clues, mapping_of, text_of
from redrive.failures.message.dialects.dialect import Dialect
from redrive.failures.message.dialects.failure_notes import FailureNotes
from redrive.failures.message.dialects.renewal import HeaderEdit, of_headers

_ERROR = "Error"
_DEAD_LETTERS = re.compile(r"(.*mq:.+)\.dlq", re.DOTALL)


def read(clues: Clues) -> FailureNotes | None:
    found = _DEAD_LETTERS.fullmatch(clues.routing_key)
    if found is None:
        return None
    error = mapping_of(clues.json(_ERROR))
    return FailureNotes(
        "servicestack",
        error_type=text_of(error.get("ErrorCode")),
        error_message=text_of(error.get("Message")),
        traceback=text_of(error.get("StackTrace")),
        failed_at=clues.died_at,
        queue=clues.died_in or f"{found[1]}.inq",
    )


DIALECT = Dialect("servicestack", read, of_headers(HeaderEdit(drop=frozenset({_ERROR}))))
