"""Failure notes of NestJS microservices on RabbitMQ.

Source: @nestjs/microservices 12.1.1, server/server-rmq.js. The message is nacked unchanged, without
any trace of the error.
"""

from redrive.failures.message.dialects.clues import Clues
from redrive.failures.message.dialects.dialect import Dialect
from redrive.failures.message.dialects.failure_notes import FailureNotes

_NAMES = {"pattern", "data"}


def read(clues: Clues) -> FailureNotes | None:
    if not clues.body_has(b'"pattern"', b'"data"'):
        return None
    if clues.envelope.keys() - {"id"} != _NAMES:
        return None
    return FailureNotes("nestjs", failed_at=clues.died_at, queue=clues.died_in)


DIALECT = Dialect("nestjs", read)
