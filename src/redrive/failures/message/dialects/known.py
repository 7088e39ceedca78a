"""All dialects, and how to find the one that fits a message."""

from redrive.failures.message.dialects import (
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
from redrive.failures.message.dialects.clues import Clues
from redrive.failures.message.dialects.dialect import Dialect
from redrive.failures.message.dialects.failure_notes import FailureNotes
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
"""Dialects recognized by headers come before those that must look at the body."""

OWN = FailureNotes("redrive")
UNKNOWN = FailureNotes("unknown")


def notes_of(delivery: Delivery) -> FailureNotes:
    """Return the failure notes that a framework left in the message. Never raises.

    Notes that redrive itself wrote are not included.
    """
    if headers.FAILURE_ID in delivery.properties.headers:
        return OWN
    return _read(delivery)[1]


def renewed(delivery: Delivery) -> Delivery:
    """Return a failed message as new to its framework. Never raises.

    It comes back unchanged if its framework needs no renewal, or if it can't be renewed. Changes
    that redrive makes to every message are not applied here.
    """
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
