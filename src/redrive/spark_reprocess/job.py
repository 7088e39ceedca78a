"""The whole job, phase by phase: drain, plan, send, restore, verify. Each can be done by itself, and taken up again."""

import uuid
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from redrive.errors import ConfigurationError, RedriveError
from redrive.failures.canary import Act, Canary, Verdict, longest_watch, verdict_on_share, watched
from redrive.pubsub.blocking.connection import Connector
from redrive.pubsub.blocking.declare import declaring
from redrive.pubsub.blocking.holding import check_safe_to_return
from redrive.pubsub.blocking.watching import Watch, Whereabouts, retry_delay, whereabouts
from redrive.pubsub.config import BrokerURL
from redrive.pubsub.connecting import default_name
from redrive.spark_reprocess import draining, matching, sending
from redrive.spark_reprocess.archive import Archive, Run
from redrive.spark_reprocess.choice import NONE, Choice, Guards
from redrive.spark_reprocess.drain_task import DrainTask, Share
from redrive.spark_reprocess.draining import FILE_ROWS, depths_of
from redrive.spark_reprocess.failing import explained
from redrive.spark_reprocess.identity import Identity, verify
from redrive.spark_reprocess.keeping import Kept
from redrive.spark_reprocess.ledger import Entry, Event, Ledger
from redrive.spark_reprocess.pace import Pace
from redrive.spark_reprocess.page import page_of
from redrive.spark_reprocess.planning import Plan, plan
from redrive.spark_reprocess.progress import Told, no_one
from redrive.spark_reprocess.publishing import ID, Mode
from redrive.spark_reprocess.transforming import check, transform_named, transformed
from redrive.topology.names import ExchangeFamily

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_DISCARDED_AT_A_TIME = 100_000


class Stopped(RedriveError):
    """A job sent no more: too few messages were confirmed, some of the canary did not succeed, or too large a share is failing.

    Args:
        reason: what was seen.
    """

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason

    def __str__(self) -> str:
        return (
            f"the job stopped: {self.reason}.\n"
            "What was not sent is in the archive: the same command goes on when that is solved, with a new canary; or restore it."
        )


class Reprocess:
    """One job on an archive.

    Args:
        spark: the session; its time zone must be UTC where an expression is used.
        archive: where messages are kept in between.
        url: the broker's address.
        exchange: the main exchange of the family.
        pace: how fast, and how careful.
        another_broker: whether messages may go to another broker than the one that they were drained from.
        told: told of progress.
        note: told, in a sentence, what people may want to know meanwhile.
    """

    def __init__(
        self,
        spark: "SparkSession",
        archive: Archive,
        url: str,
        *,
        exchange: str = "master",
        pace: Pace | None = None,
        another_broker: bool = False,
        told: Told = no_one,
        note: Callable[[str], None] = lambda _: None,
    ) -> None:
        self._note = note
        self._family = ExchangeFamily(exchange)
        self._connector = Connector(url, default_name("spark"))
        self.archive = archive
        self._another_broker = another_broker
        self._spark = spark
        self._url = url
        self._exchange = exchange
        self._pace = pace or Pace()
        self._told = told

    def drain(self, queues: Sequence[str], *, tasks: int | None = None, file_rows: int = FILE_ROWS) -> Run:
        """Takes the failed queues into the archive, as a new run or an unfinished one."""
        return draining.drain(
            self._spark, self.archive, self._url, queues, tasks=tasks, file_rows=file_rows, timeout=self._pace.timeout, told=self._told
        )

    def unfinished(self, queues: Sequence[str]) -> Run | None:
        """The latest run of these queues of which messages are still to be decided on; None where there is none."""
        address = BrokerURL.parse(self._url).address
        for run in reversed(self.archive.runs()):
            if run.address == address and sorted(run.queues) == sorted(queues) and not self.archive.is_ended(run):
                return run
        return None

    def chosen(self, run: Run, choice: Choice) -> Choice:
        """What is sent of a run: what was chosen when its sending began, or else this.

        Raises:
            ConfigurationError: something else was chosen before.
        """
        before = self.archive.choice(run)
        if before is None:
            return choice
        forced = before.get("force") is not None
        if (before["where"], before["transform"], forced) != (choice.where, choice.transform, choice.force):
            raise ConfigurationError(
                f"run {run.id} was begun with where={before['where']!r} and transform={before['transform']!r}{' and force' * forced}",
                "Take it up with the same, or restore what is left of it first: redrive spark restore.",
            )
        return Choice(before["where"], before["transform"], datetime.fromisoformat(before["now"] or ""), forced)

    def choose(self, run: Run, choice: Choice) -> None:
        """Fixes what is sent of a run, for whoever takes it up again."""
        self.archive.choose(run, choice.to_dict())

    def plan(self, run: Run, choice: Choice) -> Plan:
        """What is there of a run, and what would be sent."""
        self._prepare_session(choice)
        kept = Kept(self._spark, self.archive, run)
        found = plan(
            run,
            kept.with_states(),
            kept.open(),
            choice.condition,
            where=choice.where,
            transform=choice.transform,
            too_often=choice.too_often,
        )
        if choice.transform is not None:
            check(kept.open().where(choice.condition), transform_named(choice.transform))
        return found

    def plan_by_looking(self, queues: Sequence[str], choice: Choice, management_url: str | None = None) -> Plan:
        """What is in the failed queues, and what would be sent, without taking anything.

        Raises:
            ConfigurationError: looking would make the broker delete messages.
        """
        depths = depths_of(self._url, queues)
        folder = f"_look-{uuid.uuid4().hex[:8]}"
        connector = Connector(self._url, default_name("spark look"))
        try:
            archive = Archive(f"{self.archive.storage.uri}/{folder}")
            run = archive.begin(connector.url.address, depths)
            task = DrainTask(self._url, archive.storage, run.id, FILE_ROWS, self._pace.timeout, takes=False)
            for queue, depth in depths.items():
                with declaring(connector) as declarer:
                    check_safe_to_return(declarer, queue, connector, management_url)
                # One consumer: the order of what several of them return is not theirs.
                task.take(Share(queue, depth, "look"), 0)
            looked = Reprocess(self._spark, archive, self._url, exchange=self._exchange, pace=self._pace)
            return looked.plan(run, choice)
        finally:
            self.archive.storage.delete_folder(folder)

    def whereabouts(self, queues: Sequence[str]) -> list[Whereabouts]:
        """How much is in the queues of these subscriptions, and who consumes their main queues.

        Raises:
            BrokerUnavailable: no broker answered.
        """
        return [whereabouts(self._connector, queue) for queue in queues]

    def send(self, run: Run, choice: Choice, guards: Guards = NONE) -> None:
        """Sends what is chosen, the canary first.

        Raises:
            Stopped: too few were confirmed, some of the canary did not succeed, or too large a share is failing.
            ConfigurationError: they were drained from another broker.
            RedriveError: the broker was away for too long, or refused.
        """
        self.check_broker(run)
        self._prepare_session(choice)
        with explained():
            messages = self._picked(run, choice)
            total = messages.count()
        if total and guards.canary:
            self._send_canary(run, messages, total, guards)
            with explained():
                messages = self._picked(run, choice)
                total = messages.count()
        if total:
            self._send_under(run, messages, total, guards.stop_at)

    def _send_canary(self, run: Run, messages: "DataFrame", total: int, guards: Guards) -> None:
        """Sends a few, and returns once each has succeeded."""
        longest = self._longest_watch(run, messages) if guards.watch is None else guards.watch
        canary = Canary(min(guards.canary, total), 0, longest, guards.unknown)
        job = str(uuid.uuid4())
        with Watch(self._connector, self._family, run.queues, job) as watch:
            # In the order of their ids: a task that is tried again has the same ones.
            ledger = self._send(
                run,
                messages.orderBy(ID).limit(canary.sent),
                canary.sent,
                job=job,
                judge=lambda _: canary.verdict(watch.standing, time_is_up=False),
            )
            canary = canary._replace(sent=canary.sent - self._check_canary(canary, ledger))
            self._note(canary.in_words)
            verdict = watched(
                canary,
                lambda: watch.standing,
                lambda: False,
                lambda standing: self._told("watching the canary", min(standing.heard_of, canary.sent), canary.sent),
            )
            if verdict.act is Act.STOP:
                raise Stopped(verdict.reason if watch.standing.failing else f"{verdict.reason}{self._where_they_are(run)}")
        self._note(f"{verdict.reason}.")

    def _send_under(self, run: Run, messages: "DataFrame", total: int, share: float | None) -> None:
        """Sends messages until too large a share of them is failing."""
        if share is None:
            self._send(run, messages, total)
            return
        job = str(uuid.uuid4())
        with Watch(self._connector, self._family, run.queues, job) as watch:
            self._send(run, messages, total, job=job, judge=lambda sent: verdict_on_share(sent, watch.standing, share))

    def _longest_watch(self, run: Run, messages: "DataFrame") -> timedelta:
        """How long a canary is watched at most, where nobody said."""
        from pyspark.sql import functions as F

        took = F.unix_seconds("failed_at") - F.unix_seconds("first_failed_at")
        with explained():
            (found,) = messages.agg(
                F.max("retries").alias("retries"), F.max(F.when(F.col("redrive_count") == 0, took)).alias("took")
            ).collect()
        delays = [delay for queue in run.queues if (delay := retry_delay(self._connector, queue)) is not None]
        return longest_watch(max(delays, default=None), found["retries"] or 0, timedelta(seconds=max(0, found["took"] or 0)))

    def _where_they_are(self, run: Run) -> str:
        """Where messages may be of which nothing is known."""
        try:
            places = self.whereabouts(run.queues)
        except RedriveError:
            return ""
        return f": {'; '.join(map(str, places))}; what is in none of them is held by consumers"

    def restore(self, run: Run, *, refused: bool = True) -> None:
        """Puts what is left back into the failed queues.

        Raises:
            ConfigurationError: they were drained from another broker.
            RedriveError: the broker was away for too long, or refused.
        """
        self.check_broker(run)
        sending.restore(
            self._spark, self.archive, run, self._url, refused=refused, pace=self._pace, exchange=self._exchange, told=self._told
        )

    def discard(self, run: Run, choice: Choice) -> int:
        """Notes that what is chosen is not wanted any more; it stays in the archive. Returns how many."""
        self._prepare_session(choice)
        ledger = Ledger(self.archive.storage, run.id, str(uuid.uuid4()))
        count = 0
        with explained():
            ids = [row[ID] for row in Kept(self._spark, self.archive, run).open().where(choice.condition).select(ID).collect()]
        for start in range(0, len(ids), _DISCARDED_AT_A_TIME):
            some = ids[start : start + _DISCARDED_AT_A_TIME]
            ledger.write("discard", 0, count, [Entry(id_, Event.DISCARDED) for id_ in some])
            count += len(some)
        return count

    def verify(self, run: Run, choice: Choice | None = None) -> Identity:
        """Counts what became of each message; keeps it, and with a choice the page for people, which shows all of the run."""
        if choice is None:
            return verify(self._spark, self.archive, run)
        self._prepare_session(choice)
        everything = Kept(self._spark, self.archive, run).with_states()
        whole = plan(
            run,
            everything,
            everything,
            choice.condition,
            where=choice.where,
            transform=choice.transform,
            too_often=choice.too_often,
        )
        identity = verify(self._spark, self.archive, run, whole.too_often)
        self.archive.write_page(run, page_of(whole, identity))
        return identity

    def check_broker(self, run: Run) -> None:
        """Looks whether this is the broker that a run's messages came from.

        Raises:
            ConfigurationError: it is not, and no other was asked for.
        """
        here = BrokerURL.parse(self._url).address
        if here != run.address and not self._another_broker:
            raise ConfigurationError(
                f"run {run.id} was drained from {run.address}, and this is {here}",
                "Give the address it came from by --url, or --another-broker where it is to go to this one.",
            )

    def _picked(self, run: Run, choice: Choice) -> "DataFrame":
        """What is chosen and can still be sent, as it would be sent."""
        kept = Kept(self._spark, self.archive, run)
        messages = kept.open().where(choice.condition)
        if choice.transform is None:
            return messages
        # Applied once, to all that was ever chosen: a choice that is taken up again sends the same bodies.
        everything = kept.messages().where(choice.condition)
        changed = transformed(self._spark, self.archive, run, choice.key, everything, transform_named(choice.transform))
        return changed.join(messages.select(ID), ID, "left_semi")

    def _send(
        self,
        run: Run,
        messages: "DataFrame",
        total: int,
        *,
        job: str | None = None,
        judge: Callable[[int], Verdict] | None = None,
    ) -> Ledger:
        job = sending.send(
            self._spark,
            self.archive,
            run,
            self._url,
            messages,
            Mode.REQUEUE,
            total=total,
            pace=self._pace,
            exchange=self._exchange,
            told=self._told,
            job=job,
            judge=judge,
        )
        ledger = Ledger(self.archive.storage, run.id, job)
        stopped = ledger.stopped()
        if stopped is not None:
            raise Stopped(stopped)
        return ledger

    def _check_canary(self, canary: Canary, ledger: Ledger) -> int:
        """A canary is too few for its tasks to judge by. Returns how many of it could not be sent."""
        refused = [entry for entry in ledger.entries() if entry.event is Event.REFUSED]
        if len(refused) == canary.sent or len(refused) > (1 - self._pace.least_share) * canary.sent:
            raise Stopped(f"of the canary's {canary.sent} messages {len(refused)} could not be sent; the first: {refused[0].detail}")
        return len(refused)

    def _prepare_session(self, choice: Choice) -> None:
        if choice.where is None:
            return
        matching.register(self._spark)
        zone = self._spark.conf.get("spark.sql.session.timeZone")
        if zone not in ("UTC", "Etc/UTC", "Z", "+00:00"):
            raise ConfigurationError(
                f"the session's time zone is {zone}, and expressions mean UTC", "Set spark.sql.session.timeZone to UTC."
            )


def requeue(
    spark: "SparkSession",
    archive: Archive,
    url: str,
    queues: Sequence[str],
    *,
    where: str | None = None,
    transform: str | None = None,
    guards: Guards = NONE,
    force: bool = False,
    pace: Pace | None = None,
    exchange: str = "master",
    tasks: int | None = None,
    keep: bool = False,
    told: Told = no_one,
) -> Identity:
    """Sends failed messages back to their main queues: all phases of the job, or those that an earlier run did not come to.

    Args:
        spark: the session.
        archive: where messages are kept in between.
        url: the broker's address.
        queues: the main queues.
        where: which; None for all.
        transform: `module:function`, which changes bodies.
        guards: what stops it: a canary, a share of failures.
        force: whether messages go that were sent back too often already.
        pace: how fast, and how careful.
        exchange: the main exchange of the family.
        tasks: competing consumers for each queue.
        keep: whether what is not chosen stays in the archive; else it is put back.
        told: told of progress.

    Returns:
        What became of each message, counted.
    """
    job = Reprocess(spark, archive, url, exchange=exchange, pace=pace, told=told)
    wanted = Choice(where, transform, force=force)
    wanted.check()
    run = job.unfinished(queues)
    if run is None or not archive.is_drained(run):
        run = job.drain(queues, tasks=tasks)
    choice = job.chosen(run, wanted)
    job.plan(run, choice)  # so that a transform that is wrong is told of before anything is sent
    job.choose(run, choice)
    job.send(run, choice, guards)
    if not keep:
        job.restore(run, refused=False)
    return job.verify(run, choice)
