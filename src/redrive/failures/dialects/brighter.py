"""Paramore Brighter on RabbitMQ.

Source: Brighter 10.7.0, RmqMessageConsumer.cs and RmqMessagePublisher.cs of
MessagingGateway.RMQ.Async, and ServiceActivator/Proactor.cs. A message is rejected as it came: the
reason is in the log alone, and the count in it is of the times that it was deferred.
"""

from redrive.failures.dialects.clues import Clues
from redrive.failures.dialects.dialect import Dialect
from redrive.failures.dialects.failure_notes import FailureNotes
from redrive.failures.dialects.renewal import HeaderEdit, of_headers

_COUNT = "HandledCount"


def read(clues: Clues) -> FailureNotes | None:
    """Reads what Brighter leaves."""
    if not clues.has(_COUNT, "MessageType", "Topic"):
        return None
    return FailureNotes(
        "brighter", failed_at=clues.died_at, retries=clues.count(_COUNT), queue=clues.died_in
    )


DIALECT = Dialect("brighter", read, of_headers(HeaderEdit(values={_COUNT: 0})))
