"""The journal shared by all users of a broker and virtual host, with the local file as its copy.

Entries are written to the file, and then to the stream. If the stream can't be used, the file works
alone and keeps the entries that were not appended; whoever opens it next appends them. Each entry
has an id, so an entry that is appended twice counts once.
"""

import contextlib
import logging
import sqlite3
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

from redrive.errors import BrokerUnavailable, ConfigurationError, RedriveError, Unroutable
from redrive.failures.jobs import journal_tables
from redrive.failures.jobs.cause_remark import CauseRemark
from redrive.failures.jobs.job_record import JobRecord, State
from redrive.failures.jobs.journal_entry import (
    FORMAT,
    LONGEST_ENTRY,
    JobStep,
    JournalEntry,
    NewerEntry,
    Unreadable,
)
from redrive.failures.jobs.journal_stream import DEFAULT_MAX_AGE, JobLocked, JournalStream
from redrive.failures.jobs.local_journal import JournalUnusable, LocalJournal, is_running
from redrive.failures.store.operator_name import whoami
from redrive.pubsub.blocking.stream_reader import StreamReader
from redrive.pubsub.stream_consumer import Row
from redrive.pubsub.url import BrokerURL
from redrive.redaction import in_one_line
from redrive.topology.durations import Duration, duration_of

logger = logging.getLogger("redrive")

Notice = Callable[[str], None]

_PROGRESS_EVERY = 2.0
"""Seconds between two progress entries of a job."""
_STOP = f'"{JobStep.STOP}"'.encode()
_TOGETHER = 500
"""Number of entries that are appended, or copied into the file, at a time."""


class Journal(LocalJournal):
    """The shared journal of the broker and virtual host at a URL; a context manager.

    It has the jobs of this broker and virtual host. If the stream can't be read, it has all jobs of
    the local file.

    Args:
        url: the broker's address.
        path: the local file; None for the one in the user's state directory.
        max_age: how long the broker keeps an entry; applies only if the stream doesn't exist yet.
        bodies: whether edited bodies and their originals are shared too.
        on_notice: called with a sentence if only the file is used, or if something can't be read;
            logs it by default.
        program: the name that jobs record as the program that began them.

    Raises:
        ConfigurationError: the file can't be opened, read or written, or the URL or the age is
            invalid.
    """

    def __init__(
        self,
        url: str,
        path: Path | None = None,
        *,
        max_age: Duration = DEFAULT_MAX_AGE,
        bodies: bool = True,
        on_notice: Notice | None = None,
        program: str = "",
    ) -> None:
        self.program = program
        self._shares_bodies = bodies
        address = replace(BrokerURL.parse(url), username="", password="")
        self.place = address.address
        """The broker's address and virtual host, without the user."""
        self._stream = JournalStream(url, duration_of(max_age, "max_age"))
        self._on_notice = on_notice or logger.warning
        self._offline = ""
        self._is_fresh = self._is_stale = False
        self._told_of_dropped = False
        self._noted: list[tuple[str, bytes]] = []
        self._firm = False
        self._confirmed: list[str] = []
        self._told_progress: dict[str, float] = {}
        self._locked_job = ""
        self._follower: StreamReader | None = None
        self._appending = threading.RLock()
        super().__init__(path)
        if self._no_room:
            self._on_notice(
                f"There is no room on the disk of {self.path} ({self._no_room}): the journal can "
                "be read, but not written."
            )

    @property
    def is_shared(self) -> bool:
        """Whether the stream was usable so far and its entries are in the file."""
        return not self._offline and not self._is_stale

    # --- reading ----------------------------------------------------------------------------------

    def _refresh(self, *, of_jobs: bool = True) -> None:
        self._freshen()
        if of_jobs:
            self._tell_of_what_was_dropped()

    @property
    def _place_of_jobs(self) -> str | None:
        return self.place if self.is_shared else None

    def remark(self, remark: CauseRemark) -> None:
        """Record a note on a cause, for everybody."""
        self._online(self._stream.declare)
        self._freshen()
        super().remark(remark)

    def _tell_of_what_was_dropped(self) -> None:
        """Warn about jobs in the stream whose beginning the broker has dropped.

        Brokers drop old entries, even the beginning of a job that still runs.
        """
        if self._told_of_dropped or not self.is_shared:
            return
        self._told_of_dropped = True
        with self._errors("read"):
            (count,) = self._sqlite.execute(
                "SELECT count(*) FROM known_at WHERE place = ? "
                "AND job NOT IN (SELECT id FROM job) AND job NOT IN (SELECT job FROM newer)",
                (self.place,),
            ).fetchone()
        if count:
            what = "a job" if count == 1 else f"{count:,} jobs"
            whose = "its" if count == 1 else "their"
            self._on_notice(
                f"The shared journal names {what} whose beginning the broker has dropped by age "
                f"or size: {whose} order is not known until "
                f"{'it ends' if count == 1 else 'they end'}."
            )

    def belongs_to(self, job: JobRecord, address: str) -> bool:
        """Check whether a job belongs to the broker and virtual host at an address.

        The job may have been begun with another name for the host, or as another user.
        """
        return super().belongs_to(job, address) or (
            replace(BrokerURL.parse(address), username="", password="").address == self.place
            and self._is_here(job)
        )

    def _is_here(self, job: JobRecord) -> bool:
        with self._errors("read"):
            known = self._sqlite.execute(
                "SELECT 1 FROM known_at WHERE job = ? AND place = ?", (job.id, self.place)
            ).fetchone()
        return known is not None

    def unread(self) -> tuple[int, int]:
        """Return how many entries of the stream can't be read, and how many are from a newer
        version."""
        with self._errors("read"):
            row = self._sqlite.execute(
                "SELECT unreadable, newer FROM place WHERE name = ?", (self.place,)
            ).fetchone()
        return (0, 0) if row is None else (int(row[0]), int(row[1]))

    # --- the life of a job ------------------------------------------------------------------------

    def begin(self, job: JobRecord) -> JobRecord:
        """Record and lock a job that begins or is resumed; return it with who runs it.

        Nobody else can run the job until this journal is closed.

        Raises:
            ConfigurationError: somebody else runs it, it is done, or a newer version has written
                about it.
        """
        is_known = self._found(job.id) is not None
        self._locked_job = ""
        self._online(lambda: self._lock_job(job.id, is_known=is_known))
        if is_known:
            job = self._as_known(job)
            if job.approved_by and not self._is_approved(job):
                # Somebody may have declined it meanwhile.
                self._check_shared()
                self._check_still_asked(job)
        return super().begin(job)

    def _check_still_asked(self, job: JobRecord) -> None:
        if not self._is_here(job):
            raise ConfigurationError(
                f"job {job.id} is no longer in the shared journal, which was deleted and created "
                "again: somebody may have declined it",
                "Ask for approval again.",
            )

    def _is_approved(self, job: JobRecord) -> bool:
        known = self._found(job.id)
        return known is not None and known.state is not State.ASKED

    def ask(self, job: JobRecord) -> JobRecord:
        """Record a job that waits for somebody else's approval, where everybody sees it.

        Raises:
            ConfigurationError: the shared journal can't be used.
        """
        self._online(self._stream.declare)
        self._check_shared()
        asked = super().ask(job)
        self._check_shared()
        return asked

    def _check_seen_by_all(self) -> None:
        self._freshen()
        self._check_shared()

    def ask_to_stop(self, job: JobRecord) -> None:
        """Ask a job's process, on any machine, to stop it.

        Raises:
            ConfigurationError: nobody runs it, or the request can't be recorded.
        """
        self._freshen()
        super().ask_to_stop(job)
        if job.who != whoami():  # a process on this machine reads the same file
            self._check_shared()

    def stop_asked_by(self, job: JobRecord) -> str:
        """Return who has asked to stop this run of a job, on any machine; empty if nobody has.

        Raises:
            RedriveError: the shared journal can't be read now.
        """
        by = super().stop_asked_by(job)
        if by or not self._locked_job:
            return by
        if self._follower is None:
            self._follower = self._stream.follow()
        try:
            self._heed(self._follower)
        except RedriveError:
            self._follower.close()
            self._follower = None
            raise
        return super().stop_asked_by(job)

    def _heed(self, follower: StreamReader) -> None:
        """Record new requests to stop a run. Other entries are read when somebody asks for them."""
        for row in follower.come():
            if _STOP not in row.body:  # most entries are long, and list messages in flight
                continue
            with contextlib.suppress(NewerEntry, Unreadable):
                entry = JournalEntry.decode(row.body, row.user)
                if entry.step is JobStep.STOP:
                    with self._transaction() as sqlite:
                        journal_tables.put_stop(sqlite, entry.run, entry.by)

    def _check_shared(self) -> None:
        if not self.is_shared:
            why = self._offline or "its copy here can't be written"
            raise ConfigurationError(
                f"the shared journal can't be used ({why}): nobody else would see it",
                "Try again when it is available.",
            )

    def _lock_job(self, job_id: str, *, is_known: bool) -> None:
        self._stream.declare()
        try:
            self._stream.open(job_id)
        except JobLocked as error:
            self._stream.open()
            self._read_on(self._mark())
            raise is_running(self._found(job_id) or JobRecord(job_id, "", "", "")) from error
        if self._stream.has_lock:
            self._locked_job = job_id
        if is_known or self._left_over():
            self._read_on(self._mark())
        self._append_left_over()

    def _as_known(self, job: JobRecord) -> JobRecord:
        """Return a resumed job, updated with what the journal knows about it."""
        with self._errors("read"):
            newer = self._sqlite.execute("SELECT 1 FROM newer WHERE job = ?", (job.id,)).fetchone()
        if newer is not None:
            raise ConfigurationError(
                f"a newer version of redrive has written about job {job.id}",
                "Use that version.",
            )
        known = self._found(job.id)
        if known is None:
            return job
        return replace(
            job,
            sent=known.sent,
            possible_duplicates=known.possible_duplicates,
            not_sent=known.not_sent,
        ).with_known_of(known)

    @property
    def _user(self) -> str:
        return self._stream.user

    def _signed(self, job: JobRecord) -> JobRecord:
        return replace(super()._signed(job), locked=bool(self._locked_job))

    def _is_running(self, job: JobRecord) -> bool:
        if job.state is not State.RUNNING:
            return False
        if self._locked_job == job.id and job.locked:
            return False  # nobody else holds the lock
        if not job.locked or not self.is_shared or not self._is_here(job):
            return super()._is_running(job)
        with contextlib.suppress(RedriveError):
            return self._stream.is_locked(job.id)
        return super()._is_running(job)

    def _is_known_to_run(self, job: JobRecord) -> bool:
        if job.state is State.RUNNING and job.locked and self.is_shared:
            return self._is_running(job)
        return super()._is_known_to_run(job)

    # --- writing ----------------------------------------------------------------------------------

    @contextlib.contextmanager
    def writing(self) -> Iterator[sqlite3.Connection]:
        """Provide a transaction on the file. Once committed, its entries are appended to the
        stream."""
        with super().writing() as sqlite:
            self._forget_appended(sqlite)
            yield sqlite
        if self._firm:
            self._append_noted()

    def _share(self, sqlite: sqlite3.Connection, entry: JournalEntry, *, firm: bool) -> None:
        if entry.step is JobStep.PROGRESS and not firm and not self._is_due(entry.job):
            return
        body = self._encoded(entry)
        id_ = uuid.UUID(entry.id).bytes
        sqlite.execute("INSERT INTO seen VALUES (?)", (id_,))
        sqlite.execute(
            "INSERT INTO own (id, place, job, body) VALUES (?, ?, ?, ?)",
            (id_, self.place, entry.job, body),
        )
        self._note_place(sqlite, entry.job)
        self._noted.append((entry.id, body))
        self._firm = self._firm or firm

    def _encoded(self, entry: JournalEntry) -> bytes:
        body = entry.encode(bodies=self._shares_bodies)
        if len(body) > LONGEST_ENTRY and entry.record is not None:
            # Nobody would read an entry this long: an order that names so many messages stays in
            # this file.
            short = replace(entry, record=replace(entry.record, order={}))
            body = short.encode(bodies=False)
        return body

    def _is_due(self, job_id: str) -> bool:
        """Check whether others should hear of a job's progress again."""
        now = time.monotonic()
        is_due = now - self._told_progress.setdefault(job_id, now) >= _PROGRESS_EVERY
        if is_due:
            self._told_progress[job_id] = now
        return is_due

    def _append_noted(self) -> None:
        with self._appending:
            noted, self._noted, self._firm = self._noted, [], False
            if not noted or self._offline:
                return

            def append() -> None:
                self._stream.append(noted)
                self._confirmed += [id_ for id_, _ in noted]

            self._online(append)

    def _forget_appended(self, sqlite: sqlite3.Connection) -> None:
        """Delete the local bodies of entries that are in the stream."""
        confirmed, self._confirmed = self._confirmed, []
        sqlite.executemany(
            "UPDATE own SET body = NULL WHERE id = ?",
            ((uuid.UUID(id_).bytes,) for id_ in confirmed),
        )

    def _found(self, job_id: str) -> JobRecord | None:
        with self._errors("read"):
            return journal_tables.found(self._sqlite, job_id)

    def _left_over(self) -> list[tuple[bytes, bytes]]:
        with self._errors("read"):
            return self._sqlite.execute(
                "SELECT id, body FROM own WHERE place = ? AND body IS NOT NULL "
                "ORDER BY number LIMIT ?",
                (self.place, _TOGETHER),
            ).fetchall()

    def _append_left_over(self) -> None:
        """Append entries that an earlier run couldn't, unless their job was resumed since."""
        while rows := self._left_over():
            with self._transaction() as sqlite:
                late = [id_ for id_, body in rows if self._is_superseded(sqlite, body)]
                sqlite.executemany("DELETE FROM own WHERE id = ?", ((id_,) for id_ in late))
            left = [(id_, body) for id_, body in rows if id_ not in late]
            if left:
                self._stream.append([(str(uuid.UUID(bytes=id_)), body) for id_, body in left])
            with self._transaction() as sqlite:
                sqlite.executemany(
                    "UPDATE own SET body = NULL WHERE id = ?", ((id_,) for id_, _ in left)
                )

    def _is_superseded(self, sqlite: sqlite3.Connection, body: bytes) -> bool:
        try:
            return journal_tables.is_superseded(sqlite, JournalEntry.decode(body))
        except (NewerEntry, Unreadable):
            return False  # others may be able to read it

    def _online(self, act: Callable[[], None]) -> None:
        """Use the stream; if it can't be used, continue with the file alone and say so once."""
        if self._offline:
            return
        try:
            act()
        except JobLocked as error:
            raise ConfigurationError(
                "the connection to the journal was lost, and somebody else runs the job now",
                "See: redrive jobs list.",
            ) from error
        except ConfigurationError:
            raise  # it concerns the job or the file: trouble with the stream is another error
        except RedriveError as error:
            self._go_on_alone(error)

    def _go_on_alone(self, error: RedriveError) -> None:
        self._offline = _first_line(error)
        self._on_notice(
            f"The shared journal at {self.place} can't be used ({self._offline}): only the "
            f"local file {self.path} is used, and what is missing in the shared one is added later."
        )

    # --- copying what others have appended --------------------------------------------------------

    def _freshen(self) -> None:
        if not self._is_fresh:
            self._is_fresh = True
            try:
                self._online(self._read_if_there)
            except JournalUnusable as error:
                # The disk may be full, but the file can still be read.
                self._is_stale = True
                self._on_notice(
                    f"The newest entries of others can't be copied: {_first_line(error)}. Showing "
                    f"what is in {self.path}."
                )

    def _read_if_there(self) -> None:
        with self._errors("read"):
            left_over = self._sqlite.execute(
                "SELECT 1 FROM own WHERE place = ? AND body IS NOT NULL", (self.place,)
            ).fetchone()
        if left_over is not None:
            self._stream.declare()
        try:
            mark = self._mark()
        except Unroutable:
            return  # there is no stream, so nothing was ever written
        except JobLocked:
            raise
        except RedriveError as error:
            if not self._stream.exists():
                return
            # A user with read access only is shown what there is.
            self._read_on("")
            self._on_notice(
                "Nothing can be added to the shared journal "
                f"({_first_line(error)}): its newest entries may be missing here."
            )
        else:
            self._read_on(mark)
            self._append_left_over()

    def _read_on(self, mark: str) -> None:
        """Update the file from the stream, up to a mark."""
        with self._errors("read"):
            known = self._sqlite.execute(
                "SELECT position, entry, format FROM place WHERE name = ?", (self.place,)
            ).fetchone()
        position = None if known is None or known[2] != FORMAT else known[0]
        if known is not None and known[2] != FORMAT:
            self._forget_what_was_newer()
        conflicting: set[str] | None = None
        if position is not None:
            conflicting = self._read_from(position, known[1], mark)
        if conflicting is None:
            # The stream doesn't continue what was read before: it is another one.
            with self._transaction() as sqlite:
                sqlite.execute("DELETE FROM place WHERE name = ?", (self.place,))
                if position is not None:
                    journal_tables.leave_asked(sqlite, self.place)
            conflicting = self._read_from(None, b"", mark)
        if conflicting:
            self._apply_again(conflicting, mark)

    def _forget_what_was_newer(self) -> None:
        """Forget that entries were too new to be read: this version may be able to read them."""
        with self._transaction() as sqlite:
            sqlite.execute("DELETE FROM newer")

    def _mark(self) -> str:
        """Append a mark up to which the stream is read; return its id."""
        entry = JournalEntry(JobStep.READ, who=whoami())
        self._stream.append([(entry.id, entry.encode())])
        return entry.id

    def _read_from(self, position: int | None, entry: bytes | None, mark: str) -> set[str] | None:
        """Copy the stream from a position on; return the jobs with conflicts, or None for another
        stream."""
        conflicting: set[str] = set()
        rows: list[Row] = []
        is_first = True
        try:
            for row in self._stream.read(position, mark):
                if is_first and position is not None:
                    is_first = False
                    if row.offset < position or (
                        row.offset == position and _as_bytes(row.message_id) != entry
                    ):
                        return None
                    if row.offset == position:
                        continue
                    self._tell_of_gap(row.offset - position - 1)
                is_first = False
                rows.append(row)
                if len(rows) >= _TOGETHER:
                    conflicting |= self._take_over(rows)
                    rows = []
        except RedriveError:
            if is_first and position is not None:
                return None  # nothing arrives from beyond the stream's end
            raise
        if is_first and position is not None:
            return None
        return conflicting | self._take_over(rows)

    def _tell_of_gap(self, count: int) -> None:
        what = "An entry" if count == 1 else f"{count:,} entries"
        self._on_notice(
            f"{what} of the shared journal {'was' if count == 1 else 'were'} dropped by the broker "
            "before this machine read them: jobs that were running then are up to date after their "
            "next entry."
        )

    def _take_over(self, rows: list[Row]) -> set[str]:
        if not rows:
            return set()
        conflicting: set[str] = set()
        unreadable = newer = 0
        with self._transaction() as sqlite:
            for row in rows:
                try:
                    conflicting |= self._take_one(sqlite, JournalEntry.decode(row.body, row.user))
                except NewerEntry as error:
                    newer += 1
                    known = journal_tables.found(sqlite, error.job)
                    if known is None or known.user == row.user:  # anybody can write a number
                        sqlite.execute("INSERT OR IGNORE INTO newer VALUES (?)", (error.job,))
                except Unreadable:
                    unreadable += 1
            sqlite.execute(
                "INSERT INTO place VALUES (?1, ?2, ?3, ?4, ?5, ?6) ON CONFLICT (name) DO UPDATE "
                "SET position = ?2, entry = ?3, format = ?4, unreadable = unreadable + ?5, "
                "newer = newer + ?6",
                (
                    self.place,
                    rows[-1].offset,
                    _as_bytes(rows[-1].message_id),
                    FORMAT,
                    unreadable,
                    newer,
                ),
            )
        return conflicting

    def _take_one(self, sqlite: sqlite3.Connection, entry: JournalEntry) -> set[str]:
        if entry.step is JobStep.READ:
            return set()
        id_ = uuid.UUID(entry.id).bytes
        if entry.step is JobStep.ASKED or not journal_tables.waits(sqlite, entry.job):
            self._note_place(sqlite, entry.job)
        sqlite.execute("DELETE FROM own WHERE id = ?", (id_,))
        if not journal_tables.is_new(sqlite, id_):
            return set()
        entry = _not_of_the_future(entry)
        own = sqlite.execute("SELECT 1 FROM own WHERE job = ?", (entry.job,)).fetchone()
        journal_tables.apply(sqlite, entry, self.place)
        if not journal_tables.waits(sqlite, entry.job):
            self._note_place(sqlite, entry.job)
        is_late = own is not None and not journal_tables.is_additive(entry)
        return {entry.job} if is_late else set()

    def _note_place(self, sqlite: sqlite3.Connection, job_id: str) -> None:
        if job_id:
            sqlite.execute("INSERT OR IGNORE INTO known_at VALUES (?, ?)", (job_id, self.place))

    def _apply_again(self, jobs: set[str], mark: str) -> None:
        """Rebuild the state of some jobs in the stream's order, with entries not yet in the stream
        last."""
        began = set()
        with self._transaction() as sqlite:
            for job in jobs:
                sqlite.execute("DELETE FROM under_way WHERE job = ?", (job,))
                journal_tables.set_handed_over(sqlite, job, 0)
                journal_tables.drop_run_before(sqlite, job)
            for row in self._stream.read(None, mark):
                with contextlib.suppress(NewerEntry, Unreadable):
                    entry = JournalEntry.decode(row.body, row.user)
                    if entry.job not in jobs or journal_tables.is_additive(entry):
                        continue
                    if entry.step is JobStep.ASKED and entry.job not in began:
                        journal_tables.wait_again(sqlite, entry)
                    began.add(entry.job)
                    journal_tables.apply(sqlite, entry)
            left_over = sqlite.execute(
                "SELECT body FROM own WHERE place = ? AND body IS NOT NULL ORDER BY number",
                (self.place,),
            ).fetchall()
            for (body,) in left_over:
                try:
                    entry = replace(JournalEntry.decode(body), user=self._stream.user)
                except (NewerEntry, Unreadable):
                    continue
                if (
                    entry.job in jobs
                    and not journal_tables.is_additive(entry)
                    and not journal_tables.is_superseded(sqlite, entry)
                ):
                    journal_tables.apply(sqlite, entry)

    def close(self) -> None:
        """Close the file, and release the lock."""
        try:
            with contextlib.suppress(ConfigurationError):
                self._append_noted()
                with self._transaction() as sqlite:
                    self._forget_appended(sqlite)
                    is_smaller = journal_tables.shrink(sqlite)
                if is_smaller:
                    with contextlib.suppress(sqlite3.Error):  # somebody else has it open
                        self._sqlite.execute("VACUUM")
        finally:
            if self._follower is not None:
                self._follower.close()
            self._stream.close()
            super().close()


def _not_of_the_future(entry: JournalEntry) -> JournalEntry:
    """Return an entry without times in the future: an entry must not stay new forever."""
    if entry.record is None:
        return entry
    now = datetime.now(UTC)
    times = {name: min(getattr(entry.record, name), now) for name in ("begun_at", "changed_at")}
    return replace(entry, record=replace(entry.record, **times))


def _as_bytes(message_id: str) -> bytes:
    return message_id.encode("utf-8", "surrogateescape")


def _first_line(error: RedriveError) -> str:
    if isinstance(error, BrokerUnavailable):
        return in_one_line(error.reason)
    return in_one_line(str(error).partition("\n")[0]).rstrip(".")
