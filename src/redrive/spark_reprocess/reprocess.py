"""The whole job, phase by phase: drain, plan, send, restore, verify. Each can be done by itself,
and taken up again."""

import contextlib
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from functools import cached_property
from typing import TYPE_CHECKING

from redrive.errors import ConfigurationError, RedriveError
from redrive.failures.canary import (
    Canary,
    CanaryDecision,
    CanaryStep,
    Guards,
    longest_watch,
    verdict_on_share,
    watched,
)
from redrive.failures.failed_source import FailedSource
from redrive.failures.local_journal import LocalJournal
from redrive.failures.outcome_watch import (
    MessageCounts,
    reason_of_stop,
    retry_delay,
    whereabouts,
)
from redrive.failures.route import Judge
from redrive.failures.route_survey import going_on, judge_at
from redrive.failures.snapshot import Snapshot
from redrive.failures.stored_message import (
    BODY,
    DEAD_LETTER_QUEUE,
    EXCHANGE,
    ROUTING_KEY,
    text_of,
)
from redrive.failures.way_back import WayBack
from redrive.pubsub.blocking.connection import Connector
from redrive.pubsub.lifecycle import default_name
from redrive.pubsub.url import BrokerURL
from redrive.spark_reprocess import drain, send
from redrive.spark_reprocess.archive import Archive, Run
from redrive.spark_reprocess.archived_messages import STATE, ArchivedMessages
from redrive.spark_reprocess.copy_snapshot import copy_snapshot, source_of
from redrive.spark_reprocess.drain import FILE_ROWS, limits_of, sources_of
from redrive.spark_reprocess.drain_task import DrainTask, TaskShare
from redrive.spark_reprocess.ledger import ArchiveLedger, Entry, Event
from redrive.spark_reprocess.progress import OnProgress, tell_nobody
from redrive.spark_reprocess.reconciliation import Reconciliation, verify
from redrive.spark_reprocess.recorded_job import JobRecorder, Kind, RecordedJob, RunWatch, watch_of
from redrive.spark_reprocess.report_page import page_of
from redrive.spark_reprocess.row_message import ID, Mode
from redrive.spark_reprocess.run_plan import RunPlan, plan
from redrive.spark_reprocess.selection import Selection
from redrive.spark_reprocess.settings import JobOptions
from redrive.spark_reprocess.spark_errors import explained
from redrive.spark_reprocess.transform import check, transformed
from redrive.topology.names import FAILED_SUFFIX, ExchangeFamily

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_DISCARDED_AT_A_TIME = 100_000
_MOST_ARRIVALS = 1000
"""Ways into dead-letter queues: if there are so many, what comes back is looked for in the queues
themselves."""


class StoppedEarly(RedriveError):
    """A job sent no more: too few messages were confirmed, some of the canary did not succeed, or
    too large a share is failing.

    Args:
        reason: what was seen.
    """

    identity: Reconciliation | None = None
    """What became of each message until then, where that was counted."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason

    def __str__(self) -> str:
        return (
            f"the job stopped: {self.reason}.\n"
            "What was not sent is in the archive: the same command goes on when that is solved, "
            "with a new canary; or restore it."
        )


class Reprocess:
    """One job on an archive.

    Args:
        spark: the session.
        archive: where messages are kept in between.
        url: the broker's address.
        options: how it sends, and what it does besides.
        journal: where it is written down what is done; None for nowhere.
        reason: why it is done, for the journal.
        on_progress: is called with the phase, how many messages are through it, of how many.
        on_note: is called with a sentence that people may want to read meanwhile.
    """

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
        """Requeues failed messages to where they failed: all phases of the job, or those that an
        earlier run did not come to.

        Args:
            queues: the main queues, or any dead-letter queues; not read where there is a snapshot.
            choice: what is sent, and how it is changed; None for all as it is.
            approve: is asked, with what would be sent, whether to go on.
            snapshot: where messages are copied from in place of failed queues. What is not chosen
                of it stays in the archive.

        Returns:
            What became of each message, counted; None where it was not approved: what was drained
            is in its failed queues again.

        Raises:
            Stopped: a guard stopped it; its `identity` says what was sent by then.
            RedriveError: it could not go on; the same call does.
        """
        choice = choice or Selection()
        choice.check()
        run = self.begun(queues, snapshot)
        choice = self.chosen(run, choice)
        # Also where nobody is asked: a transform that is wrong is an error before anything is sent.
        planned = self.plan(run, choice)
        if planned.chosen and not approve(run, planned):
            if not run.source:
                self.restore(run)
            self.verify(run, choice)
            return None
        self.choose(run, choice)
        return self.send_and_verify(
            run,
            choice,
            chosen=planned.chosen,
            restore=not (self._options.keep or run.source),
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
        restore: bool = False,
        order: Mapping[str, object] | None = None,
    ) -> Reconciliation:
        """Send what is chosen, and count what became of each message.

        Args:
            run: the run.
            choice: what is sent.
            chosen: how many messages that is, as the plan has counted; None to count them first.
            restore: whether what is left is restored to the queue that it came from. What nothing
                says a way of stays in the archive, as what could not be sent does.
            order: what else the journal is to say of how it was asked for, as JSON values.

        Raises:
            Stopped: a guard stopped it; its `identity` says what was sent by then.
            ConfigurationError: somebody else does it just now.
        """
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
            if restore:
                self._restore(run, refused=False, choice=choice)
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
        """The journal has what is done in the block, and how it ends."""
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
        """How a requeue was asked for, as JSON values."""
        given: dict[str, object] = {
            "selection": {"where": choice.where, "groups": []},
            "transform": choice.transform,
            "patch": choice.patch,
            "to": choice.to,
            "via": choice.via,
            "force": choice.force,
            "unchecked": choice.unchecked,
            "rate": self._options.sending.rate,
            "guards": self._options.guards.as_json(),
        }
        return {name: value for name, value in given.items() if value}

    def _count_in(self, run: Run, event: Event) -> int:
        """How many messages of a run are in a state, by the ledger alone."""
        if not self.archive.storage.exists("ledger"):
            return 0
        with explained():
            return self._messages_of(run).states().where(f"{STATE} = '{event}'").count()

    def _tell(self, phase: str, done: int, total: int) -> None:
        """Tells whoever watches, and the journal, how far a phase is."""
        if self._job is not None and phase == _PHASES.get(self._job.record.kind):
            self._job.progress(done, total)
        self._on_progress(phase, done, total)

    def begun(self, queues: Sequence[str], snapshot: Snapshot | None = None) -> Run:
        """The run of these queues, or of this snapshot, to go on with; else a new one that is
        drained."""
        run = self.unfinished(queues, snapshot)
        if run is not None and self._family_of(run) != run.family:
            raise ConfigurationError(
                f"run {run.id} was begun with --exchange {run.family.main} --retry-suffix "
                f"{run.family.retry_suffix} --failed-suffix {run.family.failed_suffix}",
                "Continue it with the same, or restore what is left of it first: redrive spark "
                "restore.",
            )
        if run is not None and self.archive.is_drained(run):
            self._on_note(f"Going on with run {run.id}.")
            return run
        return self.drain(queues) if snapshot is None else self.copy(snapshot)

    def _family_of(self, run: Run) -> ExchangeFamily:
        """Return the exchange family that was asked for, or else the run's own."""
        return self._options.exchanges or run.family

    def copy(self, snapshot: Snapshot) -> Run:
        """Takes a snapshot into the archive, as a new run; the snapshot stays.

        Raises:
            ConfigurationError: the archive has had it before: its messages would be there twice.
        """
        for run in self.archive.runs():
            if run.source == source_of(snapshot) and self.archive.is_ended(run):
                raise ConfigurationError(
                    f"the messages of {snapshot.path} have all found their place in run {run.id}",
                    "Use another archive to have them there once more.",
                )
        return copy_snapshot(
            self.archive,
            self._url,
            snapshot,
            exchanges=self._options.exchanges,
            on_progress=self._on_progress,
        )

    def sources(self, queues: Sequence[str]) -> list[FailedSource]:
        """The queues of failed messages that are meant by these names.

        Raises:
            ConfigurationError: there is none of that name.
            BrokerUnavailable, PermissionDenied: the broker can't be reached.
        """
        return sources_of(self._url, queues, literal=self._options.literal)

    def drain(self, queues: Sequence[str], *, file_rows: int = FILE_ROWS) -> Run:
        """Takes queues of failed messages into the archive, as a new run or an unfinished one."""
        options = self._options
        sources = self.sources(queues)
        drain.check_before(
            self._spark, self.archive, self._url, sources, options.management_url, self._on_note
        )
        run = drain.begun(self.archive, self._url, sources, options.exchanges)
        with self._recording(
            Kind.DRAIN, run, {"literal": options.literal}, planned=sum(run.depths.values())
        ) as job:
            rows = drain.drain(
                self._spark,
                self.archive,
                self._url,
                run,
                tasks=options.tasks,
                file_rows=file_rows,
                timeout=options.sending.timeout,
                management_url=options.management_url,
                on_progress=self._tell,
            )
            job.counted(rows)
        return run

    def unfinished(self, queues: Sequence[str], snapshot: Snapshot | None = None) -> Run | None:
        """The latest run of these queues, or of this snapshot, of which messages are still to be
        decided on; None where there is none."""
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
        """Whether a run is of the queues of these names; a queue may be gone since it was
        drained."""
        if self._options.literal and run.main_queues:
            return False
        meant = {name if name in run.queues else name.removesuffix(FAILED_SUFFIX) for name in names}
        return set(run.queues) == meant

    def chosen(self, run: Run, choice: Selection) -> Selection:
        """What is sent of a run: what was chosen when its sending began, or else this.

        Raises:
            ConfigurationError: something else was chosen before.
        """
        before = self.archive.choice(run)
        if before is None:
            return choice
        begun = Selection.from_dict(before)
        if replace(begun, now=choice.now) != choice:
            raise ConfigurationError(
                f"run {run.id} was begun with where={begun.where!r} and "
                f"transform={begun.changed_by!r}{' and force' * begun.force}"
                f"{'' if begun.to is None else f' and to={begun.to!r}'}{' and via' * begun.via}"
                f"{' and unchecked' * begun.unchecked}",
                "Continue it with the same, or restore what is left of it first: redrive spark "
                "restore.",
            )
        return begun

    def choose(self, run: Run, choice: Selection) -> None:
        """Fixes what is sent of a run, for whoever takes it up again."""
        self.archive.choose(run, choice.to_dict())

    def plan(self, run: Run, choice: Selection) -> RunPlan:
        """What is there of a run, and what would be sent; it is on the run's page, too."""
        kept, choice = self._messages_of(run), self._judging(run, choice)
        found = plan(run, kept.with_states(), choice)
        change = choice.change()
        if change is not None:
            check(choice.of(kept.open()), change)
        self.archive.write_page(run, page_of(found))
        return found

    def plan_by_looking(
        self,
        queues: Sequence[str],
        choice: Selection,
        management_url: str | None = None,
        snapshot: Snapshot | None = None,
    ) -> RunPlan:
        """What is in the failed queues, or in the snapshot, and what would be sent, without taking
        anything.

        Raises:
            ConfigurationError: looking would make the broker delete messages.
        """
        folder = f"_look-{uuid.uuid4().hex[:8]}"
        try:
            archive = Archive(f"{self.archive.storage.uri}/{folder}")
            looked = Reprocess(
                self._spark, archive, self._url, self._options, on_note=self._on_note
            )
            run = (
                looked._looked(queues, management_url)
                if snapshot is None
                else looked.copy(snapshot)
            )
            return looked.plan(run, choice)
        finally:
            self.archive.storage.delete_folder(folder)

    def _looked(self, queues: Sequence[str], management_url: str | None) -> Run:
        """What is in queues of failed messages, as a run that has taken nothing."""
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
            # One consumer: the order of what several of them return is not theirs.
            depth = run.depths[source.name]
            task.take(TaskShare(source, depth, "look", limits[source.name]), 0)
        return run

    def whereabouts(self, queues: Sequence[str]) -> list[MessageCounts]:
        """How much is in these queues, which messages are sent to, and who consumes them.

        Raises:
            BrokerUnavailable: no broker answered.
        """
        places = (whereabouts(self._connector, queue) for queue in queues)
        return [going_on(place, lambda: self._judge) for place in places]

    def send(self, run: Run, choice: Selection, *, chosen: int | None = None) -> None:
        """Send what is chosen, the canary first.

        Args:
            run: the run.
            choice: what is sent.
            chosen: how many messages that is, as the plan has counted; None to count them first,
                which reads and filters all of the run once more.

        Raises:
            Stopped: too few were confirmed, some of the canary did not succeed, or too large a
                share is failing.
            ConfigurationError: they were drained from another broker.
            RedriveError: the broker was away for too long, or refused.
        """
        self.check_broker(run)
        guards = self._options.guards
        with explained():
            messages = self._chosen(run, choice)
            total = messages.count() if chosen is None else chosen
        if total and guards.canary:
            total -= self._send_canary(run, choice, messages, total, guards)
            with explained():
                messages = self._chosen(run, choice)
        if total:
            self._send_under(run, choice, messages, total, guards.stop_at)

    def _send_canary(
        self, run: Run, choice: Selection, messages: "DataFrame", total: int, guards: Guards
    ) -> int:
        """Send a few, and wait until each has succeeded; return how many were sent."""
        longest = (
            self._longest_watch(run, choice, messages) if guards.watch is None else guards.watch
        )
        job = str(uuid.uuid4())
        # In the order of their ids: a task that is tried again has the same ones.
        some = messages.orderBy(ID).limit(min(guards.canary, total))
        with self._watch(run, choice, some, job) as watch:
            canary = Canary(
                min(guards.canary, total), 0, longest, guards.unknown, watch.comes_back_to
            )
            ledger = self._send(
                run,
                choice,
                some,
                canary.sent,
                job=job,
                judge=lambda _: canary.verdict(watch.look(), time_is_up=False),
            )
            # A possible duplicate may succeed twice, and is not to be counted as two of them.
            canary = canary._replace(
                sent=canary.sent - self._check_canary(canary, ledger),
                doubtful=ledger.possible_duplicates(),
            )
            self._on_note(canary.in_words)
            verdict = watched(
                canary,
                watch.look,
                lambda: False,
                lambda standing: self._on_progress(
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
                        lambda: self.whereabouts([choice.to] if choice.to else run.queues),
                    )
                )
        self._on_note(f"{verdict.reason}.")
        return canary.sent

    def _send_under(
        self, run: Run, choice: Selection, messages: "DataFrame", total: int, share: float | None
    ) -> None:
        """Sends messages until too large a share of them is failing."""
        if share is None:
            self._send(run, choice, messages, total)
            return
        job = str(uuid.uuid4())
        with self._watch(run, choice, messages, job) as watch:
            self._send(
                run,
                choice,
                messages,
                total,
                job=job,
                judge=lambda sent: verdict_on_share(sent, watch.look(), share),
            )

    def _watch(self, run: Run, choice: Selection, messages: "DataFrame", job: str) -> RunWatch:
        """What watches messages that are sent as a job of this id."""
        return watch_of(
            self._url,
            run,
            self._family_of(run),
            choice,
            job,
            arrivals=lambda: _arrivals_of(messages),
            management_url=self._options.management_url,
        )

    def _longest_watch(self, run: Run, choice: Selection, messages: "DataFrame") -> timedelta:
        """How long a canary is watched at most, where nobody said."""
        from pyspark.sql import functions as F

        took = F.unix_seconds("failed_at") - F.unix_seconds("first_failed_at")
        with explained():
            (found,) = messages.agg(
                F.max("retries").alias("retries"),
                F.max(F.when(F.col("redrive_count") == 0, took)).alias("took"),
            ).collect()
        delays = [
            delay
            for queue in ([choice.to] if choice.to else run.main_queues)
            if (delay := retry_delay(self._connector, queue)) is not None
        ]
        return longest_watch(
            max(delays, default=None),
            found["retries"] or 0,
            timedelta(seconds=max(0, found["took"] or 0)),
        )

    def restore(self, run: Run, *, refused: bool = True) -> None:
        """Puts what is left back into the queues that it came from.

        Raises:
            ConfigurationError: they were drained from another broker.
            RedriveError: the broker was away for too long, or refused.
        """
        self.check_broker(run)
        with self._recording(Kind.RESTORE, run, {}, counted=Event.RESTORED) as job:
            self._restore(run, refused=refused)
            if self._recorder.is_on:
                job.counted(self._count_in(run, Event.RESTORED) - job.counted_before)

    def _restore(self, run: Run, *, refused: bool, choice: Selection | None = None) -> None:
        """Restores what is left, but what a choice means and has no way of."""
        kept = self._messages_of(run)
        choice = None if choice is None else self._judging(run, choice)
        # Of a subscription's messages the way is known, unless they go by the first exchange.
        has_some = choice is not None and (run.dead_letter_queues or choice.via)
        send.restore(
            self._spark,
            self.archive,
            run,
            self._url,
            kept,
            refused=refused,
            without=choice.without_way_of(kept.open()) if choice and has_some else None,
            sending=self._options.sending,
            exchanges=self._options.exchanges,
            on_progress=self._tell,
        )

    def discard(self, run: Run, choice: Selection) -> int:
        """Notes that what is chosen is not wanted any more; it stays in the archive. Returns how
        many."""
        ledger = ArchiveLedger(self.archive.storage, run.id, str(uuid.uuid4()))
        count = 0
        choice = replace(choice, discards=True)
        with explained():
            ids = [row[ID] for row in choice.of(self._messages_of(run).open()).select(ID).collect()]
        order: dict[str, object] = {"selection": {"where": choice.where, "groups": []}}
        with self._recording(Kind.DISCARD, run, order, planned=len(ids)) as job:
            for start in range(0, len(ids), _DISCARDED_AT_A_TIME):
                some = ids[start : start + _DISCARDED_AT_A_TIME]
                ledger.write("discard", 0, count, [Entry(id_, Event.DISCARDED) for id_ in some])
                count += len(some)
            job.counted(count)
        return count

    def verify(self, run: Run, choice: Selection | None = None) -> Reconciliation:
        """Counts what became of each message; keeps that, and the page for people, which shows all
        of the run.

        Args:
            run: the run.
            choice: what was sent of it; None for what was noted when its sending began.
        """
        kept = self._messages_of(run)
        asked = self._judging(run, choice or self._noted(run))
        whole = plan(run, kept.with_states(), asked, whole=True)
        is_chosen = choice is not None or self.archive.choice(run) is not None
        identity = verify(kept, self.archive, run, whole, is_chosen=is_chosen)
        self.archive.write_page(run, page_of(whole, identity))
        return identity

    def _messages_of(self, run: Run) -> ArchivedMessages:
        """What a run that is drained has; what is in it more than once is looked for once."""
        if not self.archive.is_drained(run):
            return ArchivedMessages(self._spark, self.archive, run)
        return self._known.setdefault(run.id, ArchivedMessages(self._spark, self.archive, run))

    def _judging(self, run: Run, choice: Selection) -> Selection:
        """A choice that knows what the broker says of the ways back, if these count."""
        if not choice.direction.asks_the_broker or not run.dead_letter_queues or choice.judge:
            return choice
        return replace(choice, judge=self._judge)

    @cached_property
    def _judge(self) -> Judge:
        return judge_at(self._connector, self._options.management_url)

    def _noted(self, run: Run) -> Selection:
        """What was chosen when the sending of a run began; all where it has not."""
        noted = self.archive.choice(run)
        return Selection() if noted is None else Selection.from_dict(noted)

    def check_broker(self, run: Run) -> None:
        """Looks whether this is the broker that a run's messages came from.

        Raises:
            ConfigurationError: it is not, and no other was asked for.
        """
        here = BrokerURL.parse(self._url).address
        if here != run.address and not self._options.another_broker:
            raise ConfigurationError(
                f"run {run.id} was drained from {run.address}, and this is {here}",
                "Give the address it came from by --url, or --another-broker where it is to go to "
                "this one.",
            )

    def _chosen(self, run: Run, choice: Selection) -> "DataFrame":
        """What is chosen and can still be sent, as it would be sent."""
        kept, choice = self._messages_of(run), self._judging(run, choice)
        messages = choice.of(kept.open())
        if choice.judge is not None or choice.via:
            # By what a message was, and not by what somebody has made of its body.
            messages = choice.with_ways(messages)
        change = choice.change()
        if change is None:
            return messages
        # Applied once, to all that was ever chosen: a choice that is taken up again sends the same
        # bodies.
        everything = choice.of(kept.messages())
        changed = transformed(self._spark, self.archive, run, choice.key, everything, change)
        return messages.drop(BODY).join(changed.select(ID, BODY), ID)

    def _send(
        self,
        run: Run,
        choice: Selection,
        messages: "DataFrame",
        total: int,
        *,
        job: str | None = None,
        judge: Callable[[int], CanaryDecision] | None = None,
    ) -> ArchiveLedger:
        job = send.send(
            self._spark,
            self.archive,
            run,
            self._url,
            messages,
            Mode.REQUEUE,
            total=total,
            sending=self._options.sending,
            exchanges=self._options.exchanges,
            direction=choice.direction,
            on_progress=self._tell,
            job=job,
            judge=judge,
        )
        if self._job is not None:
            self._job.stage_ended()
        ledger = ArchiveLedger(self.archive.storage, run.id, job)
        stopped = ledger.stopped()
        if stopped is not None:
            raise StoppedEarly(stopped)
        return ledger

    def _check_canary(self, canary: Canary, ledger: ArchiveLedger) -> int:
        """A canary is too few for its tasks to judge by. Returns how many of it could not be
        sent."""
        refused = [entry for entry in ledger.entries() if entry.event is Event.REFUSED]
        if (
            len(refused) == canary.sent
            or len(refused) > (1 - self._options.sending.least_share) * canary.sent
        ):
            raise StoppedEarly(
                f"of the canary's {canary.sent} messages {len(refused)} could not be sent; the "
                f"first: {refused[0].detail}"
            )
        return len(refused)


_PHASES = {
    str(Kind.DRAIN): "draining",
    str(Kind.REQUEUE): "requeueing",
    str(Kind.RESTORE): "restoring",
}
"""The phase by whose progress a job is measured."""


def _count(job: RecordedJob, identity: Reconciliation) -> None:
    """Has the journal say what a requeue came to."""
    job.counted(
        identity.requeued - job.counted_before, identity.possible_duplicates, identity.refused
    )


def _arrivals_of(messages: "DataFrame") -> dict[str, set[WayBack]]:
    """By which exchanges and keys messages came to which dead-letter queue; nothing where these are
    too many to be watched."""
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


def requeue(
    spark: "SparkSession",
    archive: Archive,
    url: str,
    queues: Sequence[str],
    *,
    where: str | None = None,
    transform: str | None = None,
    force: bool = False,
    to: str | None = None,
    via: bool = False,
    unchecked: bool = False,
    options: JobOptions | None = None,
    journal: LocalJournal | None = None,
    reason: str = "",
) -> Reconciliation:
    """Requeues failed messages to where they failed: `Reprocess.requeue` without being asked.

    Args:
        spark: the session.
        archive: where messages are kept in between.
        url: the broker's address.
        queues: the main queues, or any dead-letter queues.
        where: which; None for all.
        transform: `module:function`, which changes bodies.
        force: whether messages go that were requeued too often already.
        to: a queue for all of them; None for where each failed.
        via: whether each is published as it was first, by its exchange and key: everything that is
            bound there gets a copy.
        unchecked: whether messages of dead-letter queues go whose way back the broker's topology
            neither confirms nor contradicts.
        options: how it sends, and what it does besides.
        journal: where it is written down what is done; None for nowhere.
        reason: why it is done, for the journal.

    Returns:
        What became of each message, counted.
    """
    identity = Reprocess(spark, archive, url, options, journal=journal, reason=reason).requeue(
        queues, Selection(where, transform, force=force, to=to, via=via, unchecked=unchecked)
    )
    assert identity is not None, "nobody was asked"
    return identity
