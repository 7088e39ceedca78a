"""Failure notes of Celery, task protocol 2.

Source: celery 5.7.0, app/amqp.py. A worker rejects the message unchanged: the error is only in the
result backend, not in the message.
"""

from redrive.failures.message.dialects.clues import Clues
from redrive.failures.message.dialects.dialect import Dialect
from redrive.failures.message.dialects.failure_notes import FailureNotes
from redrive.failures.message.dialects.renewal import HeaderEdit, of_headers


def read(clues: Clues) -> FailureNotes | None:
    if not clues.has("task", "id", "root_id"):
        return None
    return FailureNotes(
        "celery", failed_at=clues.died_at, retries=clues.count("retries"), queue=clues.died_in
    )


DIALECT = Dialect("celery", read, of_headers(HeaderEdit(values={"retries": 0, "expires": None})))
