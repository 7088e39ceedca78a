"""Record Spark jobs in the journal. Only the driver writes to it, never a task."""

import contextlib
import uuid
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from enum import StrEnum

from redrive.errors import RedriveError
from redrive.failures.jobs.job_record import JobRecord, State
from redrive.failures.jobs.local_journal import LocalJournal, is_running
from redrive.spark_reprocess.archive import Run

_RUN = "run"
_CHOICE = ("selection", "transform", "patch", "to", "via", "force", "order_by")
"""The parts of an order that select the messages and say what is done with them. They tell jobs
apart: several may work on a run, one after the other."""
_COUNTED_BEFORE = "counted_before"
"""Key of an order: the number of messages that earlier jobs had delivered, by the ledger."""


class Kind(StrEnum):
    """The kinds of Spark jobs, as named in the journal."""

    DRAIN = "spark drain"
    REQUEUE = "spark requeue"
    RESTORE = "spark restore"
    DISCARD = "spark discard"


class RecordedJob:
    """A running job and its record in the journal. If the journal fails, the job continues without
    it."""

    def __init__(
        self, journal: LocalJournal | None, record: JobRecord, on_note: Callable[[str], None]
    ) -> None:
        self._journal = journal
        self._on_note = on_note
        self.record = record
        self._sent_in_stages = record.sent
        self.stopped = ""
        """Why the job stopped itself; empty if it did not."""

    @property
    def counted_before(self) -> int:
        """Number of messages of the run that earlier jobs had delivered."""
        # The journal may have been written by someone else.
        counted = self.record.order.get(_COUNTED_BEFORE)
        return counted if isinstance(counted, int) else 0

    def progress(self, done: int, total: int) -> None:
        """Record how many messages of the current stage are done; may be called from any thread."""
        sent = self._sent_in_stages + done
        if sent > self.record.sent:
            planned = self.record.planned or total
            self._write(replace(self.record, sent=sent, planned=planned))

    def stage_ended(self) -> None:
        """End the current stage: the next one counts from zero."""
        self._sent_in_stages = self.record.sent

    def counted(self, sent: int, possible_duplicates: int = 0, not_sent: int = 0) -> None:
        """Set the final counts of the job; `end` writes them."""
        self.record = replace(
            self.record,
            sent=max(0, sent),
            possible_duplicates=possible_duplicates,
            not_sent=not_sent,
        )

    def end(self, state: State, problem: str = "") -> None:
        """Record that the job has ended."""
        self._write(replace(self.record, state=state, problem=problem))

    def _write(self, record: JobRecord) -> None:
        self.record = record
        if self._journal is None:
            return
        try:
            self.record = self._journal.update(record)
        except RedriveError as error:
            self._journal = None
            self._on_note(_goes_on_without(error))


class JobRecorder:
    """A writer of Spark jobs into the journal."""

    def __init__(
        self,
        journal: LocalJournal | None,
        broker: str,
        archive: str,
        reason: str,
        on_note: Callable[[str], None],
    ) -> None:
        self._journal = journal
        self._broker = broker
        self._archive = archive
        self._reason = reason
        self._on_note = on_note

    @property
    def is_on(self) -> bool:
        """Whether there is a journal to write to."""
        return self._journal is not None

    @contextlib.contextmanager
    def recording(
        self,
        kind: Kind,
        run: Run,
        order: Mapping[str, object],
        *,
        planned: int = 0,
        counted_before: Callable[[], int] = lambda: 0,
    ) -> Iterator[RecordedJob]:
        """Record that a new job begins, or that one of this run continues, and how it ends."""
        job = self._begun(kind, run, order, planned, counted_before)
        try:
            yield job
        except RedriveError as error:
            problem = job.stopped or str(error).partition("\n")[0]
            job.end(State.STOPPED if job.stopped else State.FAILED, problem)
            raise
        except BaseException:
            job.end(State.INTERRUPTED)
            raise
        job.end(State.DONE)

    def _begun(
        self,
        kind: Kind,
        run: Run,
        order: Mapping[str, object],
        planned: int,
        counted_before: Callable[[], int],
    ) -> RecordedJob:
        journal = self._journal
        new = JobRecord(
            str(uuid.uuid4()),
            kind.value,
            ", ".join(run.queues),
            self._broker,
            {**order, _RUN: run.id},
            reason=self._reason,
            planned=planned,
            exchanges=run.family.as_json(),
            file=self._archive,
            literal=bool(run.dead_letter_queues) and not run.main_queues,
        )
        if journal is None:
            return RecordedJob(None, new, self._on_note)
        known = self._unfinished(journal, kind, run, order)
        if self._journal is None:
            return RecordedJob(None, new, self._on_note)
        if known is not None:
            if known.state is State.RUNNING:
                raise is_running(known)
            # Raises if another process has taken it up in the meantime.
            return RecordedJob(journal, journal.begin(self._again(known, planned)), self._on_note)
        new = replace(new, order={**new.order, _COUNTED_BEFORE: counted_before()})
        try:
            return RecordedJob(journal, journal.begin(new), self._on_note)
        except RedriveError as error:
            self._journal = None
            self._on_note(_goes_on_without(error))
            return RecordedJob(None, new, self._on_note)

    def _unfinished(
        self, journal: LocalJournal, kind: Kind, run: Run, order: Mapping[str, object]
    ) -> JobRecord | None:
        """Return the unfinished job of this kind and order on a run; None if there is none."""
        try:
            return next(
                (
                    job
                    for job in journal.jobs(kind=kind.value)
                    if job.state is not State.DONE
                    and job.order.get(_RUN) == run.id
                    and all(job.order.get(name) == order.get(name) for name in _CHOICE)
                    and journal.belongs_to(job, self._broker)
                ),
                None,
            )
        except RedriveError as error:
            self._on_note(_goes_on_without(error))
            self._journal = None
            return None

    def _again(self, known: JobRecord, planned: int) -> JobRecord:
        """Return the record of a resumed job; `planned` adds to what it had sent before."""
        return replace(known, planned=max(known.planned, known.sent + planned))


def _goes_on_without(error: RedriveError) -> str:
    reason = str(error).partition("\n")[0]
    return f"The journal can't be used ({reason}): the job continues, but is no longer recorded."
