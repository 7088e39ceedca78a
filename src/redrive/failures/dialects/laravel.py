"""Laravel's queue on RabbitMQ.

Source: vyuldashev/laravel-queue-rabbitmq 14.5.3, Queue/Jobs/RabbitMQJob.php. A worker rejects the
message as it came: the error is in the table of failed jobs alone, and the attempts in it are those
before the last.
"""

from redrive.failures.dialects.clues import Clues, count_of
from redrive.failures.dialects.dialect import Dialect
from redrive.failures.dialects.failure_notes import FailureNotes
from redrive.failures.dialects.renewal import HeaderEdit, of_table, with_json
from redrive.topology.headers import Delivery


def read(clues: Clues) -> FailureNotes | None:
    """Reads what Laravel leaves."""
    attempts = clues.table("laravel")
    if "attempts" not in attempts:
        return None
    return FailureNotes(
        "laravel",
        failed_at=clues.died_at,
        retries=count_of(attempts["attempts"]),
        queue=clues.died_in,
    )


_NEW_ATTEMPTS = of_table("laravel", HeaderEdit(values={"attempts": 0}))


def _renew(delivery: Delivery) -> Delivery:
    """The message with all of its attempts and without an end to them, which has passed: a worker
    fails it at once otherwise."""
    delivery = _NEW_ATTEMPTS(delivery)
    job = Clues(delivery).envelope
    if job.get("retryUntil") is None:
        return delivery
    return with_json(delivery, {**job, "retryUntil": None})


DIALECT = Dialect("laravel", read, _renew)
