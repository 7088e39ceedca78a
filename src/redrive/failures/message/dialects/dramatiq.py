"""Failure notes of dramatiq's broker for RabbitMQ.

Source: dramatiq 2.2.1, brokers/rabbitmq.py and middleware/retries.py. A worker nacks the message
unchanged, so the retries and the traceback in it are those of the attempt before the last.
"""

from collections.abc import Mapping

from redrive.failures.message.dialects import stack
from redrive.failures.message.dialects.clues import Clues, count_of, mapping_of, text_of
from redrive.failures.message.dialects.dialect import Dialect
from redrive.failures.message.dialects.failure_notes import FailureNotes
from redrive.failures.message.dialects.renewal import with_json
from redrive.topology.headers import Delivery

_NAMES = {"actor_name", "message_id", "options", "queue_name"}
_SPENT = {"eta", "requeue_timestamp", "retries", "traceback"}


def read(clues: Clues) -> FailureNotes | None:
    if not clues.body_has(b'"actor_name"', b'"message_id"'):
        return None
    if not clues.envelope.keys() >= _NAMES:
        return None
    options = mapping_of(clues.envelope["options"])
    trace = text_of(options.get("traceback"))
    error = stack.of_python(trace)
    return FailureNotes(
        "dramatiq",
        error_type=error.type,
        error_message=error.message,
        traceback=trace,
        failed_at=clues.died_at,
        retries=count_of(options.get("retries")),
        queue=_queue_of(clues.envelope),
    )


def _renew(delivery: Delivery) -> Delivery:
    """Remove what earlier attempts left in the options, and name the queue that the actors consume.

    Other keys of the body stay: dramatiq refuses a body with any unknown key.
    """
    message = Clues(delivery).envelope
    options = mapping_of(message.get("options"))
    kept = {name: value for name, value in options.items() if name not in _SPENT}
    queue = _queue_of(message)
    return with_json(
        delivery, {**message, "options": kept, **({} if queue is None else {"queue_name": queue})}
    )


def _queue_of(message: Mapping[str, object]) -> str | None:
    """Return the queue that the actors consume, without the suffix for delayed or dead messages."""
    queue = text_of(message.get("queue_name"))
    return queue and queue.removesuffix(".DQ").removesuffix(".XQ")


DIALECT = Dialect("dramatiq", read, _renew)
