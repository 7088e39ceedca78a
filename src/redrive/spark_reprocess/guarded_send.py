"""Send the chosen messages of a run, the canary first, and stop where too many are failing."""

import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING

from redrive.errors import RedriveError
from redrive.failures.message.route import WayBack
from redrive.failures.queue.canary import (
    Canary,
    CanaryDecision,
    CanaryStep,
    longest_watch,
    verdict_on_share,
    watched,
)
from redrive.failures.queue.outcome_watch import MessageCounts, reason_of_stop, retry_delay
from redrive.failures.store.stored_message import (
    DEAD_LETTER_QUEUE,
    EXCHANGE,
    ROUTING_KEY,
    text_of,
)
from redrive.pubsub.blocking.connection import Connector
from redrive.pubsub.lifecycle import default_name
from redrive.spark_reprocess import send
from redrive.spark_reprocess.archive import Archive, Run
from redrive.spark_reprocess.ledger import ArchiveLedger, Event
from redrive.spark_reprocess.progress import OnProgress
from redrive.spark_reprocess.reconciliation import Reconciliation
from redrive.spark_reprocess.recorded_job import RunWatch, watch_of
from redrive.spark_reprocess.row_message import ID, Mode
from redrive.spark_reprocess.selection import Selection
from redrive.spark_reprocess.settings import JobOptions
from redrive.spark_reprocess.spark_errors import explained

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_MOST_ARRIVALS = 1000
"""Distinct exchanges and keys by which messages reached dead-letter queues. From this number on,
the queues themselves are searched for messages that come back."""


class StoppedEarly(RedriveError):
    """A job stopped sending: too few messages were confirmed, some of the canary did not succeed,
    or too large a share is failing.

    Args:
        reason: why it stopped.
    """

    identity: Reconciliation | None = None
    """The outcome of the messages up to then; None if they were not counted."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason

    def __str__(self) -> str:
        return (
            f"the job stopped: {self.reason}.\n"
            "Messages that were not sent are in the archive. Once the problem is solved, run the "
            "same command to continue with a new canary, or restore them."
        )


@dataclass(frozen=True, slots=True)
class GuardedSend:
    """The sending of the chosen messages of a run.

    Args:
        archive: where the messages are.
        run: the run.
        url: the broker's address.
        choice: which messages are sent.
        options: how they are sent, and what stops it.
        tasks: how many tasks run at once.
        chosen: returns the chosen messages that can still be sent.
        whereabouts: returns how many messages some queues hold, and who consumes them.
        on_progress: called with the progress.
        on_note: called with sentences to show to the user.
        on_stage_end: called when a job has ended, of which there are two if there is a canary.
    """

    archive: Archive
    run: Run
    url: str
    choice: Selection
    options: JobOptions
    tasks: int
    chosen: Callable[[], "DataFrame"]
    whereabouts: Callable[[Sequence[str]], list[MessageCounts]]
    on_progress: OnProgress
    on_note: Callable[[str], None]
    on_stage_end: Callable[[], None]

    def send(self, total: int | None) -> None:
        """Send the messages, of which there are so many; None to count them first.

        Raises:
            StoppedEarly: too few messages were confirmed, some of the canary did not succeed, or
                too large a share is failing.
        """
        with explained():
            messages = self.chosen()
            total = messages.count() if total is None else total
        if total and self.options.guards.canary:
            total -= self._send_canary(messages, total)
            with explained():
                messages = self.chosen()
        if total:
            self._send_under(messages, total)

    def _send_canary(self, messages: "DataFrame", total: int) -> int:
        """Send a few messages, and wait until each has succeeded; return how many were sent."""
        guards = self.options.guards
        longest = self._longest_watch(messages) if guards.watch is None else guards.watch
        job = str(uuid.uuid4())
        # In a fixed order, so that a retried task gets the same messages.
        by = (ID,) if self.choice.order_by is None else send.BY_TIME
        some = messages.orderBy(*by).limit(min(guards.canary, total))
        with self._watch(some, job) as watch:
            canary = Canary(
                min(guards.canary, total), 0, longest, guards.unknown, watch.comes_back_to
            )
            ledger = self._send(
                some,
                canary.sent,
                job=job,
                judge=lambda _: canary.verdict(watch.look(), time_is_up=False),
            )
            # A possible duplicate may succeed twice, and must not count as two messages.
            canary = canary._replace(
                sent=canary.sent - self._check_canary(canary, ledger),
                doubtful=ledger.possible_duplicates(),
            )
            self.on_note(canary.in_words)
            verdict = watched(
                canary,
                watch.look,
                lambda: False,
                lambda standing: self.on_progress(
                    "watching the canary", min(standing.heard_of, canary.sent), canary.sent
                ),
            )
            if verdict.act is CanaryStep.STOP:
                raise StoppedEarly(
                    verdict.reason
                    if canary.comes_back_to
                    else reason_of_stop(
                        verdict,
                        watch.standing,
                        lambda: self.whereabouts(
                            [self.choice.to] if self.choice.to else self.run.queues
                        ),
                    )
                )
        self.on_note(f"{verdict.reason}.")
        return canary.sent

    def _send_under(self, messages: "DataFrame", total: int) -> None:
        """Send messages until too large a share of them is failing."""
        share = self.options.guards.stop_at
        if share is None:
            self._send(messages, total)
            return
        job = str(uuid.uuid4())
        with self._watch(messages, job) as watch:
            self._send(
                messages,
                total,
                job=job,
                judge=lambda sent: verdict_on_share(sent, watch.look(), share),
            )

    def _watch(self, messages: "DataFrame", job: str) -> RunWatch:
        """Return a watch on the messages that are sent under this job id."""
        return watch_of(
            self.url,
            self.run,
            self.options.exchanges or self.run.family,
            self.choice,
            job,
            arrivals=lambda: _arrivals_of(messages),
            management_url=self.options.management_url,
        )

    def _longest_watch(self, messages: "DataFrame") -> timedelta:
        """Return how long to watch a canary at most, if the user did not say."""
        from pyspark.sql import functions as F

        took = F.unix_seconds("failed_at") - F.unix_seconds("first_failed_at")
        with explained():
            (found,) = messages.agg(
                F.max("retries").alias("retries"),
                F.max(F.when(F.col("redrive_count") == 0, took)).alias("took"),
            ).collect()
        connector = Connector(self.url, default_name("spark"))
        delays = [
            delay
            for queue in ([self.choice.to] if self.choice.to else self.run.main_queues)
            if (delay := retry_delay(connector, queue)) is not None
        ]
        return longest_watch(
            max(delays, default=None),
            found["retries"] or 0,
            timedelta(seconds=max(0, found["took"] or 0)),
        )

    def _send(
        self,
        messages: "DataFrame",
        total: int,
        *,
        job: str | None = None,
        judge: Callable[[int], CanaryDecision] | None = None,
    ) -> ArchiveLedger:
        job = send.send(
            self.archive,
            self.run,
            self.url,
            messages,
            Mode.REQUEUE,
            total=total,
            tasks=self.tasks,
            sending=self.options.sending,
            exchanges=self.options.exchanges,
            direction=self.choice.direction,
            on_progress=self.on_progress,
            job=job,
            judge=judge,
        )
        self.on_stage_end()
        ledger = ArchiveLedger(self.archive.storage, self.run.id, job)
        stopped = ledger.stopped()
        if stopped is not None:
            raise StoppedEarly(stopped)
        return ledger

    def _check_canary(self, canary: Canary, ledger: ArchiveLedger) -> int:
        """Stop if too much of the canary was refused, since it is too small for tasks to judge by.
        Return how many messages could not be sent."""
        refused = [entry for entry in ledger.entries() if entry.event is Event.REFUSED]
        if (
            len(refused) == canary.sent
            or len(refused) > (1 - self.options.sending.least_share) * canary.sent
        ):
            raise StoppedEarly(
                f"{len(refused)} of the canary's {canary.sent} messages could not be sent; the "
                f"first error: {refused[0].detail}"
            )
        return len(refused)


def _arrivals_of(messages: "DataFrame") -> dict[str, set[WayBack]]:
    """Return the exchanges and keys by which messages reached each dead-letter queue; empty if
    there are too many to watch."""
    with explained():
        rows = (
            messages.where(f"{DEAD_LETTER_QUEUE} is not null")
            .select(DEAD_LETTER_QUEUE, EXCHANGE, ROUTING_KEY)
            .distinct()
            .limit(_MOST_ARRIVALS)
            .collect()
        )
    found: dict[str, set[WayBack]] = {}
    if len(rows) == _MOST_ARRIVALS:
        return found
    for row in rows:
        way = WayBack(text_of(bytes(row[EXCHANGE])), text_of(bytes(row[ROUTING_KEY])))
        found.setdefault(row[DEAD_LETTER_QUEUE], set()).add(way)
    return found
