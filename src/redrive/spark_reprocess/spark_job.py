"""A Spark job on an archive: drain, plan, send, restore, verify. Each phase can run by itself, and
be resumed."""

import contextlib
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING

from redrive.errors import ConfigurationError
from redrive.failures.jobs.local_journal import LocalJournal
from redrive.failures.message.route import Judge
from redrive.failures.queue.failed_queue_base import going_on, judge_at
from redrive.failures.queue.failed_source import FailedSource
from redrive.failures.queue.outcome_watch import MessageCounts, whereabouts
from redrive.failures.queue.snapshot import Snapshot
from redrive.failures.store.stored_message import BODY
from redrive.pubsub.blocking.connection import Connector
from redrive.pubsub.lifecycle import default_name
from redrive.pubsub.url import BrokerURL
from redrive.spark_reprocess import drain, send
from redrive.spark_reprocess.archive import Archive, Run
from redrive.spark_reprocess.archived_messages import KEPT, STATE, ArchivedMessages
from redrive.spark_reprocess.copy_snapshot import copy_snapshot, source_of
from redrive.spark_reprocess.decisions import unmatched, with_decisions, with_new_bodies
from redrive.spark_reprocess.drain import FILE_ROWS, limits_of, sources_of
from redrive.spark_reprocess.drain_task import DrainTask, TaskShare
from redrive.spark_reprocess.ledger import ArchiveLedger, Entry, Event
from redrive.spark_reprocess.progress import OnProgress, tell_nobody
from redrive.spark_reprocess.reconciliation import Reconciliation, verify
from redrive.spark_reprocess.recorded_job import JobRecorder, Kind, RecordedJob
from redrive.spark_reprocess.report_page import page_of
from redrive.spark_reprocess.row_message import AS_BYTES, EDITED, ID, SENT_COLUMNS, Mode
from redrive.spark_reprocess.run_plan import RunPlan, plan_of
from redrive.spark_reprocess.selection import DECISION, Decision, Selection
from redrive.spark_reprocess.send import GuardedSend, StoppedEarly, ToSend
from redrive.spark_reprocess.session import parallelism_of
from redrive.spark_reprocess.settings import JobOptions
from redrive.spark_reprocess.spark_errors import explained
from redrive.spark_reprocess.tally import rows_in, tally_of
from redrive.spark_reprocess.transform import check, transformed
from redrive.topology.names import FAILED_SUFFIX, ExchangeFamily

if TYPE_CHECKING:
    import pyarrow
    from pyspark.sql import DataFrame, SparkSession

_DISCARDED_AT_A_TIME = 100_000
_BEFORE = "body_before"
_MANY = 0.2
"""The share of a run's messages that has to be sent for its tasks to choose them."""


class SparkJob:
    """A job on an archive, phase by phase."""

    def __init__(
        self,
        spark: "SparkSession",
        archive: Archive,
        url: str,
        options: JobOptions | None = None,
        *,
        journal: LocalJournal | None = None,
        reason: str = "",
        on_progress: OnProgress = tell_nobody,
        on_note: Callable[[str], None] = lambda _: None,
    ) -> None:
        self.archive = archive
        self._spark = spark
        self._url = url
        self._options = options or JobOptions()
        self._connector = Connector(url, default_name("spark"))
        self._on_progress = on_progress
        self._on_note = on_note
        self._known: dict[str, ArchivedMessages] = {}
        self._drained: dict[tuple[str, str], pyarrow.Table] = {}
        self._counts: dict[tuple[str, str], pyarrow.Table] = {}
        self._recorder = JobRecorder(
            journal, self._connector.url.address, archive.storage.uri, reason, on_note
        )
        self._job: RecordedJob | None = None

    def requeue(
        self,
        queues: Sequence[str],
        choice: Selection | None = None,
        *,
        approve: Callable[[Run, RunPlan], bool] = lambda run, plan: True,
        snapshot: Snapshot | None = None,
    ) -> Reconciliation | None:
        """Requeue failed messages to where they failed, in all phases or those that an earlier run
        did not reach."""
        choice = choice or Selection()
        choice.check()
        run = self.begun(queues, snapshot, choice)
        choice = self.chosen(run, choice)
        # Plan even if nobody is asked: a wrong transform must fail before anything is sent.
        planned = self.plan(run, choice)
        if planned.chosen and not approve(run, planned):
            if not run.source:
                self.restore(run)
            self.verify(run, choice)
            return None
        self.choose(run, choice)
        self._discard_decided(run, choice)
        return self.send_and_verify(
            run,
            choice,
            chosen=planned.chosen,
            rest=0
            if run.source or (self._options.keep and choice.decisions is None)
            else planned.rest,
            order={
                "command": "requeue",
                "from": run.source,
                "keep": self._options.keep,
                "literal": self._options.literal,
            },
        )

    def send_and_verify(
        self,
        run: Run,
        choice: Selection,
        *,
        chosen: int | None = None,
        rest: int = 0,
        order: Mapping[str, object] | None = None,
    ) -> Reconciliation:
        """Send the chosen messages, and count the outcome of each message of the run."""
        with self._recording(
            Kind.REQUEUE,
            run,
            {"command": "send", **self._order_of(choice), **(order or {})},
            planned=chosen or 0,
            counted=Event.SENT,
        ) as job:
            try:
                self.send(run, choice, chosen=chosen)
            except StoppedEarly as stopped:
                job.stopped = stopped.reason
                stopped.identity = self.verify(run, choice)
                _count(job, stopped.identity)
                raise
            job.stage_ended()
            if rest > 0:
                self._restore_rest(run, choice, rest)
            identity = self.verify(run, choice)
            _count(job, identity)
        return identity

    @contextlib.contextmanager
    def _recording(
        self,
        kind: Kind,
        run: Run,
        order: Mapping[str, object],
        *,
        planned: int = 0,
        counted: Event | None = None,
    ) -> Iterator[RecordedJob]:
        """Record the work of the block in the journal, and how it ends."""
        with self._recorder.recording(
            kind,
            run,
            {"archive": self.archive.storage.uri, "queues": run.queues, **order},
            planned=planned,
            counted_before=lambda: 0 if counted is None else self._count_in(run, counted),
        ) as job:
            self._job = job
            try:
                yield job
            finally:
                self._job = None

    def _order_of(self, choice: Selection) -> dict[str, object]:
        """Return the options of a requeue for the journal, as JSON values."""
        given: dict[str, object] = {
            "selection": {"where": choice.where, "groups": []},
            "transform": choice.transform,
            "patch": choice.patch,
            "to": choice.to,
            "via": choice.via,
            "force": choice.force,
            "unchecked": choice.unchecked,
            "order_by": choice.order_by,
            "rate": self._options.sending.rate,
            "guards": self._options.guards.as_json(),
        }
        return {name: value for name, value in given.items() if value}

    def _count_in(self, run: Run, event: Event) -> int:
        """Count the messages of a run that are in a state, by the ledger alone."""
        if not self.archive.storage.exists("ledger"):
            return 0
        with explained():
            return self._messages_of(run).states().where(f"{STATE} = '{event}'").count()

    def _tell(self, phase: str, done: int, total: int) -> None:
        """Report the progress of a phase to the caller and to the journal."""
        if self._job is not None and phase == _PHASES.get(self._job.record.kind):
            self._job.progress(done, total)
        self._on_progress(phase, done, total)

    def begun(
        self,
        queues: Sequence[str],
        snapshot: Snapshot | None = None,
        choice: Selection | None = None,
    ) -> Run:
        """Return the unfinished run of these queues or this snapshot, else a new run; either one is
        drained. What is drained is counted by the choice at once."""
        run = self.unfinished(queues, snapshot)
        if run is not None and self._family_of(run) != run.family:
            raise ConfigurationError(
                f"run {run.id} was begun with --exchange {run.family.main} --retry-suffix "
                f"{run.family.retry_suffix} --failed-suffix {run.family.failed_suffix}",
                "Continue it with the same options, or restore the rest of it first: redrive spark "
                "restore.",
            )
        if run is not None and self.archive.is_drained(run):
            self._on_note(f"Continuing run {run.id}.")
            return run
        return self.drain(queues, choice=choice) if snapshot is None else self.copy(snapshot)

    def _family_of(self, run: Run) -> ExchangeFamily:
        """Return the exchange family that was asked for, or else the run's own."""
        return self._options.exchanges or run.family

    def copy(self, snapshot: Snapshot) -> Run:
        """Copy a snapshot into the archive as a new run. The snapshot is left as it is."""
        for run in self.archive.runs():
            if run.source == source_of(snapshot) and self.archive.is_ended(run):
                raise ConfigurationError(
                    f"run {run.id} has already dealt with all messages of {snapshot.path}",
                    "Use another archive to process them again.",
                )
        return copy_snapshot(
            self.archive,
            self._url,
            snapshot,
            exchanges=self._options.exchanges,
            on_progress=self._on_progress,
        )

    def sources(self, queues: Sequence[str]) -> list[FailedSource]:
        """Return the failed queues that these names stand for."""
        return sources_of(self._url, queues, literal=self._options.literal)

    def drain(
        self,
        queues: Sequence[str],
        *,
        file_rows: int = FILE_ROWS,
        choice: Selection | None = None,
    ) -> Run:
        """Drain failed queues into the archive, as a new run or to finish an earlier one. If there
        is a choice, the tasks also count what they drain by it: the plan needs no further pass."""
        options = self._options
        sources = self.sources(queues)
        drain.check_before(
            self._spark, self.archive, self._url, sources, options.management_url, self._on_note
        )
        run = drain.begun(self.archive, self._url, sources, options.exchanges)
        with self._recording(
            Kind.DRAIN, run, {"literal": options.literal}, planned=sum(run.depths.values())
        ) as job:
            # Which messages a DataFrame decides on is known only to a join.
            by = None if choice is None or choice.decisions else self._judging(run, choice)
            drained = drain.drain(
                self._spark,
                self.archive,
                self._url,
                run,
                tasks=self._tasks,
                file_rows=file_rows,
                timeout=options.sending.timeout,
                management_url=options.management_url,
                choice=by,
                on_progress=self._tell,
            )
            rows = self.archive.rows_noted(run) or 0
            if by is not None:
                self._drained[run.id, by.key] = drained.counts
            if drained.has_distinct_ids(rows):
                self._messages_of(run).assume_distinct_ids()
            job.counted(rows)
        return run

    @cached_property
    def _tasks(self) -> int:
        """How many tasks run at once."""
        return self._options.tasks or parallelism_of(self._spark)

    def unfinished(self, queues: Sequence[str], snapshot: Snapshot | None = None) -> Run | None:
        """Return the latest run of these queues or this snapshot that has messages left to deal
        with; None if there is none."""
        address = BrokerURL.parse(self._url).address
        source = "" if snapshot is None else source_of(snapshot)
        for run in reversed(self.archive.runs()):
            if (
                run.address == address
                and run.source == source
                and (source or self._is_of(run, queues))
                and not self.archive.is_ended(run)
            ):
                return run
        return None

    def _is_of(self, run: Run, names: Sequence[str]) -> bool:
        """Tell whether a run is of the queues with these names. Goes by the names only, since a
        queue may have been deleted after it was drained."""
        if self._options.literal and run.main_queues:
            return False
        meant = {name if name in run.queues else name.removesuffix(FAILED_SUFFIX) for name in names}
        return set(run.queues) == meant

    def chosen(self, run: Run, choice: Selection) -> Selection:
        """Return the selection recorded when sending of the run began, or `choice` if there is none
        yet."""
        before = self.archive.choice(run)
        if before is None:
            return choice
        begun = Selection.from_dict(before)
        if replace(begun, now=choice.now) != choice:
            raise ConfigurationError(
                f"run {run.id} was begun with where={begun.where!r} and "
                f"transform={begun.changed_by!r}{' and force' * begun.force}"
                f"{'' if begun.to is None else f' and to={begun.to!r}'}{' and via' * begun.via}"
                f"{' and unchecked' * begun.unchecked}"
                f"{'' if begun.order_by is None else f' and order_by={begun.order_by!r}'}",
                "Continue it with the same options, or restore the rest of it first: redrive spark "
                "restore.",
            )
        return begun

    def choose(self, run: Run, choice: Selection) -> None:
        """Record the selection of a run, so that resuming it sends the same messages."""
        self.archive.choose(run, choice.to_dict())

    def plan(self, run: Run, choice: Selection) -> RunPlan:
        """Return what a run holds and what would be sent; write it to the run's page as well."""
        choice = self._judging(run, choice)
        found = plan_of(run.id, self._count(run, choice), choice)
        change = choice.change()
        if change is not None:
            check(choice.of(self._decided(choice, self._messages_of(run).open())), change)
        if choice.decisions is not None:
            self._tell_unmatched(run, choice.decisions)
        self.archive.write_page(run, page_of(found))
        return found

    def _count(self, run: Run, choice: Selection) -> "pyarrow.Table":
        """Count a run's messages. What the drain has counted is used if it is all that there is,
        with each message once."""
        kept, key = self._messages_of(run), (run.id, choice.key)
        drained = self._drained.pop(key, None)
        if (
            drained is None
            or self.archive.storage.exists("ledger")
            or rows_in(drained) != self.archive.rows_noted(run)
            or kept.has_repeated()
        ):
            drained = tally_of(self._decided(choice, kept.with_states()), choice)
        self._counts[key] = drained
        return drained

    def _decided(self, choice: Selection, messages: "DataFrame") -> "DataFrame":
        """Add what a DataFrame says is done with messages, if the choice has one."""
        if choice.decisions is None:
            return messages
        return with_decisions(self._spark, self.archive, choice.decisions, messages)

    def _tell_unmatched(self, run: Run, decisions: str) -> None:
        count = unmatched(self._spark, self.archive, decisions, self._messages_of(run).messages())
        if count:
            self._on_note(
                f"{count:,} of the DataFrame's failure ids are those of no message in run {run.id}."
            )

    def plan_by_looking(
        self,
        queues: Sequence[str],
        choice: Selection,
        management_url: str | None = None,
        snapshot: Snapshot | None = None,
    ) -> RunPlan:
        """Return what is in the failed queues or the snapshot and what would be sent, without
        taking anything."""
        folder = f"_look-{uuid.uuid4().hex[:8]}"
        try:
            archive = Archive(f"{self.archive.storage.uri}/{folder}")
            looked = SparkJob(self._spark, archive, self._url, self._options, on_note=self._on_note)
            run = (
                looked._looked(queues, management_url)
                if snapshot is None
                else looked.copy(snapshot)
            )
            return looked.plan(run, choice)
        finally:
            self.archive.storage.delete_folder(folder)

    def _looked(self, queues: Sequence[str], management_url: str | None) -> Run:
        """Return a run with copies of the messages in failed queues; all stay in their queues."""
        sources = self.sources(queues)
        limits = limits_of(
            self._url,
            sources,
            management_url or self._options.management_url,
            returns_all=True,
        )
        for source in sources:
            limit = limits[source.name]
            if limit is not None:
                self._on_note(
                    f"{source.queue} has a delivery limit: each look uses up one of the "
                    f"{limit.returns:,} returns that each of its messages has."
                )
        run = drain.begun(self.archive, self._url, sources)
        timeout = self._options.sending.timeout
        task = DrainTask(self._url, self.archive.storage, run.id, FILE_ROWS, timeout, takes=False)
        for source in sources:
            # One consumer only: several of them would not return messages in their order.
            depth = run.depths[source.name]
            task.take(TaskShare(source, depth, "look", limits[source.name]), 0)
        return run

    def whereabouts(self, queues: Sequence[str]) -> list[MessageCounts]:
        """Return how many messages these target queues hold, and who consumes them."""
        places = (whereabouts(self._connector, queue) for queue in queues)
        return [going_on(place, lambda: self._judge) for place in places]

    def send(self, run: Run, choice: Selection, *, chosen: int | None = None) -> None:
        """Send the chosen messages, the canary first."""
        self.check_broker(run)
        choice = self._judging(run, choice)
        GuardedSend(
            self.archive,
            run,
            self._url,
            choice,
            self._options,
            self._tasks,
            lambda: self._chosen(run, choice),
            lambda total: self._chosen_by_tasks(run, choice, total),
            self.whereabouts,
            self._tell,
            self._on_note,
            lambda: self._job.stage_ended() if self._job is not None else None,
        ).send(chosen)

    def restore(self, run: Run) -> None:
        """Put the remaining messages back into the queues that they came from."""
        self.check_broker(run)
        kept = self._messages_of(run)
        with explained():
            planned = kept.open().count()
        with self._recording(Kind.RESTORE, run, {}, planned=planned, counted=Event.RESTORED) as job:
            if planned:
                self._restore(run, kept.open(), planned)
            self._counts.clear()
            if self._recorder.is_on:
                job.counted(self._count_in(run, Event.RESTORED) - job.counted_before)

    def _restore_rest(self, run: Run, choice: Selection, total: int) -> None:
        """Restore what a selection leaves: not what it would send, and could not."""
        choice = self._judging(run, choice)
        rest = self._decided(choice, self._messages_of(run).open().where(f"{STATE} = '{KEPT}'"))
        # Messages of subscriptions always have a way, unless `via` asks for their first exchange.
        if run.dead_letter_queues or choice.via:
            rest = rest.join(choice.without_way_of(rest).select(ID), ID, "left_anti")
        if choice.decisions is not None:
            # What the DataFrame or the order leaves out stays in the archive if it is to be kept.
            left = f"coalesce({DECISION}, '{Decision.REQUEUE}') = '{Decision.REQUEUE}'"
            wanted = f"{DECISION} = '{Decision.RESTORE}'"
            rest = rest.where(wanted if self._options.keep else f"{wanted} or {left}")
        self._restore(run, rest, total)

    def _restore(self, run: Run, messages: "DataFrame", total: int) -> None:
        send.send(
            self.archive,
            run,
            self._url,
            send.ToSend(messages),
            Mode.RESTORE,
            total=total,
            tasks=self._tasks,
            sending=self._options.sending,
            exchanges=self._options.exchanges,
            on_progress=self._tell,
        )

    def discard(self, run: Run, choice: Selection) -> int:
        """Mark the chosen messages as unwanted; they stay in the archive. Return how many."""
        choice = replace(choice, discards=True)
        messages = choice.of(self._messages_of(run).open())
        self._counts.clear()
        return self._discard(run, messages, {"where": choice.where, "groups": []})

    def _discard_decided(self, run: Run, choice: Selection) -> None:
        """Discard the messages that a DataFrame says are unwanted."""
        if choice.decisions is not None:
            decided = self._decided(choice, self._messages_of(run).open())
            self._discard(run, decided.where(f"{DECISION} = '{Decision.DISCARD}'"), None)

    def _discard(self, run: Run, messages: "DataFrame", selection: object) -> int:
        ledger = ArchiveLedger(self.archive.storage, run.id, str(uuid.uuid4()))
        count = 0
        with explained():
            ids = [row[ID] for row in messages.select(ID).collect()]
        if selection is None and not ids:
            return 0
        order: dict[str, object] = {"selection": selection or {}}
        with self._recording(Kind.DISCARD, run, order, planned=len(ids)) as job:
            for start in range(0, len(ids), _DISCARDED_AT_A_TIME):
                some = ids[start : start + _DISCARDED_AT_A_TIME]
                ledger.write("discard", 0, count, [Entry(id_, Event.DISCARDED) for id_ in some])
                count += len(some)
            job.counted(count)
        return count

    def verify(self, run: Run, choice: Selection | None = None) -> Reconciliation:
        """Count the outcome of each message, and write the reports of the whole run."""
        kept = self._messages_of(run)
        asked = self._judging(run, choice or self._noted(run))
        is_chosen = choice is not None or self.archive.choice(run) is not None
        # What was counted before the messages were sent still says which of them there are.
        counts = self._counts.get((run.id, asked.key))
        counts = self._count(run, asked) if counts is None else counts
        whole = plan_of(run.id, counts, asked, whole=True)
        identity = verify(kept, self.archive, run, whole, is_chosen=is_chosen)
        self.archive.write_page(run, page_of(whole, identity))
        return identity

    def _messages_of(self, run: Run) -> ArchivedMessages:
        """Return the messages of a run; cached once it is drained, as finding repeats is costly."""
        if not self.archive.is_drained(run):
            return ArchivedMessages(self._spark, self.archive, run)
        return self._known.setdefault(run.id, ArchivedMessages(self._spark, self.archive, run))

    def _judging(self, run: Run, choice: Selection) -> Selection:
        """Return the choice with a judge that asks the broker about ways back, if it needs one."""
        if not choice.direction.asks_the_broker or not run.dead_letter_queues or choice.judge:
            return choice
        return replace(choice, judge=self._judge)

    @cached_property
    def _judge(self) -> Judge:
        return judge_at(self._connector, self._options.management_url)

    def _noted(self, run: Run) -> Selection:
        """Return the selection recorded when sending of a run began; if none was, all messages."""
        noted = self.archive.choice(run)
        return Selection() if noted is None else Selection.from_dict(noted)

    def check_broker(self, run: Run) -> None:
        """Check that this is the broker that the run's messages came from."""
        here = BrokerURL.parse(self._url).address
        if here != run.address and not self._options.another_broker:
            raise ConfigurationError(
                f"run {run.id} was drained from {run.address}, but this is {here}",
                "Give the address that it came from with --url, or use --another-broker to send to "
                "this one.",
            )

    def _chosen_by_tasks(self, run: Run, choice: Selection, total: int) -> "ToSend | None":
        """Return the chosen messages so that the tasks that send them choose them, which saves a
        pass over all; None if more than the choice decides which are sent, and how, or if so few
        are chosen that the others' bodies would cost more than that pass.
        """
        if total < _MANY * (self.archive.rows_noted(run) or 0):
            return None
        if choice.decisions is not None or choice.order_by is not None or choice.changed_by:
            return None
        kept = self._messages_of(run)
        columns = [*dict.fromkeys((*SENT_COLUMNS, *choice.needed))]
        files = kept.in_files(columns)
        if files is None:
            return ToSend(kept.open().select(*columns), choice.chosen)
        return ToSend(
            files.files.numbers(self._spark, self._tasks),
            lambda numbers: choice.chosen(files.messages(numbers)),
        )

    def _chosen(self, run: Run, choice: Selection) -> "DataFrame":
        """Return the chosen messages that can still be sent, with their final bodies."""
        from pyspark.sql import functions as F

        kept, choice = self._messages_of(run), self._judging(run, choice)
        # The way depends on the original message, not on its changed body.
        messages = choice.of(self._decided(choice, kept.open()))
        if choice.decisions is not None:
            messages = with_new_bodies(messages)
        change = choice.change()
        if change is None:
            return choice.with_order_keys(messages)
        # Applied once to everything that the choice selects, so that a resumed job sends the same
        # bodies.
        everything = choice.of(self._decided(choice, kept.messages()))
        if choice.decisions is not None:
            everything = with_new_bodies(everything)
        changed = transformed(self._spark, self.archive, run, choice.key, everything, change)
        edited = F.when(F.col(BODY) != F.col(_BEFORE), F.lit(AS_BYTES))
        messages = (
            messages.withColumnRenamed(BODY, _BEFORE)
            .join(changed.select(ID, BODY), ID)
            .withColumn(
                EDITED,
                F.coalesce(F.col(EDITED), edited) if choice.decisions is not None else edited,
            )
            .drop(_BEFORE)
        )
        return choice.with_order_keys(messages)


_PHASES = {
    str(Kind.DRAIN): "draining",
    str(Kind.REQUEUE): "requeueing",
    str(Kind.RESTORE): "restoring",
}
"""The phase that a job's progress is measured by."""


def _count(job: RecordedJob, identity: Reconciliation) -> None:
    """Set the counts of a requeue in its record."""
    job.counted(
        identity.requeued - job.counted_before, identity.possible_duplicates, identity.refused
    )
