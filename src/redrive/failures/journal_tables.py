"""The tables of the local journal, and what an entry of the shared one changes in them."""

import contextlib
import json
import sqlite3
from collections.abc import Callable, Iterable
from dataclasses import replace
from datetime import datetime

from redrive.errors import ConfigurationError
from redrive.failures.approval_rule import may_approve
from redrive.failures.cause_note import CauseNote
from redrive.failures.job_record import JobRecord, State
from redrive.failures.journal_entry import WHOLE, JobStep, JournalEntry, Original

VERSION = 4
"""The version of the file; 0 is that of redrive 0.1 and 0.2, which has the first four tables, 2
that of versions which know no job that waits for approval, and 3 that of versions which find jobs
by reading all of them."""
MOST_JOBS = 10_000
"""Of a place that are kept; of older ones those that still run or wait."""
SCHEMA = """
CREATE TABLE IF NOT EXISTS job (id TEXT PRIMARY KEY, begun_at TEXT NOT NULL, record TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS handed_over (job TEXT PRIMARY KEY, messages INTEGER NOT NULL);
CREATE TABLE IF NOT EXISTS under_way (
    job TEXT, failure_id TEXT, PRIMARY KEY (job, failure_id)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS original (
    job TEXT NOT NULL, failure_id TEXT NOT NULL, queue TEXT NOT NULL,
    exchange BLOB NOT NULL, routing_key BLOB NOT NULL,
    properties BLOB NOT NULL, body BLOB NOT NULL
);
-- How far the stream of a broker and virtual host was read.
CREATE TABLE IF NOT EXISTS place (
    name TEXT PRIMARY KEY, position INTEGER, entry BLOB, format INTEGER NOT NULL,
    unreadable INTEGER NOT NULL, newer INTEGER NOT NULL
);
-- Which jobs are in which stream.
CREATE TABLE IF NOT EXISTS known_at (
    job TEXT, place TEXT, PRIMARY KEY (job, place)
) WITHOUT ROWID;
-- Which entries have been counted.
CREATE TABLE IF NOT EXISTS seen (id BLOB PRIMARY KEY) WITHOUT ROWID;
-- Entries of this file's own that were not read back yet; with their body until they are in the
-- stream.
CREATE TABLE IF NOT EXISTS own (
    number INTEGER PRIMARY KEY AUTOINCREMENT, id BLOB UNIQUE NOT NULL, place TEXT NOT NULL,
    job TEXT NOT NULL, body BLOB
);
-- Who ran a job when somebody else said that they resume it.
CREATE TABLE IF NOT EXISTS run_before (job TEXT PRIMARY KEY, record TEXT NOT NULL) WITHOUT ROWID;
-- Jobs that a newer version has written something of.
CREATE TABLE IF NOT EXISTS newer (job TEXT PRIMARY KEY);
-- What was said of causes at which broker and virtual host.
CREATE TABLE IF NOT EXISTS remark (
    id TEXT PRIMARY KEY, place TEXT NOT NULL, at TEXT NOT NULL, who TEXT NOT NULL,
    user TEXT NOT NULL, remark TEXT NOT NULL
);
-- Runs of jobs that somebody has asked to be stopped, and who.
CREATE TABLE IF NOT EXISTS stop (run TEXT PRIMARY KEY, by TEXT NOT NULL) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS job_by_time ON job (begun_at);
CREATE INDEX IF NOT EXISTS job_by_state ON job (json_extract(record, '$.state'), begun_at);
-- Originals that are elsewhere only.
CREATE TABLE IF NOT EXISTS left_out (job TEXT NOT NULL, who TEXT NOT NULL);
"""
NEVER_FORGOTTEN = frozenset((State.ASKED, State.DECLINED, State.DONE))
"""What is declined instead, or is history."""
_OF_A_RUN = (WHOLE - {JobStep.DECLINED, JobStep.FORGOTTEN}) | {JobStep.SETTLED, JobStep.SENDING}
"""The steps whose entries say what is on its way."""
_OF_ONE_RUN = frozenset(
    (
        JobStep.TAKEN_UP,
        JobStep.CANARY,
        JobStep.PROGRESS,
        JobStep.SENDING,
        JobStep.SETTLED,
        JobStep.STOPPED,
        JobStep.ENDED,
    )
)
"""The steps that only whoever runs a job can write."""
_ADDITIVE = frozenset((JobStep.HEARD, JobStep.ORIGINAL, JobStep.STOP))
"""The steps whose entries may be counted once only, and in any order."""


def drop_run_before(sqlite: sqlite3.Connection, job_id: str) -> None:
    """Forget who ran a job before somebody else said that they resume it."""
    sqlite.execute("DELETE FROM run_before WHERE job = ?", (job_id,))


def run_before(sqlite: sqlite3.Connection, job_id: str) -> JobRecord | None:
    """Return the record of whoever ran a job when somebody else said that they resume it."""
    row = sqlite.execute("SELECT record FROM run_before WHERE job = ?", (job_id,)).fetchone()
    return None if row is None else JobRecord.from_json(json.loads(row[0]))


def put(sqlite: sqlite3.Connection, job: JobRecord) -> None:
    """Writes a job's record."""
    sqlite.execute(
        "INSERT INTO job VALUES (?, ?, ?) ON CONFLICT (id) DO UPDATE SET record = excluded.record",
        (job.id, job.begun_at.isoformat(), json.dumps(job.as_json())),
    )


def found(sqlite: sqlite3.Connection, job_id: str) -> JobRecord | None:
    """A job's record; None where there is none."""
    row = sqlite.execute("SELECT record FROM job WHERE id = ?", (job_id,)).fetchone()
    return None if row is None else JobRecord.from_json(json.loads(row[0]))


def jobs(
    sqlite: sqlite3.Connection,
    place: str | None,
    limit: int | None = None,
    *,
    queue: str | None = None,
    kind: str | None = None,
    state: State | None = None,
) -> list[JobRecord]:
    """The jobs that were not forgotten, the latest first."""
    conditions = {
        "json_extract(record, '$.queue') = ?": queue,
        "json_extract(record, '$.kind') = ?": kind,
        "json_extract(record, '$.state') = ?": None if state is None else state.value,
        "EXISTS (SELECT 1 FROM known_at WHERE job = job.id AND place = ?)": place,
    }
    asked = {sql: value for sql, value in conditions.items() if value is not None}
    where = " AND ".join((f"json_extract(record, '$.state') <> '{State.FORGOTTEN}'", *asked))
    rows = sqlite.execute(
        f"SELECT record FROM job WHERE {where} ORDER BY begun_at DESC, rowid DESC LIMIT ?",
        (*asked.values(), limit or -1),
    )
    return [JobRecord.from_json(json.loads(record)) for (record,) in rows]


def count(sqlite: sqlite3.Connection, place: str | None) -> int:
    """How many jobs there are that were not forgotten; of a place, or of all."""
    (number,) = sqlite.execute(
        "SELECT count(*) FROM job WHERE json_extract(record, '$.state') <> ? AND "
        "(?2 IS NULL OR EXISTS (SELECT 1 FROM known_at WHERE job = job.id AND place = ?2))",
        (State.FORGOTTEN.value, place),
    ).fetchone()
    return int(number)


def place_jobs(sqlite: sqlite3.Connection, place_of: Callable[[str], str]) -> None:
    """Notes at which place the jobs are that versions before 4 have only written the broker of."""
    rows = sqlite.execute(
        "SELECT id, json_extract(record, '$.broker') FROM job "
        "WHERE id NOT IN (SELECT job FROM known_at)"
    ).fetchall()
    sqlite.executemany(
        "INSERT OR IGNORE INTO known_at VALUES (?, ?)",
        ((id_, place) for id_, broker in rows if (place := place_of(broker))),
    )


def leave_asked(sqlite: sqlite3.Connection, place: str) -> None:
    """Note that the jobs which wait for approval are not known to be at a place any more."""
    sqlite.execute(
        "DELETE FROM known_at WHERE place = ? AND job IN "
        "(SELECT id FROM job WHERE json_extract(record, '$.state') = ?)",
        (place, State.ASKED.value),
    )


def shrink(sqlite: sqlite3.Connection) -> bool:
    """Drop jobs where there are too many; return whether there were.

    It drops those of whoever has the most, so that nobody's jobs are pushed out by another's: the
    oldest, and last those that run or wait.
    """
    old = [
        id_
        for (id_,) in sqlite.execute(
            "SELECT id FROM (SELECT id, row_number() OVER ("
            "PARTITION BY json_extract(record, '$.user') ORDER BY "
            "json_extract(record, '$.state') IN ('running', 'asked') DESC, begun_at DESC"
            ") AS rank FROM job) ORDER BY rank LIMIT -1 OFFSET ?",
            (MOST_JOBS,),
        )
    ]
    for table in ("handed_over", "under_way", "original", "left_out", "known_at", "run_before"):
        sqlite.executemany(f"DELETE FROM {table} WHERE job = ?", ((id_,) for id_ in old))
    sqlite.executemany("DELETE FROM job WHERE id = ?", ((id_,) for id_ in old))
    return bool(old)


def handed_over(sqlite: sqlite3.Connection, job_id: str) -> int:
    """How many messages a job has handed to the broker in all."""
    row = sqlite.execute("SELECT messages FROM handed_over WHERE job = ?", (job_id,)).fetchone()
    return int(row[0]) if row else 0


def set_handed_over(sqlite: sqlite3.Connection, job_id: str, messages: int) -> None:
    """Writes how many messages a job has handed to the broker in all."""
    sqlite.execute(
        "INSERT INTO handed_over VALUES (?, ?) ON CONFLICT (job) DO UPDATE SET messages = "
        "excluded.messages",
        (job_id, messages),
    )


def under_way(sqlite: sqlite3.Connection, job_id: str) -> Iterable[str]:
    """The digests of a job's messages that are not known to be settled."""
    for (digest,) in sqlite.execute(
        "SELECT failure_id FROM under_way WHERE job = ? ORDER BY failure_id", (job_id,)
    ):
        yield digest


def add_under_way(sqlite: sqlite3.Connection, job_id: str, digests: Iterable[str]) -> int:
    """Notes messages that are on their way; how many of them were not noted yet."""
    return sqlite.executemany(
        "INSERT OR IGNORE INTO under_way VALUES (?, ?)", ((job_id, one) for one in digests)
    ).rowcount


def put_stop(sqlite: sqlite3.Connection, run: str, by: str) -> None:
    """Writes that somebody asks a run of a job to be stopped; whoever was first is kept."""
    sqlite.execute("INSERT OR IGNORE INTO stop VALUES (?, ?)", (run, by))


def stop_asked_by(sqlite: sqlite3.Connection, run: str) -> str:
    """Who has asked a run of a job to be stopped; empty for nobody."""
    row = sqlite.execute("SELECT by FROM stop WHERE run = ?", (run,)).fetchone()
    return "" if row is None else str(row[0])


def put_remark(sqlite: sqlite3.Connection, place: str, remark: CauseNote) -> None:
    """Writes what was said of a cause at a place; once."""
    sqlite.execute(
        "INSERT OR IGNORE INTO remark VALUES (?, ?, ?, ?, ?, ?)",
        (
            remark.id,
            place,
            remark.at.isoformat(),
            remark.who,
            remark.user,
            json.dumps(remark.as_json()),
        ),
    )


def remarks(sqlite: sqlite3.Connection, place: str) -> Iterable[CauseNote]:
    """What was said of causes at a place; what can't be read is left out."""
    for id_, at, who, user, remark in sqlite.execute(
        "SELECT id, at, who, user, remark FROM remark WHERE place = ?", (place,)
    ):
        with contextlib.suppress(ConfigurationError, ValueError, KeyError):
            yield CauseNote.from_json(
                json.loads(remark), id_=id_, at=datetime.fromisoformat(at), who=who, user=user
            )


def is_new(sqlite: sqlite3.Connection, id_: bytes) -> bool:
    """Whether an entry is seen for the first time; it is not from now on."""
    return sqlite.execute("INSERT OR IGNORE INTO seen VALUES (?)", (id_,)).rowcount == 1


def is_additive(entry: JournalEntry) -> bool:
    """Whether an entry may stand anywhere among the others of its job."""
    return entry.step in _ADDITIVE or entry.step in (JobStep.READ, JobStep.REMARK)


def apply(sqlite: sqlite3.Connection, entry: JournalEntry) -> None:
    """Do to the tables what an entry says. Each but an additive one may be done again: it says
    how things stand, not what is to be added."""
    known = found(sqlite, entry.job)
    if known is not None and not _may_follow(entry, known):
        known = run_before(sqlite, entry.job)
        if known is None or not _is_of_run(entry, known):
            return
        # Who ran it still does: nobody can have resumed it.
        put(sqlite, known)
        drop_run_before(sqlite, entry.job)
    if known is not None and _displaces(entry, known):
        sqlite.execute(
            "INSERT OR IGNORE INTO run_before VALUES (?, ?)",
            (known.id, json.dumps(known.as_json())),
        )
    if entry.step is JobStep.STOP:
        put_stop(sqlite, entry.run, entry.by)
    settled = _settled(sqlite, entry.job)
    if entry.record is not None:
        _apply_record(sqlite, entry, entry.record, known, settled)
    if entry.step in _OF_A_RUN:
        if entry.step is not JobStep.SENDING:
            sqlite.execute("DELETE FROM under_way WHERE job = ?", (entry.job,))
        add_under_way(sqlite, entry.job, entry.digests)
        # What was settled is never sent again, whatever is said of the job later.
        least = settled + _count_under_way(sqlite, entry.job)
        set_handed_over(sqlite, entry.job, max(entry.handed_over, least))
    if entry.original is not None:
        _keep(sqlite, entry, entry.original)


def _settled(sqlite: sqlite3.Connection, job_id: str) -> int:
    """How many messages a job has handed to the broker that are known to be settled."""
    return max(0, handed_over(sqlite, job_id) - _count_under_way(sqlite, job_id))


def _count_under_way(sqlite: sqlite3.Connection, job_id: str) -> int:
    row = sqlite.execute("SELECT count(*) FROM under_way WHERE job = ?", (job_id,)).fetchone()
    return int(row[0])


def _may_follow(entry: JournalEntry, known: JobRecord) -> bool:
    """Whether an entry counts, by what is known of its job.

    A job that waits for an approval can be approved or declined, and nothing else. One that was
    declined or is done stays so; one that was forgotten, unless whoever runs it goes on. Of a run
    only whoever runs it can tell, and not late, when another run has begun.
    """
    match entry.step:
        case JobStep.ASKED:
            return False
        case JobStep.DECLINED:
            return known.state is State.ASKED
        case JobStep.FORGOTTEN:
            return known.state not in NEVER_FORGOTTEN
        case JobStep.RESUMED if known.state is State.FORGOTTEN:
            return False
        case _ if known.state is State.DONE:
            return is_additive(entry)
        case _ if known.state is State.DECLINED:
            return False
        case JobStep.RESUMED if known.state is State.ASKED:
            return entry.record is not None and may_approve(
                known, replace(entry.record, user=entry.user)
            )
        case _ if known.state is State.ASKED:
            return False
        case JobStep.BEGUN | JobStep.RESUMED:
            return True
        case _ if is_additive(entry):
            return True
        case _:
            return _is_of_run(entry, known)


def _is_of_run(entry: JournalEntry, known: JobRecord) -> bool:
    return known.run == entry.run and entry.user == known.user


def _displaces(entry: JournalEntry, known: JobRecord) -> bool:
    """Return whether an entry says that somebody else runs a job than who was known to."""
    return (
        entry.step in (JobStep.BEGUN, JobStep.RESUMED)
        and known.state is State.RUNNING
        and known.user != entry.user
    )


def is_superseded(sqlite: sqlite3.Connection, entry: JournalEntry) -> bool:
    """Return whether an entry is of a run of a job after which another one has begun."""
    known = found(sqlite, entry.job)
    return known is not None and entry.step in _OF_ONE_RUN and not _is_of_run(entry, known)


def wait_again(sqlite: sqlite3.Connection, asked: JournalEntry) -> None:
    """Take a job back to where it waited for an approval, as the entry says that asked for it."""
    known = found(sqlite, asked.job)
    is_the_asker = known is not None and asked.user and asked.by in (known.by, known.asked_by)
    if known is not None and is_the_asker:
        put(
            sqlite,
            replace(
                known,
                state=State.ASKED,
                run="",
                who=asked.who,
                user=asked.user,
                problem="",
                asked_by="",
                approved_by="",
            ),
        )


_STATES = {
    JobStep.ASKED: State.ASKED,
    JobStep.BEGUN: State.RUNNING,
    JobStep.RESUMED: State.RUNNING,
    JobStep.TAKEN_UP: State.RUNNING,
    JobStep.CANARY: State.RUNNING,
    JobStep.PROGRESS: State.RUNNING,
    JobStep.STOPPED: State.STOPPED,
    JobStep.DECLINED: State.DECLINED,
    JobStep.FORGOTTEN: State.FORGOTTEN,
}


def _state_after(step: JobStep, said: State) -> State:
    """Where a job stands after a step, whatever its record says; of one that has ended, how."""
    if step is JobStep.ENDED and said not in (State.DONE, State.FAILED):
        return State.INTERRUPTED
    return _STATES.get(step, said)


def _apply_record(
    sqlite: sqlite3.Connection,
    entry: JournalEntry,
    record: JobRecord,
    known: JobRecord | None,
    settled: int,
) -> None:
    record = replace(record, user=entry.user, state=_state_after(entry.step, record.state))
    if known is None:
        put(sqlite, replace(record, asked_by="", approved_by=""))
        return
    if entry.step is JobStep.HEARD:
        told = {name: getattr(known, name) + count for name, count in entry.told.items()}
        here = replace(known, failed_here=record.failed_here, **told)
        put(sqlite, replace(here, sent=max(known.sent, record.sent)))
        return
    if entry.step in (JobStep.DECLINED, JobStep.FORGOTTEN):
        # Somebody else than who has asked for it, or runs it.
        why = record.problem.partition(": ")[2]
        problem = f"{record.state.value} by {entry.by}{f': {why}' if why else ''}"
        changed_at = record.changed_at
        put(sqlite, replace(known, state=record.state, problem=problem, changed_at=changed_at))
        return
    record = record.with_known_of(known).with_order_of(known)
    record = replace(record, sent=max(record.sent, min(known.sent, settled)))
    if known.state is State.ASKED and entry.step is JobStep.RESUMED:
        # Who has asked, and who has approved, is what the broker vouches for.
        record = replace(record, asked_by=known.by, approved_by=record.by)
    if entry.step not in WHOLE:
        ids = {name: getattr(known, name) for name in ("duplicate_ids", "not_sent_ids")}
        record = replace(record, **ids)
    put(sqlite, record)


def _keep(sqlite: sqlite3.Connection, entry: JournalEntry, original: Original) -> None:
    if original.parts is None:
        sqlite.execute("INSERT INTO left_out VALUES (?, ?)", (entry.job, entry.who))
    else:
        sqlite.execute(
            "INSERT INTO original VALUES (?, ?, ?, ?, ?, ?, ?)",
            (entry.job, original.failure_id, original.queue, *original.parts),
        )
