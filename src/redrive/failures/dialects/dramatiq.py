"""dramatiq's broker for RabbitMQ.

Source: dramatiq 2.2.1, brokers/rabbitmq.py and middleware/retries.py. A worker nacks the message
as it came, so the retries and the traceback in it are those of the attempt before the last.
"""

from redrive.failures.dialects import stack
from redrive.failures.dialects.clues import Clues, count_of, mapping_of, text_of
from redrive.failures.dialects.failure_notes import FailureNotes

_NAMES = {"actor_name", "message_id", "options", "queue_name"}


def read(clues: Clues) -> FailureNotes | None:
    """Reads what dramatiq leaves."""
    if not clues.body_has(b'"actor_name"', b'"message_id"'):
        return None
    if not clues.envelope.keys() >= _NAMES:
        return None
    options = mapping_of(clues.envelope["options"])
    trace = text_of(options.get("traceback"))
    error = stack.of_python(trace)
    queue = text_of(clues.envelope["queue_name"])
    return FailureNotes(
        "dramatiq",
        error_type=error.type,
        error_message=error.message,
        traceback=trace,
        failed_at=clues.died_at,
        retries=count_of(options.get("retries")),
        queue=queue and queue.removesuffix(".DQ").removesuffix(".XQ"),
    )
