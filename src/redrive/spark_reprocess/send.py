"""Send the chosen messages of a run, the canary first, and stop where too many are failing."""

import contextlib
import uuid
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Self

from redrive.errors import ConfigurationError, RedriveError
from redrive.failures.failed_queue import FailedQueue
from redrive.failures.message.direction import Direction
from redrive.failures.message.route import WayBack
from redrive.failures.queue.canary import (
    Canary,
    CanaryDecision,
    CanaryStep,
    longest_watch,
    verdict_on_share,
    watched,
)
from redrive.failures.queue.outcome_watch import MessageCounts, Watch, reason_of_stop, retry_delay
from redrive.failures.queue.return_checks import ReturnChecks
from redrive.failures.store.stored_message import (
    DEAD_LETTER_QUEUE,
    EXCHANGE,
    ROUTING_KEY,
    text_of,
)
from redrive.pubsub.blocking.connection import Connector
from redrive.pubsub.lifecycle import default_name
from redrive.spark_reprocess.archive import Archive, Run
from redrive.spark_reprocess.ledger import ArchiveLedger, Event
from redrive.spark_reprocess.progress import OnProgress, tell_nobody, watching
from redrive.spark_reprocess.reconciliation import Reconciliation
from redrive.spark_reprocess.row_message import EDITED, ID, ORDER_KEY, SENT_BY, SENT_COLUMNS, Mode
from redrive.spark_reprocess.selection import Selection
from redrive.spark_reprocess.send_task import SendTask, sent_part
from redrive.spark_reprocess.settings import JobOptions, SendSettings
from redrive.spark_reprocess.spark_errors import explained
from redrive.spark_reprocess.storage import FILE, ROW
from redrive.topology.names import ExchangeFamily
from redrive.topology.outcome_events import OutcomeTotals

if TYPE_CHECKING:
    import pyarrow
    from pyspark.sql import DataFrame

BY_TIME = ("failed_at", FILE, ROW)
"""What messages of one key are sorted by. Some peers note the second only: then the place in the
queue decides, as far as one task has drained it."""


@dataclass(frozen=True, slots=True)
class ToSend:
    """Messages to send.

    Args:
        frame: a DataFrame that is shared between the tasks.
        read: makes, in a task, the messages of its share, each with the way that it is sent by;
            None if the rows are the messages.
    """

    frame: "DataFrame"
    read: "Callable[[Iterator[pyarrow.RecordBatch]], Iterator[pyarrow.RecordBatch]] | None" = None


def send(
    archive: Archive,
    run: Run,
    url: str,
    messages: "ToSend",
    mode: Mode,
    *,
    total: int,
    tasks: int,
    sending: SendSettings | None = None,
    exchanges: ExchangeFamily | None = None,
    direction: Direction | None = None,
    on_progress: OnProgress = tell_nobody,
    job: str | None = None,
    judge: Callable[[int], CanaryDecision] | None = None,
) -> str:
    """Send messages of a run, and keep the ledger; return the job's id.

    `tasks` run at once, and share the rate: it is never exceeded, but not reached while only the
    last of them are running.
    """
    job, sending = job or str(uuid.uuid4()), sending or SendSettings()
    ledger = ArchiveLedger(archive.storage, run.id, job)
    rate = sending.restore_rate if mode is Mode.RESTORE else sending.rate
    task = SendTask(
        url,
        mode,
        job,
        ledger,
        batch=sending.batch,
        rate=None if rate is None else rate / tasks,
        timeout=sending.timeout,
        least_share=sending.least_share,
        exchanges=exchanges or run.family,
        direction=direction or Direction(),
    )
    phase = "restoring" if mode is Mode.RESTORE else "requeueing"

    def look() -> None:
        settled = ledger.outcomes()
        verdict = CanaryDecision(CanaryStep.GO_ON) if judge is None else judge(settled)
        if verdict.act is CanaryStep.STOP and ledger.stopped() is None:
            ledger.stop(verdict.reason)
        on_progress(phase, settled, total)

    frame, read = messages.frame, messages.read
    names = [*SENT_COLUMNS, SENT_BY]
    if read is None:
        others = (SENT_BY, EDITED, ORDER_KEY)
        names = [*SENT_COLUMNS, *(name for name in others if name in frame.columns)]
        if ORDER_KEY in names:
            # All messages of a key in one task, which confirms each before it sends the next.
            frame = frame.repartition(tasks, ORDER_KEY).sortWithinPartitions(*BY_TIME)
        frame = frame.select(*names)

    def send_part(batches: "Iterator[pyarrow.RecordBatch]") -> "Iterator[pyarrow.RecordBatch]":
        import pyarrow

        sent = sent_part(task, names, batches if read is None else read(batches))
        yield pyarrow.RecordBatch.from_pydict({"attempt": [sent.attempt], "files": [sent.files]})

    with watching(look), explained():
        done = frame.mapInArrow(send_part, "attempt string, files long").collect()
    # What comes next reads the ledger: what it missed would be sent once more.
    ledger.wait_until_listed({row["attempt"]: row["files"] for row in done})
    return job


class RunWatch:
    """Several watches as one; a context manager."""

    def __init__(self, watches: Sequence[Watch | ReturnChecks], comes_back_to: str = "") -> None:
        self._watches = watches
        self._open = contextlib.ExitStack()
        self.comes_back_to = comes_back_to

    @property
    def standing(self) -> OutcomeTotals:
        """The outcomes known at the last look; may be read from any thread."""
        return sum((one.standing for one in self._watches), OutcomeTotals())

    def look(self) -> OutcomeTotals:
        """Return the outcomes known by now. It is safe to look into the queues while messages are
        sent, since the messages to send are in the archive."""
        return sum((one.look() for one in self._watches), OutcomeTotals())

    def __enter__(self) -> Self:
        with self._open:
            for one in self._watches:
                self._open.enter_context(one)
                one.begin()
                one.sent(0)  # nothing comes from the queue itself: it was drained before
            self._open = self._open.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._open.close()


def watch_of(
    url: str,
    run: Run,
    family: ExchangeFamily,
    choice: Selection,
    job: str,
    *,
    arrivals: Callable[[], Mapping[str, Collection[WayBack]]],
    management_url: str | None = None,
) -> RunWatch:
    """Return a watch on the messages that a job sends from a run."""
    connector = Connector(url, default_name("spark watch", job))
    if choice.to is not None:
        return RunWatch([Watch(connector, family, [choice.to], job)])
    if not run.dead_letter_queues:
        return RunWatch([Watch(connector, family, run.queues, job)])
    if run.main_queues:
        raise ConfigurationError(
            f"subscribers of {', '.join(run.main_queues)} report which messages succeeded, "
            f"consumers of {', '.join(run.dead_letter_queues)} do not: one canary can't be judged "
            "by both",
            "Leave out --canary and --stop-at, or drain the two kinds into separate archives.",
        )
    came = arrivals()
    watches = [
        FailedQueue(url, queue, family, management_url=management_url, literal=True).watch(
            job, arrivals=came.get(queue, ())
        )
        for queue in run.dead_letter_queues
    ]
    return RunWatch(watches, ", ".join(run.dead_letter_queues))


_MOST_ARRIVALS = 1000
"""Distinct exchanges and keys by which messages reached dead-letter queues. From this number on,
the queues themselves are searched for messages that come back."""


class StoppedEarly(RedriveError):
    """A job stopped sending: too few messages were confirmed, some of the canary did not succeed,
    or too large a share is failing."""

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
    """The sending of the chosen messages of a run."""

    archive: Archive
    run: Run
    url: str
    choice: Selection
    options: JobOptions
    tasks: int
    chosen: Callable[[], "DataFrame"]
    chosen_by_tasks: Callable[[int], ToSend | None]
    whereabouts: Callable[[Sequence[str]], list[MessageCounts]]
    on_progress: OnProgress
    on_note: Callable[[str], None]
    on_stage_end: Callable[[], None]

    def send(self, total: int | None) -> None:
        """Send the messages, of which there are so many; None to count them first."""
        with explained():
            total = self.chosen().count() if total is None else total
        if total and self.options.guards.canary:
            total -= self._send_canary(total)
        if total:
            self._send_rest(total)

    def _send_canary(self, total: int) -> int:
        """Send a few messages, and wait until each has succeeded; return how many were sent."""
        guards = self.options.guards
        with explained():
            messages = self.chosen()
        longest = self._longest_watch(messages) if guards.watch is None else guards.watch
        job = str(uuid.uuid4())
        # In a fixed order, so that a retried task gets the same messages.
        by = (ID,) if self.choice.order_by is None else BY_TIME
        some = messages.orderBy(*by).limit(min(guards.canary, total))
        with self._watch(lambda: some, job) as watch:
            canary = Canary(
                min(guards.canary, total), 0, longest, guards.unknown, watch.comes_back_to
            )
            ledger = self._send(
                ToSend(some),
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

    def _send_rest(self, total: int) -> None:
        """Send messages until too large a share of them is failing."""
        with explained():
            messages = self.chosen_by_tasks(total) or ToSend(self.chosen())
        share = self.options.guards.stop_at
        if share is None:
            self._send(messages, total)
            return
        job = str(uuid.uuid4())
        with self._watch(self.chosen, job) as watch:
            self._send(
                messages,
                total,
                job=job,
                judge=lambda sent: verdict_on_share(sent, watch.look(), share),
            )

    def _watch(self, messages: Callable[[], "DataFrame"], job: str) -> RunWatch:
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
        messages: ToSend,
        total: int,
        *,
        job: str | None = None,
        judge: Callable[[int], CanaryDecision] | None = None,
    ) -> ArchiveLedger:
        job = send(
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


def _arrivals_of(messages: Callable[[], "DataFrame"]) -> dict[str, set[WayBack]]:
    """Return the exchanges and keys by which messages reached each dead-letter queue; empty if
    there are too many to watch."""
    with explained():
        rows = (
            messages()
            .where(f"{DEAD_LETTER_QUEUE} is not null")
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
