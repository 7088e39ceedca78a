"""Failure notes of rascal, for Node.js.

Source: rascal 21.0.1, lib/amqp/SubscriberError.js. Only the recovery strategies that republish
record the error.
"""

from redrive.failures.message.dialects.clues import Clues, count_of, mapping_of, text_of
from redrive.failures.message.dialects.dialect import Dialect
from redrive.failures.message.dialects.failure_notes import FailureNotes
from redrive.failures.message.dialects.renewal import HeaderEdit, of_table


def read(clues: Clues) -> FailureNotes | None:
    noted = clues.table("rascal")
    queue = text_of(noted.get("originalQueue"))
    if queue is None:
        return None
    error = mapping_of(noted.get("error"))
    code = error.get("code")
    recovery = mapping_of(mapping_of(noted.get("recovery")).get(queue))
    return FailureNotes(
        "rascal",
        error_type=str(code) if isinstance(code, int) else text_of(code),
        error_message=text_of(error.get("message")),
        failed_at=clues.died_at,
        retries=count_of(recovery.get("republished")),
        queue=queue,
        exchange=text_of(noted.get("originalExchange")),
        routing_key=text_of(noted.get("originalRoutingKey")),
    )


DIALECT = Dialect(
    "rascal", read, of_table("rascal", HeaderEdit(drop=frozenset({"error", "recovery"})))
)
