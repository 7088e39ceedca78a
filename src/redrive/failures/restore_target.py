"""What a restore of a file would do, and does: to which queues its messages go, which of them are
there already, and how it stands in the journal."""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import NamedTuple

from redrive.errors import RedriveError
from redrive.failures.failed_message import FailedMessage
from redrive.failures.failed_queue import FailedQueue
from redrive.failures.job_record import JobRecord, State
from redrive.failures.local_journal import LocalJournal
from redrive.topology import rewrite
from redrive.topology.digest import digest_of
from redrive.topology.headers import Delivery
from redrive.topology.names import ExchangeFamily, failed_queue


class RestoreTarget(NamedTuple):
    """Where messages of a file are restored to: the failed queue of the subscription of this name,
    or the dead-letter queue of this name."""

    name: str
    is_literal: bool

    @property
    def queue(self) -> str:
        """The queue itself."""
        return self.name if self.is_literal else failed_queue(self.name)


def place_of(message: FailedMessage) -> RestoreTarget:
    """Where a message of a file is restored to."""
    place = message.dead_letter_queue
    return RestoreTarget(message.queue, False) if place is None else RestoreTarget(place, True)


def there_already(
    failed: FailedQueue, messages: Iterable[FailedMessage], exchanges: ExchangeFamily
) -> int:
    """How many messages of a failed queue a file has too, as they are or as they were restored
    before. The queue is looked at."""
    if not failed.depth():
        return 0
    digests = {
        bytes.fromhex(digest)
        for message in messages
        for digest in (message.digest, _digest_restored(message, exchanges))
    }
    return sum(bytes.fromhex(message.digest) in digests for message in failed.browse())


def restored(
    journal: LocalJournal, job: JobRecord, failed: FailedQueue, deliveries: Iterator[Delivery]
) -> int:
    """Restores messages into their queue, as a job of the journal; returns how many were
    confirmed."""
    job = journal.begin(job)
    try:
        report = failed.restore(deliveries)
    except RedriveError as error:
        journal.update(replace(job, state=State.FAILED, problem=str(error).partition("\n")[0]))
        raise
    journal.update(
        replace(job, state=State.DONE, sent=report.confirmed, not_sent=len(report.failed))
    )
    return report.confirmed


def _digest_restored(message: FailedMessage, exchanges: ExchangeFamily) -> str:
    """The digest that a message has once it is restored: properties that can't travel are in its
    headers then."""
    publish = rewrite.restore(message.delivery, exchanges, frame_max=0)
    return digest_of(publish.routing_key, publish.properties.encode(), publish.body)
