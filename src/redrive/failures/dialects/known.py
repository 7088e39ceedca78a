"""All dialects, and which of them a message is in."""

from redrive.failures.dialects import (
    celery,
    dramatiq,
    easynetq,
    laravel,
    masstransit,
    nestjs,
    nservicebus,
    rascal,
    rebus,
    spring,
    symfony,
    wolverine,
)
from redrive.failures.dialects.clues import Clues
from redrive.failures.dialects.failure_notes import Dialect, FailureNotes
from redrive.topology import headers
from redrive.topology.headers import Delivery

DIALECTS: tuple[Dialect, ...] = (
    spring.read,
    masstransit.read,
    nservicebus.read,
    wolverine.read,
    rebus.read,
    easynetq.read,
    symfony.read,
    rascal.read,
    laravel.read,
    celery.read,
    dramatiq.read,
    nestjs.read,
)
"""Those that headers tell come before those whose bodies have to be looked at."""

OWN = FailureNotes("redrive")
UNKNOWN = FailureNotes("unknown")


def notes_of(delivery: Delivery) -> FailureNotes:
    """What a failed message says in the words of its framework; what redrive itself wrote is not in
    it. Never raises."""
    if headers.FAILURE_ID in delivery.properties.headers:
        return OWN
    clues = Clues(delivery)
    for dialect in DIALECTS:
        notes = dialect(clues)
        if notes is not None:
            return notes
    return UNKNOWN


def renewed(delivery: Delivery) -> Delivery:
    """A failed message as its framework takes it as new. Never raises."""
    return delivery
