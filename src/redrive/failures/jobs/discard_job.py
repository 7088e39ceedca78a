"""Move failed messages from their queue into a file, and record it in the journal."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from redrive.errors import ConfigurationError
from redrive.failures.jobs.job_record import JobRecord, State
from redrive.failures.message.failed_message import FailedMessage
from redrive.failures.queue.failed_queue_base import FailedQueueBase
from redrive.failures.queue.message_source import answer_of
from redrive.failures.queue.snapshot import Snapshot
from redrive.failures.store.filter import Filter, OpenFilter, Predicate

if TYPE_CHECKING:
    from redrive.failures.jobs.local_journal import LocalJournal


class Discarded(NamedTuple):
    """The result of discarding messages.

    Args:
        written: how many messages the file contains.
        deleted: how many of them were deleted from the queue.
    """

    written: int
    deleted: int


class Chosen:
    """The messages that were written to a file, to be found again in their queue."""

    def __init__(self) -> None:
        self._digests: Counter[bytes] = Counter()

    def noted(self, messages: Iterable[FailedMessage]) -> Iterator[FailedMessage]:
        """Yield the messages and remember each."""
        for message in messages:
            self._digests[bytes.fromhex(message.digest)] += 1
            yield message

    def again(self) -> Predicate:
        """Return a predicate that matches each message as often as it was remembered, because a
        peer's messages may be identical byte for byte. It does not go by ids, which can be
        forged."""
        left = Counter(self._digests)

        def is_noted(message: FailedMessage) -> bool:
            digest = bytes.fromhex(message.digest)
            left[digest] -= 1
            return left[digest] >= 0

        return is_noted


def discard_into(
    failed: FailedQueueBase,
    journal: "LocalJournal",
    job: JobRecord,
    filter_: Filter,
    most: int,
    *,
    on_progress: Callable[[int], None] = lambda _: None,
) -> Discarded:
    """Write messages to the job's file and, once it is on disk, delete exactly those from the
    queue."""
    chosen = Chosen()
    begun = journal.begin(job)
    try:
        with OpenFilter(filter_) as open_filter:
            written, look = answer_of(
                failed,
                lambda look: Snapshot(Path(job.file)).write(
                    chosen.noted(look.matching(open_filter))
                ),
            )
        if look.missing != 0:
            raise ConfigurationError(
                f"others hold messages of {look.name!r}, so that not all could be read",
                "Nothing was deleted. Try again when they are done.",
            )
        if written > most:
            raise ConfigurationError(
                f"{written:,} messages match by now, and {most:,} were to be discarded",
                f"Nothing was deleted; {job.file} has them too. Plan it again.",
            )
        report = failed.discard(
            chosen.again(), on_progress=lambda so_far: on_progress(so_far.requeued)
        )
    except BaseException as error:
        problem = (str(error) or "interrupted").partition("\n")[0]
        journal.update(replace(begun, state=State.FAILED, problem=problem))
        raise
    journal.update(replace(begun, state=State.DONE, sent=report.discarded))
    return Discarded(written, report.discarded)
