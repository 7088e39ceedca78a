"""Failure notes of taskiq's broker for RabbitMQ.

Source: taskiq-aio-pika 0.6.1, broker.py; taskiq 0.13.0, receiver/receiver.py and
middlewares/simple_retry_middleware.py. A worker acknowledges a message whose task failed. Messages
in the dead-letter queue were given up by the broker, and arrive unchanged.
"""

from redrive.failures.message.dialects.clues import Clues, mapping_of
from redrive.failures.message.dialects.dialect import Dialect
from redrive.failures.message.dialects.failure_notes import FailureNotes
from redrive.failures.message.dialects.renewal import HeaderEdit, of_headers, with_json
from redrive.topology.headers import Delivery

_RETRIES = "_retries"
_TAKE_OFF = of_headers(HeaderEdit(drop=frozenset({_RETRIES})))


def read(clues: Clues) -> FailureNotes | None:
    # Both names appear in the body, whatever the serializer.
    if not clues.has("task_id", "task_name") or not clues.body_has(b"task_name", b"labels"):
        return None
    return FailureNotes(
        "taskiq", failed_at=clues.died_at, retries=clues.count(_RETRIES), queue=clues.died_in
    )


def _renew(delivery: Delivery) -> Delivery:
    """Reset the count of retries, in the headers and in the body, where workers read it."""
    delivery = _TAKE_OFF(delivery)
    message = Clues(delivery).envelope
    labels, types = mapping_of(message.get("labels")), mapping_of(message.get("labels_types"))
    if _RETRIES not in labels:
        return delivery
    return with_json(
        delivery,
        {
            **message,
            "labels": {name: value for name, value in labels.items() if name != _RETRIES},
            "labels_types": {name: value for name, value in types.items() if name != _RETRIES},
        },
    )


DIALECT = Dialect("taskiq", read, _renew)
