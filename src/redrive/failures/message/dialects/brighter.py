"""Failure notes of Paramore Brighter on RabbitMQ.

Source: Brighter 10.7.0, RmqMessageConsumer.cs and RmqMessagePublisher.cs of
MessagingGateway.RMQ.Async, and ServiceActivator/Proactor.cs. A message is rejected unchanged: the
reason is only in the log, and the count in the message is the number of times it was deferred.
"""

from redrive.failures.message.dialects.clues import Clues
from redrive.failures.message.dialects.dialect import Dialect
from redrive.failures.message.dialects.failure_notes import FailureNotes
from redrive.failures.message.dialects.renewal import HeaderEdit, of_headers

_COUNT = "HandledCount"


def read(clues: Clues) -> FailureNotes | None:
    if not clues.has(_COUNT, "MessageType", "Topic"):
        return None
    return FailureNotes(
        "brighter", failed_at=clues.died_at, retries=clues.count(_COUNT), queue=clues.died_in
    )


DIALECT = Dialect("brighter", read, of_headers(HeaderEdit(values={_COUNT: 0})))
