"""Failure notes of Laravel's queue on RabbitMQ.

Source: vyuldashev/laravel-queue-rabbitmq 14.5.3, Queue/Jobs/RabbitMQJob.php. A worker rejects the
message unchanged: the error is only in the table of failed jobs, and the count of attempts in the
message excludes the last one.
"""

from redrive.failures.message.dialects.clues import Clues, count_of
from redrive.failures.message.dialects.dialect import Dialect
from redrive.failures.message.dialects.failure_notes import FailureNotes
from redrive.failures.message.dialects.renewal import HeaderEdit, of_table, with_json
from redrive.topology.headers import Delivery


def read(clues: Clues) -> FailureNotes | None:
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
    """Reset the attempts, and remove the expired deadline: a worker would fail the job at once."""
    delivery = _NEW_ATTEMPTS(delivery)
    job = Clues(delivery).envelope
    if job.get("retryUntil") is None:
        return delivery
    return with_json(delivery, {**job, "retryUntil": None})


DIALECT = Dialect("laravel", read, _renew)
