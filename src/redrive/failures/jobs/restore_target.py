"""Restore messages of a file: find their queues, skip what is there already, and record it."""

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import NamedTuple

from redrive.errors import RedriveError
from redrive.failures.jobs.job_record import JobRecord, State
from redrive.failures.jobs.local_journal import LocalJournal
from redrive.failures.message.failed_message import FailedMessage
from redrive.failures.queue.failed_queue_base import FailedQueueBase
from redrive.topology import rewrite
from redrive.topology.digest import digest_of
from redrive.topology.headers import Delivery
from redrive.topology.names import ExchangeFamily, failed_queue


class RestoreTarget(NamedTuple):
    """The destination of restored messages: the failed queue of a subscription, or a dead-letter
    queue."""

    name: str
    is_literal: bool

    @property
    def queue(self) -> str:
        """The name of the destination queue."""
        return self.name if self.is_literal else failed_queue(self.name)


def place_of(message: FailedMessage) -> RestoreTarget:
    """Return where a message of a file is restored to."""
    place = message.dead_letter_queue
    return RestoreTarget(message.queue, False) if place is None else RestoreTarget(place, True)


def digests_in(failed: FailedQueueBase) -> Counter[bytes]:
    """Scan a failed queue, and count its messages by their digests."""
    if not failed.depth():
        return Counter()
    return Counter(bytes.fromhex(message.digest) for message in failed.browse())


def missing_from(
    there: Counter[bytes], messages: Iterable[FailedMessage], exchanges: ExchangeFamily
) -> Iterator[FailedMessage]:
    """Yield the messages of a file that a failed queue does not have, neither in their original nor
    in their restored form."""
    left = there.copy()
    for message in messages:
        forms = (message.digest, _digest_restored(message, exchanges)) if left else ()
        found = next((digest for form in forms if left[digest := bytes.fromhex(form)]), None)
        if found is None:
            yield message
        else:
            left[found] -= 1


def restored(
    journal: LocalJournal, job: JobRecord, failed: FailedQueueBase, deliveries: Iterator[Delivery]
) -> int:
    """Restore messages into their queue as a job of the journal; return how many were confirmed."""
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
    """Return the digest that a message has after a restore, which moves some properties to its
    headers."""
    publish = rewrite.restore(message.delivery, exchanges, frame_max=0)
    return digest_of(publish.routing_key, publish.properties.encode(), publish.body)
