"""All dialects, and which of them a message is in."""

from redrive.failures.dialects import (
    brighter,
    celery,
    dapr,
    dramatiq,
    easynetq,
    ecotone,
    laravel,
    masstransit,
    moleculer,
    nestjs,
    nservicebus,
    peer,
    rascal,
    rebus,
    servicestack,
    sneakers,
    spring,
    swarrot,
    symfony,
    taskiq,
    watermill,
    wolverine,
)
from redrive.failures.dialects.clues import Clues
from redrive.failures.dialects.dialect import Dialect
from redrive.failures.dialects.failure_notes import FailureNotes
from redrive.topology import headers
from redrive.topology.headers import Delivery

DIALECTS: tuple[Dialect, ...] = (
    spring.DIALECT,
    masstransit.DIALECT,
    nservicebus.DIALECT,
    wolverine.DIALECT,
    rebus.DIALECT,
    easynetq.DIALECT,
    symfony.DIALECT,
    rascal.DIALECT,
    moleculer.DIALECT,
    laravel.DIALECT,
    swarrot.DIALECT,
    brighter.DIALECT,
    watermill.DIALECT,
    ecotone.DIALECT,
    celery.DIALECT,
    peer.DIALECT,
    taskiq.DIALECT,
    servicestack.DIALECT,
    dramatiq.DIALECT,
    nestjs.DIALECT,
    dapr.DIALECT,
    sneakers.DIALECT,
)
"""Those that headers tell come before those whose bodies have to be looked at."""

OWN = FailureNotes("redrive")
UNKNOWN = FailureNotes("unknown")


def notes_of(delivery: Delivery) -> FailureNotes:
    """What a failed message says in the words of its framework; what redrive itself wrote is not in
    it. Never raises."""
    if headers.FAILURE_ID in delivery.properties.headers:
        return OWN
    return _read(delivery)[1]


def renewed(delivery: Delivery) -> Delivery:
    """A failed message as its framework takes it as new, with what redrive writes or takes off
    still to be done; unchanged where its framework needs nothing, or where it can't be renewed.
    Never raises."""
    if headers.FAILURE_ID in delivery.properties.headers:
        return delivery
    dialect = _read(delivery)[0]
    return delivery if dialect is None else dialect.renew(delivery)


def _read(delivery: Delivery) -> tuple[Dialect | None, FailureNotes]:
    clues = Clues(delivery)
    for dialect in DIALECTS:
        notes = dialect.read(clues)
        if notes is not None:
            return dialect, notes
    return None, UNKNOWN
