"""Laravel's queue on RabbitMQ.

Source: vyuldashev/laravel-queue-rabbitmq 14.5.3, Queue/Jobs/RabbitMQJob.php. A worker rejects the
message as it came: the error is in the table of failed jobs alone, and the attempts in it are those
before the last.
"""

from redrive.failures.dialects.clues import Clues, count_of
from redrive.failures.dialects.failure_notes import FailureNotes


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
