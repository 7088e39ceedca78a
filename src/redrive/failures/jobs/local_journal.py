"""Who did what with failed messages, when and why: a file in the user's state directory.

The file outlives every process and is complete by itself. If the broker keeps a journal shared by a
team, this file is a copy of it (`failures.journal`), and can be rebuilt from it.
"""

import contextlib
import json
import os
import shutil
import socket
import sqlite3
import stat
import sys
import threading
import uuid
import weakref
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Self

from redrive.amqp.properties import Properties
from redrive.errors import ConfigurationError, RedriveError
from redrive.failures.jobs import journal_tables
from redrive.failures.jobs.approval_rule import resumed, waits_for_none
from redrive.failures.jobs.cause_remark import CauseRemark
from redrive.failures.jobs.cause_remarks import CauseRemarks
from redrive.failures.jobs.job_record import JobRecord, RunProgress, State
from redrive.failures.jobs.journal_entry import JobEvent, JobStep, JournalEntry, Original
from redrive.failures.store.operator_name import whoami
from redrive.failures.store.state_folder import NO_ROOM, check_state_folder, state_folder
from redrive.failures.store.stored_message import bytes_of, text_of
from redrive.pubsub.url import BrokerURL
from redrive.topology.headers import Delivery
from redrive.topology.outcome_events import Outcomes

_LOCK_TIMEOUT = 10.0
"""Seconds to wait while another process has the journal locked."""
_SILENT = timedelta(minutes=5)
"""Silence after which a job on another machine, without a lock at the broker, counts as
interrupted."""
_LEAST_ROOM = 256 * 1024
"""Bytes that SQLite needs beside the file, plus a reserve."""
_NAME = "journal.sqlite3"
_WHOLE_ID = 36
"""Length of a UUID in characters."""
_OURS_ALONE = 0o600
_making = threading.Lock()
"""Held while a file is created: until it is closed again, no thread here connects to it."""
_TOLD = ("handled", "failed_told", "retrying_told", "retried_told")


class JournalUnusable(ConfigurationError):
    """The journal's file can't be opened, read or written."""


def default_path() -> Path:
    """Return the journal's default path, in the user's state directory."""
    return state_folder() / _NAME


def is_running(job: JobRecord) -> ConfigurationError:
    """Return an error that says who already runs a job, and since when."""
    by = f", by {job.who}{f' as {job.user}' if job.user else ''}" if job.who else ""
    since = f", since {job.since}" if job.since else ""
    return ConfigurationError(
        f"job {job.id} is running{by}{since}", "Wait for its end, or stop it there with Ctrl-C."
    )


class LocalJournal:
    """A journal in one file; a context manager. Several processes may use it at a time.

    Args:
        path: the file; None for the one in the user's state directory.

    Raises:
        ConfigurationError: it can't be opened, read or written.
    """

    is_kept = True
    """Whether jobs can be looked up later."""
    place = ""
    """The broker's address and virtual host, if known."""
    program = ""
    """The name that jobs record as the program that began them."""

    def __init__(self, path: Path | None = None) -> None:
        self.path = path or default_path()
        if path is None:
            check_state_folder()
        self._lock = threading.Lock()
        self._runs: dict[str, str] = {}
        self._no_room = ""
        with self._errors("opened"):
            try:
                self._sqlite = self._prepared(self._opened())
            except (OSError, sqlite3.Error) as error:
                if not self._lacks_room(error):
                    raise
                # The journal can still be read, but nothing is recorded.
                self._no_room = str(error)
                self._sqlite = self._prepared(self._copied())
        # Nobody closes the journal of a job that is not to be recorded.
        weakref.finalize(self, self._sqlite.close)

    def _prepared(self, sqlite: sqlite3.Connection) -> sqlite3.Connection:
        try:
            self._check_version(sqlite)
            before = _version_of(sqlite)
            sqlite.executescript(journal_tables.SCHEMA)
            if before != journal_tables.VERSION:
                journal_tables.place_jobs(sqlite, _without_user)
                sqlite.execute(f"PRAGMA user_version = {journal_tables.VERSION}")
        except BaseException:
            sqlite.close()
            raise
        return sqlite

    def _opened(self) -> sqlite3.Connection:
        self.path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        # The file may hold bodies: nobody else may read them, even if the file existed with other
        # permissions.
        _make_private(self.path)
        found = sqlite3.connect(
            self.path, timeout=_LOCK_TIMEOUT, isolation_level=None, check_same_thread=False
        )
        try:
            found.execute("PRAGMA journal_mode = WAL")
            # Commits survive this process, however it ends; waiting for the disk would cost more
            # than the messages.
            found.execute("PRAGMA synchronous = NORMAL")
        except BaseException:
            found.close()
            raise
        return found

    def _copied(self) -> sqlite3.Connection:
        """Return a copy of the file in memory."""
        copy = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
        with (
            contextlib.suppress(sqlite3.Error),
            contextlib.closing(_read_only(self.path)) as file,
        ):
            file.backup(copy)
            return copy
        # The file needs others beside it that are missing, so this process doesn't have it open and
        # may read it directly: see _make_private.
        data = bytearray(self.path.read_bytes() if self.path.exists() else b"")
        if data:
            # Mark it as having no log beside it. Source:
            # https://www.sqlite.org/fileformat2.html#file_format_version_numbers
            data[18:20] = b"\x01\x01"
            copy.deserialize(bytes(data))
        return copy

    def _check_version(self, sqlite: sqlite3.Connection) -> None:
        if _version_of(sqlite) > journal_tables.VERSION:
            raise ConfigurationError(
                f"the journal {str(self.path)!r} was written by a newer version of redrive",
                "Use that version, or name another file with --journal.",
            )

    def begin(self, job: JobRecord) -> JobRecord:
        """Record a job that begins or is resumed; return it with who runs it.

        Raises:
            ConfigurationError: a process still runs it, or it is not approved.
        """
        with self.writing() as sqlite:
            known = journal_tables.found(sqlite, job.id)
            if known is not None and self._is_running(known):
                raise is_running(known)
            if known is not None:
                job = resumed(known, self.signed(job))
            begun = self._signed(
                replace(
                    job,
                    who=whoami(),
                    process=os.getpid(),
                    state=State.RUNNING,
                    changed_at=datetime.now(UTC),
                    problem="",
                    run=str(uuid.uuid4()),
                    program=self.program or job.program,
                    since=f"{datetime.now(UTC):%Y-%m-%d %H:%M:%S} UTC",
                )
            )
            self._runs[begun.id] = begun.run
            is_first = known is None or known.state is State.WAITING
            self._write_whole(sqlite, JobStep.BEGUN if is_first else JobStep.RESUMED, begun)
        return begun

    def _write_down(self, job: JobRecord) -> JobRecord:
        """Record a job that another process on this machine is to run; return it with who wrote it.

        Others learn of it when it begins.
        """
        with self.writing() as sqlite:
            waiting = self._signed(
                replace(job, who=whoami(), state=State.WAITING, program=self.program)
            )
            journal_tables.put(sqlite, waiting)
            self._note_place(sqlite, job.id)
        return waiting

    def _show_progress(self, job_id: str, progress: RunProgress) -> None:
        """Record how far this process has got with a job, for others on this machine."""
        with self._transaction() as sqlite:
            sqlite.execute(
                "INSERT OR REPLACE INTO run_progress VALUES (?, ?, ?)",
                (job_id, os.getpid(), json.dumps(asdict(progress))),
            )

    def _progress(self, job_id: str, process: int) -> RunProgress:
        """Return how far a process on this machine has got with a job."""
        with self._errors("read"):
            row = self._sqlite.execute(
                "SELECT progress FROM run_progress WHERE job = ? AND process = ?", (job_id, process)
            ).fetchone()
        return RunProgress() if row is None else RunProgress(**json.loads(row[0]))

    def signed(self, job: JobRecord) -> JobRecord:
        """Return a job signed by the user of this journal."""
        return self._signed(replace(job, who=whoami()))

    def ask(self, job: JobRecord) -> JobRecord:
        """Record a job that waits for somebody else's approval; return it with who asked.

        Raises:
            ConfigurationError: the broker doesn't validate the user, so the job could not be
                approved.
        """
        with self.writing() as sqlite:
            asked = self._signed(
                replace(
                    job,
                    who=whoami(),
                    state=State.ASKED,
                    changed_at=datetime.now(UTC),
                    program=self.program or job.program,
                )
            )
            if not asked.user:
                raise ConfigurationError(
                    "an approval can't be asked for here: the broker does not vouch for who asks",
                    "Log in with a password or token, not with a certificate.",
                )
            self._write_whole(sqlite, JobStep.ASKED, asked)
        return asked

    def decline(self, job: JobRecord, why: str) -> JobRecord:
        """Record that a job which waits for approval was declined; return it.

        Raises:
            ConfigurationError: it doesn't wait for approval, or a shared journal can't be used.
        """
        self._check_seen_by_all()
        with self.writing() as sqlite:
            known = journal_tables.found(sqlite, job.id)
            if known is None or known.state is not State.ASKED:
                raise waits_for_none(known or job)
            return self._end(sqlite, known, State.DECLINED, JobStep.DECLINED, why)

    def forget(self, job: JobRecord, why: str) -> JobRecord:
        """Record that nobody runs a job and nobody may resume it; return it.

        Raises:
            ConfigurationError: somebody runs it, it is done or was never run, or a shared journal
                can't be used.
        """
        self._check_seen_by_all()
        with self.writing() as sqlite:
            known = journal_tables.found(sqlite, job.id) or job
            if self._is_known_to_run(known):
                raise is_running(known)
            if known.state in journal_tables.NEVER_FORGOTTEN:
                raise ConfigurationError(
                    f"job {job.id} is {known.state.value}, so nothing waits for it",
                    f"Decline it: redrive jobs decline {job.id}."
                    if known.state is State.ASKED
                    else "Leave it as it is.",
                )
            return self._end(sqlite, known, State.FORGOTTEN, JobStep.FORGOTTEN, why)

    def _end(
        self, sqlite: sqlite3.Connection, job: JobRecord, state: State, step: JobStep, why: str
    ) -> JobRecord:
        """Record that somebody has ended a job that doesn't run, and why."""
        ended = replace(
            job,
            state=state,
            changed_at=datetime.now(UTC),
            problem=f"{state.value} by {self.signed(job).by}{f': {why}' if why else ''}",
        )
        self._write_whole(sqlite, step, ended)
        return ended

    def still_runs(self, job_id: str) -> None:
        """Record that a job still runs, if there is nothing else to record."""
        with self.writing() as sqlite:
            job = journal_tables.found(sqlite, job_id)
            if job is not None and job.state is State.RUNNING:
                changed = replace(job, changed_at=datetime.now(UTC))
                self._write(sqlite, JournalEntry(JobStep.PROGRESS, job_id, record=changed))

    def ask_to_stop(self, job: JobRecord) -> None:
        """Ask a job's process to stop it, as Ctrl-C does there; it settles the messages in flight
        first.

        The request is for this run only: the job may be resumed.

        Raises:
            ConfigurationError: nobody runs it.
        """
        with self.writing() as sqlite:
            known = journal_tables.found(sqlite, job.id)
            if known is None or not self._is_running(known):
                raise ConfigurationError(
                    f"job {job.id} is {self._as_it_is(known or job).state.value}: nobody runs it",
                    f"See: redrive jobs show {job.id}.",
                )
            self._note_stop(sqlite, known)

    def ask_to_stop_again(self, job: JobRecord) -> None:
        """Repeat the request to stop, even if nobody runs the job any more."""
        with self.writing() as sqlite:
            known = journal_tables.found(sqlite, job.id)
            assert known is not None, "the job that was asked to stop is in the journal"
            self._note_stop(sqlite, known)

    def _note_stop(self, sqlite: sqlite3.Connection, job: JobRecord) -> None:
        before = journal_tables.run_before(sqlite, job.id)
        # The process that claims to have resumed it may be lying: ask both runs.
        for run in [job.run] if before is None else [job.run, before.run]:
            self._write(sqlite, JournalEntry(JobStep.STOP, job.id, run=run))

    def stop_asked_by(self, job: JobRecord) -> str:
        """Return who has asked to stop this run of a job; empty if nobody has."""
        with self._lock, self._errors("read"):
            return journal_tables.stop_asked_by(self._sqlite, job.run)

    def update(self, job: JobRecord) -> JobRecord:
        """Record a job's progress; return it with the time."""
        with self.writing() as sqlite:
            changed = _changed(sqlite, job)
            match changed.state:
                case State.RUNNING:
                    entry = JournalEntry(JobStep.PROGRESS, job.id, record=changed)
                    self._write(sqlite, entry, firm=False)
                case State.STOPPED:
                    self._write_whole(sqlite, JobStep.STOPPED, changed)
                case _:
                    self._write_whole(sqlite, JobStep.ENDED, changed)
        return changed

    def judge(self, job: JobRecord) -> None:
        """Record that a job's canary was sent, and is being watched."""
        with self.writing() as sqlite:
            self._write(sqlite, JournalEntry(JobStep.CANARY, job.id, record=job))

    def heard(self, job_id: str, told: Iterable[Outcomes], failed_here: int) -> JobRecord:
        """Record reports of subscribers, and how many of the job's messages are in the failed
        queue.

        Returns the updated job.
        """
        with self.writing() as sqlite:
            before = journal_tables.found(sqlite, job_id)
            assert before is not None, "a job with reports is in the journal"
            job = before.with_reported(
                told, failed_here, journal_tables.handed_over(sqlite, job_id)
            )
            if job != before:
                more = {name: getattr(job, name) - getattr(before, name) for name in _TOLD}
                self._write(sqlite, JournalEntry(JobStep.HEARD, job_id, record=job, told=more))
        return self._as_it_is(job)

    def jobs(
        self,
        limit: int | None = None,
        *,
        queue: str | None = None,
        kind: str | None = None,
        state: State | None = None,
    ) -> list[JobRecord]:
        """Return the jobs, the latest first, without those that were forgotten.

        Args:
            limit: how many at most; None for all.
            queue: only jobs of this queue.
            kind: only jobs of this kind.
            state: only jobs recorded with this state; their process may have died since.
        """
        self._refresh()
        with self._errors("read"):
            found = journal_tables.jobs(
                self._sqlite, self._place_of_jobs, limit, queue=queue, kind=kind, state=state
            )
        return [self._as_it_is(job) for job in found]

    def count(self) -> int:
        """Count the jobs that `jobs` returns."""
        self._refresh()
        with self._errors("read"):
            return journal_tables.count(self._sqlite, self._place_of_jobs)

    @property
    def _place_of_jobs(self) -> str | None:
        """The broker and virtual host whose jobs are listed; None for all."""
        return None

    def job(self, id_: str) -> JobRecord:
        """Return the job with this id, or whose id begins with it.

        Raises:
            ConfigurationError: there is no such job, or several.
        """
        self._refresh()
        with self._errors("read"):
            rows = self._sqlite.execute(
                "SELECT record FROM job WHERE id = ?1 OR substr(id, 1, length(?1)) = ?1 ORDER BY "
                "id <> ?1",
                (id_,),
            ).fetchall()
        found = [JobRecord.from_json(json.loads(record)) for (record,) in rows]
        if not found or not id_:
            raise ConfigurationError(
                f"there is no job {id_!r} in {self.path}", "See: redrive jobs list."
            )
        # An id that is a prefix of another may have been made up to be mistaken for it.
        if len(found) > 1 and (found[0].id != id_ or len(id_) < _WHOLE_ID):
            raise ConfigurationError(
                f"{id_!r} matches {len(found)} jobs",
                f"Give one of {', '.join(job.id for job in found[:5])}.",
            )
        return self._as_it_is(found[0])

    def events(self, job_id: str) -> list[JobEvent]:
        """Return what has happened to a job, in order; nothing if an older version ran it."""
        with self._errors("read"):
            return journal_tables.events(self._sqlite, job_id)

    def under_way(self, job_id: str) -> set[str]:
        """Return the digests of a job's messages that are not recorded as settled.

        Jobs of redrive 0.1 recorded failure ids instead.
        """
        with self._errors("read"):
            return set(journal_tables.under_way(self._sqlite, job_id))

    def handed_over(self, job_id: str) -> int:
        """Return how many messages a job has handed to the broker in all."""
        with self._errors("read"):
            return journal_tables.handed_over(self._sqlite, job_id)

    def take_up(self, job: JobRecord) -> JobRecord:
        """Reset the messages in flight of a resumed job, keeping its counts.

        Whatever else was in flight is in the failed queue, and is sent again. This is recorded at
        once, so that a job which is killed before it sends anything loses nothing.
        """
        with self.writing() as sqlite:
            taken_up = _changed(sqlite, job)
            entry = JournalEntry(JobStep.TAKEN_UP, job.id, record=taken_up, handed_over=job.sent)
            self._write(sqlite, entry)
        return taken_up

    def sending(self, job_id: str, digests: Sequence[str]) -> None:
        """Record messages about to be handed to the broker. The record is safe on return."""
        with self.writing() as sqlite:
            self._write(sqlite, JournalEntry(JobStep.SENDING, job_id, digests=tuple(digests)))

    def settled(self, job_id: str, digests: Sequence[str]) -> None:
        """Record that messages of a job are no longer in flight."""
        with self.writing() as sqlite:
            standing = self._standing(sqlite, JournalEntry(JobStep.SETTLED, job_id))
            gone = set(digests)
            left = tuple(one for one in standing.digests if one not in gone)
            self._write(sqlite, replace(standing, digests=left))

    def keep(self, job_id: str, failure_id: str, delivery: Delivery) -> None:
        """Keep a message as it was before a job changed it."""
        parts = (
            bytes_of(delivery.exchange),
            bytes_of(delivery.routing_key),
            delivery.properties.encode(),
            delivery.body,
        )
        original = Original(failure_id, delivery.queue, parts)
        with self.writing() as sqlite:
            # Entries are in order, so this one is appended before the message is recorded as sent.
            self._write(
                sqlite, JournalEntry(JobStep.ORIGINAL, job_id, original=original), firm=False
            )

    def remark(self, remark: CauseRemark) -> None:
        """Record a note on a cause."""
        said = replace(remark, user=self._user)
        with self.writing() as sqlite:
            self._write(
                sqlite,
                JournalEntry(JobStep.REMARK, who=said.who, id=said.id, at=said.at, remark=said),
            )

    def causes(self) -> CauseRemarks:
        """Return the notes on causes that anybody at this broker and virtual host has written."""
        self._refresh(of_jobs=False)
        with self._errors("read"):
            return CauseRemarks(journal_tables.remarks(self._sqlite, self.place))

    def left_out(self, job_id: str) -> tuple[int, str]:
        """Return how many originals of messages changed by a job are missing here, and who has
        them."""
        with self._errors("read"):
            rows = self._sqlite.execute(
                "SELECT who FROM left_out WHERE job = ?", (job_id,)
            ).fetchall()
        return len(rows), ", ".join(sorted({who for (who,) in rows}))

    def belongs_to(self, job: JobRecord, address: str) -> bool:
        """Check whether a job belongs to the broker and virtual host at an address."""
        return job.broker == address

    def originals(self, job_id: str) -> Iterator[Delivery]:
        """Iterate over a job's messages as they were before it changed them."""
        place = self._dead_letter_queue_of(job_id)
        with self._errors("read"):
            rows = self._sqlite.execute(
                "SELECT queue, exchange, routing_key, properties, body FROM original WHERE job = ? "
                "ORDER BY rowid",
                (job_id,),
            )
            for queue, exchange, key, properties, body in rows:
                yield Delivery(
                    queue,
                    text_of(exchange),
                    text_of(key),
                    Properties.parse(properties),
                    body,
                    dead_letter_queue=place,
                )

    def _dead_letter_queue_of(self, job_id: str) -> str:
        """Return the dead-letter queue that a job's messages were in; empty for a subscription's
        queue."""
        with self._errors("read"):
            found = self._sqlite.execute(
                "SELECT record FROM job WHERE id = ?", (job_id,)
            ).fetchone()
        job = None if found is None else JobRecord.from_json(json.loads(found[0]))
        return job.queue if job is not None and job.literal else ""

    def close(self) -> None:
        """Close the file."""
        self._sqlite.close()

    # --- writing entries --------------------------------------------------------------------------

    def _write(self, sqlite: sqlite3.Connection, entry: JournalEntry, *, firm: bool = True) -> None:
        """Write an entry of this program.

        A shared journal appends it to its stream after the transaction, together with those before
        it; entries that are not firm wait for one that is.
        """
        entry = replace(
            entry,
            who=entry.who or whoami(),
            user=self._user,
            run=entry.run or self._run_of(sqlite, entry),
        )
        journal_tables.apply(sqlite, entry, self.place, is_own=True)
        if entry.step is JobStep.SENDING:
            # A message that is sent again after a lost connection was recorded already.
            handed_over = journal_tables.handed_over(sqlite, entry.job)
            entry = replace(entry, handed_over=handed_over)
        self._share(sqlite, entry, firm=firm)

    def _write_whole(self, sqlite: sqlite3.Connection, step: JobStep, job: JobRecord) -> None:
        """Write an entry that describes a job completely."""
        self._write(sqlite, self._standing(sqlite, JournalEntry(step, job.id, record=job)))

    def _standing(self, sqlite: sqlite3.Connection, entry: JournalEntry) -> JournalEntry:
        """Return an entry with the messages in flight."""
        return replace(
            entry,
            handed_over=journal_tables.handed_over(sqlite, entry.job),
            digests=tuple(journal_tables.under_way(sqlite, entry.job)),
        )

    def _run_of(self, sqlite: sqlite3.Connection, entry: JournalEntry) -> str:
        """Return the run that an entry belongs to. If somebody else resumes the job meanwhile, this
        program's run remains the one that it knows."""
        if entry.record is not None:
            return entry.record.run
        if entry.job not in self._runs:
            known = journal_tables.found(sqlite, entry.job)
            self._runs[entry.job] = "" if known is None else known.run
        return self._runs[entry.job]

    # --- hooks for a shared journal ---------------------------------------------------------------

    def _refresh(self, *, of_jobs: bool = True) -> None:
        """Read what others have written."""

    def _check_seen_by_all(self) -> None:
        """Check that everybody will see what is written next."""

    def _note_place(self, sqlite: sqlite3.Connection, job_id: str) -> None:
        """Record where a job is known."""

    @property
    def _user(self) -> str:
        """The user that the broker vouches for; empty if it vouches for nobody."""
        return ""

    def _signed(self, job: JobRecord) -> JobRecord:
        """Return a job with the identity of the user who runs it."""
        return replace(job, user=self._user)

    def _share(self, sqlite: sqlite3.Connection, entry: JournalEntry, *, firm: bool) -> None:
        """Queue an entry for sharing."""

    def _is_running(self, job: JobRecord) -> bool:
        """Check whether somebody seems to run a job now."""
        return _is_alive(job)

    def _is_known_to_run(self, job: JobRecord) -> bool:
        """Check whether somebody certainly runs a job now."""
        return job.who.rpartition("@")[2] == socket.gethostname() and _is_alive(job)

    def _as_it_is(self, job: JobRecord) -> JobRecord:
        """Return the job, as interrupted if its process died without recording an end."""
        return (
            replace(job, state=State.INTERRUPTED)
            if job.state is State.RUNNING and not self._is_running(job)
            else job
        )

    @contextlib.contextmanager
    def writing(self) -> Iterator[sqlite3.Connection]:
        """Provide a transaction on the journal.

        Raises:
            ConfigurationError: the journal can't be written.
        """
        if self._no_room:
            raise self._unusable("written", self._no_room, lacks_room=True)
        with self._transaction() as sqlite:
            yield sqlite

    @contextlib.contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        with self._lock, self._errors("written"):
            self._sqlite.execute("BEGIN IMMEDIATE")
            try:
                yield self._sqlite
            except BaseException:
                self._sqlite.rollback()
                raise
            self._sqlite.commit()

    @contextlib.contextmanager
    def _errors(self, what: str) -> Iterator[None]:
        try:
            yield
        except (OSError, sqlite3.Error) as error:
            lacks_room = self._lacks_room(error)
            raise self._unusable(what, str(error), lacks_room=lacks_room) from error

    def _unusable(self, what: str, why: str, *, lacks_room: bool) -> JournalUnusable:
        remedy = "Make room on its disk, or name" if lacks_room else "Name"
        return JournalUnusable(
            f"the journal {str(self.path)!r} can't be {what}: {why}",
            f"{remedy} another one with --journal.",
        )

    def _lacks_room(self, error: OSError | sqlite3.Error) -> bool:
        """Check whether an error was caused by a full disk, which not every error says."""
        if getattr(error, "sqlite_errorcode", None) == sqlite3.SQLITE_FULL:
            return True
        if isinstance(error, OSError):
            return error.errno in NO_ROOM
        try:
            return shutil.disk_usage(self.path.parent).free < _LEAST_ROOM
        except OSError:
            return False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class UnsavedJournal(LocalJournal):
    """An in-memory journal for a job that is not to be recorded; it ends with the process."""

    is_kept = False

    def __init__(self) -> None:
        super().__init__(Path(":memory:"))

    def _opened(self) -> sqlite3.Connection:
        return sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)


def _without_user(address: str) -> str:
    """Return a broker address without its user; empty if it is not a valid address."""
    try:
        return replace(BrokerURL.parse(address), username="", password="").address
    except RedriveError:
        return ""


def _version_of(sqlite: sqlite3.Connection) -> int:
    (version,) = sqlite.execute("PRAGMA user_version").fetchone()
    return int(version)


def _make_private(path: Path) -> None:
    """Create the file if it doesn't exist, and make it accessible to its owner only.

    An existing file is not opened: closing it would drop the locks of all SQLite connections of
    this process. Another process would then believe that it is the last one with the file open, and
    delete what these connections write to. Source:
    https://www.sqlite.org/howtocorrupt.html#_posix_advisory_locks_canceled_by_a_separate_thread_doing_close_
    """
    with _making, contextlib.suppress(FileExistsError):
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, _OURS_ALONE))
        return
    if path.is_symlink():
        raise ConfigurationError(
            f"the journal {str(path)!r} is a link", "Name the file itself with --journal."
        )
    if sys.platform != "win32" and stat.S_IMODE(path.stat().st_mode) & ~_OURS_ALONE:
        with contextlib.suppress(PermissionError):  # it belongs to another user
            path.chmod(_OURS_ALONE)


def _read_only(path: Path) -> sqlite3.Connection:
    return sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True, timeout=_LOCK_TIMEOUT)


def _changed(sqlite: sqlite3.Connection, job: JobRecord) -> JobRecord:
    """Return a job that has changed now, with what another process has heard of its messages."""
    changed = replace(job, changed_at=datetime.now(UTC))
    known = journal_tables.found(sqlite, job.id)
    return changed if known is None else changed.with_known_of(known)


def _is_alive(job: JobRecord) -> bool:
    """Check whether a job's process seems to run.

    On another host, a job counts as running if it was updated within the last few minutes.
    """
    if job.state is not State.RUNNING:
        return False
    if job.who.rpartition("@")[2] != socket.gethostname():
        return datetime.now(UTC) - job.changed_at < _SILENT
    if job.process == os.getpid():
        return False
    if sys.platform == "win32":
        return False  # no way to ask without ending the process
    try:
        os.kill(job.process, 0)
    except OSError as error:
        return not isinstance(error, ProcessLookupError)
    return True
