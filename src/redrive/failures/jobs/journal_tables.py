"""The tables of the local journal, and how entries change them.

Whatever is written into the journal is an entry, and `apply` is the only way in which one changes
the tables, whether it was written here or read from the stream at the broker.
"""

import contextlib
import json
import sqlite3
from collections.abc import Callable, Iterable
from dataclasses import replace
from datetime import datetime
from typing import NamedTuple

from redrive.errors import ConfigurationError
from redrive.failures.jobs.approval_rule import may_approve
from redrive.failures.jobs.cause_remark import CauseRemark
from redrive.failures.jobs.job_record import JobRecord, State
from redrive.failures.jobs.journal_entry import WHOLE, JobEvent, JobStep, JournalEntry, Original

VERSION = 4
"""The version of the file.

Version 0 is that of redrive 0.1 and 0.2, which has the first four tables. Version 2 doesn't know
jobs that wait for approval. Version 3 finds jobs by reading all of them.
"""
_LONGEST_PROBLEM = 1000
MOST_JOBS = 10_000
"""Number of jobs kept; the oldest are dropped first, but those that run or wait last."""
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
-- Position up to which the stream of a broker and virtual host was read.
CREATE TABLE IF NOT EXISTS place (
    name TEXT PRIMARY KEY, position INTEGER, entry BLOB, format INTEGER NOT NULL,
    unreadable INTEGER NOT NULL, newer INTEGER NOT NULL
);
-- Jobs by the stream that has them.
CREATE TABLE IF NOT EXISTS known_at (
    job TEXT, place TEXT, PRIMARY KEY (job, place)
) WITHOUT ROWID;
-- Entries that have been counted.
CREATE TABLE IF NOT EXISTS seen (id BLOB PRIMARY KEY) WITHOUT ROWID;
-- Entries written here that were not read back yet; with their body until they are in the stream.
CREATE TABLE IF NOT EXISTS own (
    number INTEGER PRIMARY KEY AUTOINCREMENT, id BLOB UNIQUE NOT NULL, place TEXT NOT NULL,
    job TEXT NOT NULL, body BLOB
);
-- Who ran a job when somebody else claimed to resume it.
CREATE TABLE IF NOT EXISTS run_before (
    job TEXT PRIMARY KEY, record TEXT NOT NULL, handed_over INTEGER NOT NULL, digests TEXT NOT NULL
) WITHOUT ROWID;
-- Whose job it is: who began it or, if it had to be approved, who approved it.
CREATE TABLE IF NOT EXISTS owner (job TEXT PRIMARY KEY, user TEXT NOT NULL) WITHOUT ROWID;
-- Jobs that a newer version has written about.
CREATE TABLE IF NOT EXISTS newer (job TEXT PRIMARY KEY);
-- Notes on causes, by broker and virtual host.
CREATE TABLE IF NOT EXISTS remark (
    id TEXT PRIMARY KEY, place TEXT NOT NULL, at TEXT NOT NULL, who TEXT NOT NULL,
    user TEXT NOT NULL, remark TEXT NOT NULL
);
-- Runs of jobs that somebody has asked to stop.
CREATE TABLE IF NOT EXISTS stop (run TEXT PRIMARY KEY, by TEXT NOT NULL) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS job_by_time ON job (begun_at);
CREATE INDEX IF NOT EXISTS job_by_state ON job (json_extract(record, '$.state'), begun_at);
-- What has happened to each job.
CREATE TABLE IF NOT EXISTS event (
    id TEXT PRIMARY KEY, job TEXT NOT NULL, at TEXT NOT NULL, step TEXT NOT NULL,
    by TEXT NOT NULL, state TEXT NOT NULL, problem TEXT NOT NULL
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS event_of_job ON event (job, at);
-- How far the process that runs a job has got.
CREATE TABLE IF NOT EXISTS run_progress (
    job TEXT PRIMARY KEY, process INTEGER NOT NULL, progress TEXT NOT NULL
) WITHOUT ROWID;
-- Originals that are missing here.
CREATE TABLE IF NOT EXISTS left_out (job TEXT NOT NULL, who TEXT NOT NULL);
"""
NEVER_FORGOTTEN = frozenset((State.ASKED, State.DECLINED, State.DONE))
"""Waiting jobs are declined instead; the others are history."""
_OF_A_RUN = (WHOLE - {JobStep.DECLINED, JobStep.FORGOTTEN}) | {JobStep.SETTLED, JobStep.SENDING}
"""The steps whose entries list the messages in flight."""
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
"""The steps that only the job's own process can write."""
_ADDITIVE = frozenset((JobStep.HEARD, JobStep.ORIGINAL, JobStep.STOP))
"""The steps whose entries must count only once, but in any order."""


_EVENTS = frozenset(
    (
        JobStep.ASKED,
        JobStep.BEGUN,
        JobStep.RESUMED,
        JobStep.CANARY,
        JobStep.STOP,
        JobStep.STOPPED,
        JobStep.ENDED,
        JobStep.DECLINED,
        JobStep.FORGOTTEN,
    )
)
"""The steps that are kept for a job's timeline."""
_MOST_EVENTS = 200


def put_event(sqlite: sqlite3.Connection, entry: JournalEntry) -> None:
    """Keep an entry for the timeline of its job, at most 200 of a job."""
    if entry.step not in _EVENTS:
        return
    by = entry.record.by if entry.record is not None and not entry.user else entry.by
    state, problem = (
        ("", "") if entry.record is None else (entry.record.state, entry.record.problem)
    )
    sqlite.execute(
        "INSERT OR IGNORE INTO event SELECT ?, ?, ?, ?, ?, ?, ? "
        "WHERE (SELECT count(*) FROM event WHERE job = ?) < ?",
        (
            entry.id,
            entry.job,
            entry.at.isoformat(),
            entry.step.value,
            by,
            state,
            problem[:_LONGEST_PROBLEM],
            entry.job,
            _MOST_EVENTS,
        ),
    )


def events(sqlite: sqlite3.Connection, job_id: str) -> list[JobEvent]:
    """Return what has happened to a job, in order."""
    rows = sqlite.execute(
        "SELECT at, step, by, state, problem FROM event WHERE job = ? ORDER BY at", (job_id,)
    )
    return [JobEvent(datetime.fromisoformat(at), JobStep(step), *rest) for at, step, *rest in rows]


def drop_run_before(sqlite: sqlite3.Connection, job_id: str) -> None:
    """Delete the record of who ran a job before somebody else claimed to resume it."""
    sqlite.execute("DELETE FROM run_before WHERE job = ?", (job_id,))


def run_before(sqlite: sqlite3.Connection, job_id: str) -> JobRecord | None:
    """Return the record of who ran a job before somebody else claimed to resume it."""
    row = sqlite.execute("SELECT record FROM run_before WHERE job = ?", (job_id,)).fetchone()
    return None if row is None else JobRecord.from_json(json.loads(row[0]))


def put(sqlite: sqlite3.Connection, job: JobRecord) -> None:
    """Write a job's record."""
    sqlite.execute(
        "INSERT INTO job VALUES (?, ?, ?) ON CONFLICT (id) DO UPDATE SET record = excluded.record",
        (job.id, job.begun_at.isoformat(), json.dumps(job.as_json())),
    )


def found(sqlite: sqlite3.Connection, job_id: str) -> JobRecord | None:
    """Return a job's record, or None if there is none."""
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
    """Return the jobs that were not forgotten, the latest first."""
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
    """Count the jobs that were not forgotten, at one place or at all."""
    (number,) = sqlite.execute(
        "SELECT count(*) FROM job WHERE json_extract(record, '$.state') <> ? AND "
        "(?2 IS NULL OR EXISTS (SELECT 1 FROM known_at WHERE job = job.id AND place = ?2))",
        (State.FORGOTTEN.value, place),
    ).fetchone()
    return int(number)


def place_jobs(sqlite: sqlite3.Connection, place_of: Callable[[str], str]) -> None:
    """Record the places of jobs from versions before 4, which recorded only the broker."""
    rows = sqlite.execute(
        "SELECT id, json_extract(record, '$.broker') FROM job "
        "WHERE id NOT IN (SELECT job FROM known_at)"
    ).fetchall()
    sqlite.executemany(
        "INSERT OR IGNORE INTO known_at VALUES (?, ?)",
        ((id_, place) for id_, broker in rows if (place := place_of(broker))),
    )


def waits(sqlite: sqlite3.Connection, job_id: str) -> bool:
    """Check whether a job waits for approval."""
    row = sqlite.execute(
        "SELECT 1 FROM job WHERE id = ? AND json_extract(record, '$.state') = ?",
        (job_id, State.ASKED.value),
    ).fetchone()
    return row is not None


def leave_asked(sqlite: sqlite3.Connection, place: str) -> None:
    """Record that jobs waiting for approval are no longer known to be at a place."""
    sqlite.execute(
        "DELETE FROM known_at WHERE place = ? AND job IN "
        "(SELECT id FROM job WHERE json_extract(record, '$.state') = ?)",
        (place, State.ASKED.value),
    )


def shrink(sqlite: sqlite3.Connection) -> bool:
    """Drop jobs if there are too many; return whether any were dropped.

    Jobs of the user with the most jobs go first, so that nobody's jobs are pushed out by others'.
    Of a user's jobs, the oldest go first, and those that run or wait go last.
    """
    old = [
        id_
        for (id_,) in sqlite.execute(
            "SELECT id FROM (SELECT id, row_number() OVER ("
            "PARTITION BY json_extract(record, '$.user') ORDER BY "
            "json_extract(record, '$.state') IN ('waiting', 'running', 'asked') DESC, begun_at DESC"
            ") AS rank FROM job) ORDER BY rank LIMIT -1 OFFSET ?",
            (MOST_JOBS,),
        )
    ]
    tables = (
        "handed_over",
        "under_way",
        "original",
        "left_out",
        "known_at",
        "run_before",
        "owner",
        "event",
        "run_progress",
    )
    for table in tables:
        sqlite.executemany(f"DELETE FROM {table} WHERE job = ?", ((id_,) for id_ in old))
    sqlite.executemany("DELETE FROM job WHERE id = ?", ((id_,) for id_ in old))
    return bool(old)


def handed_over(sqlite: sqlite3.Connection, job_id: str) -> int:
    """Return how many messages a job has handed to the broker in all."""
    row = sqlite.execute("SELECT messages FROM handed_over WHERE job = ?", (job_id,)).fetchone()
    return int(row[0]) if row else 0


def set_handed_over(sqlite: sqlite3.Connection, job_id: str, messages: int) -> None:
    """Write how many messages a job has handed to the broker in all."""
    sqlite.execute(
        "INSERT INTO handed_over VALUES (?, ?) ON CONFLICT (job) DO UPDATE SET messages = "
        "excluded.messages",
        (job_id, messages),
    )


def under_way(sqlite: sqlite3.Connection, job_id: str) -> Iterable[str]:
    """Iterate over the digests of a job's messages that are not known to be settled."""
    for (digest,) in sqlite.execute(
        "SELECT failure_id FROM under_way WHERE job = ? ORDER BY failure_id", (job_id,)
    ):
        yield digest


def _add_under_way(sqlite: sqlite3.Connection, job_id: str, digests: Iterable[str]) -> int:
    """Record messages in flight; return how many of them were new.

    One statement for all: each may hand over to another thread, and get its turn back late.
    """
    return sqlite.execute(
        "INSERT OR IGNORE INTO under_way SELECT ?, value FROM json_each(?)",
        (job_id, json.dumps(list(digests))),
    ).rowcount


def put_stop(sqlite: sqlite3.Connection, run: str, by: str) -> None:
    """Record a request to stop a run; the first requester is kept."""
    sqlite.execute("INSERT OR IGNORE INTO stop VALUES (?, ?)", (run, by))


def stop_asked_by(sqlite: sqlite3.Connection, run: str) -> str:
    """Return who has asked to stop a run; empty if nobody has."""
    row = sqlite.execute("SELECT by FROM stop WHERE run = ?", (run,)).fetchone()
    return "" if row is None else str(row[0])


def put_remark(sqlite: sqlite3.Connection, place: str, remark: CauseRemark) -> None:
    """Record a note on a cause at a place, once."""
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


def remarks(sqlite: sqlite3.Connection, place: str) -> Iterable[CauseRemark]:
    """Iterate over the notes on causes at a place, skipping unreadable ones."""
    for id_, at, who, user, remark in sqlite.execute(
        "SELECT id, at, who, user, remark FROM remark WHERE place = ?", (place,)
    ):
        with contextlib.suppress(ConfigurationError, ValueError, KeyError):
            yield CauseRemark.from_json(
                json.loads(remark), id_=id_, at=datetime.fromisoformat(at), who=who, user=user
            )


def is_new(sqlite: sqlite3.Connection, id_: bytes) -> bool:
    """Check whether an entry is seen for the first time, and remember it."""
    return sqlite.execute("INSERT OR IGNORE INTO seen VALUES (?)", (id_,)).rowcount == 1


def is_additive(entry: JournalEntry) -> bool:
    """Check whether an entry is valid at any place among those of its job."""
    return entry.step in _ADDITIVE or entry.step in (JobStep.READ, JobStep.REMARK)


def apply(
    sqlite: sqlite3.Connection, entry: JournalEntry, place: str = "", *, is_own: bool = False
) -> None:
    """Apply an entry of a broker and virtual host to the tables.

    Entries other than additive ones may be applied again: they describe a state, not a change. What
    this program itself reports of its run (`is_own`) is true, even if somebody else says that they
    have resumed the job: what is in flight has to be known if this program dies.
    """
    if entry.remark is not None:
        put_remark(sqlite, place, entry.remark)
        return
    known = _known(sqlite, entry)
    if known is not None and not _may_follow(entry, known):
        before = run_before(sqlite, entry.job)
        if before is not None and _is_of_run(entry, before):
            _restore_run(sqlite, before)
            known = _known(sqlite, entry)
        elif not is_own or entry.step not in _OF_ONE_RUN:
            return
    if known is None or _is_first_run(entry, known):
        _set_owner(sqlite, entry.job, entry.user)
    elif _displaces(sqlite, entry, known):
        _keep_run(sqlite, entry.job)
    put_event(sqlite, entry)
    if entry.step is JobStep.STOP:
        put_stop(sqlite, entry.run, entry.by)
    if entry.record is not None:
        _apply_record(sqlite, entry, entry.record)
    if entry.step is JobStep.SENDING:
        new = _add_under_way(sqlite, entry.job, entry.digests)
        least = handed_over(sqlite, entry.job) + new
        set_handed_over(sqlite, entry.job, max(entry.handed_over, least))
    elif entry.step in _OF_A_RUN:
        settled = _settled(sqlite, entry.job)
        _set_under_way(sqlite, entry)
        # A settled message is never sent again, whatever later entries say.
        least = settled + _count_under_way(sqlite, entry.job)
        set_handed_over(sqlite, entry.job, max(entry.handed_over, least))
    if entry.original is not None:
        _keep(sqlite, entry, entry.original)


class _Known(NamedTuple):
    """What has to be known of a job to tell whether an entry may follow."""

    state: State
    run: str
    user: str


def _known(sqlite: sqlite3.Connection, entry: JournalEntry) -> _Known | None:
    # Not the whole record: an order may name fifty thousand messages.
    row = sqlite.execute(
        "SELECT json_extract(record, '$.state', '$.run', '$.user') FROM job WHERE id = ?",
        (entry.job,),
    ).fetchone()
    if row is None:
        return None
    state, run, user = json.loads(row[0])
    return _Known(State(state), run or "", user or "")


def _is_first_run(entry: JournalEntry, known: _Known) -> bool:
    """Check whether a job begins that was only asked for, or written down, before."""
    return entry.step in (JobStep.BEGUN, JobStep.RESUMED) and known.state in (
        State.ASKED,
        State.WAITING,
    )


def _set_owner(sqlite: sqlite3.Connection, job_id: str, user: str) -> None:
    """Record whose job it is."""
    sqlite.execute("INSERT OR REPLACE INTO owner VALUES (?, ?)", (job_id, user))


def _set_under_way(sqlite: sqlite3.Connection, entry: JournalEntry) -> None:
    """Record that no other messages are in flight than those that an entry lists."""
    sqlite.execute(
        "DELETE FROM under_way WHERE job = ? "
        "AND failure_id NOT IN (SELECT value FROM json_each(?))",
        (entry.job, json.dumps(entry.digests)),
    )
    _add_under_way(sqlite, entry.job, entry.digests)


def _keep_run(sqlite: sqlite3.Connection, job_id: str) -> None:
    """Keep what is known of a run before somebody else's takes its place."""
    sqlite.execute(
        "INSERT OR REPLACE INTO run_before SELECT id, record, ?, ? FROM job WHERE id = ?",
        (handed_over(sqlite, job_id), json.dumps(list(under_way(sqlite, job_id))), job_id),
    )


def _restore_run(sqlite: sqlite3.Connection, before: JobRecord) -> None:
    """Restore the record of the job's owner, who still runs it: nobody can have resumed it."""
    known = found(sqlite, before.id)
    row = sqlite.execute(
        "SELECT handed_over, digests FROM run_before WHERE job = ?", (before.id,)
    ).fetchone()
    # What subscribers reported meanwhile is true of the job, whoever runs it.
    put(sqlite, before if known is None else before.with_known_of(known))
    set_handed_over(sqlite, before.id, int(row[0]))
    sqlite.execute("DELETE FROM under_way WHERE job = ?", (before.id,))
    _add_under_way(sqlite, before.id, json.loads(row[1]))
    drop_run_before(sqlite, before.id)
    sqlite.execute("DELETE FROM newer WHERE job = ?", (before.id,))


def _settled(sqlite: sqlite3.Connection, job_id: str) -> int:
    """Return how many messages handed to the broker are known to be settled."""
    return max(0, handed_over(sqlite, job_id) - _count_under_way(sqlite, job_id))


def _count_under_way(sqlite: sqlite3.Connection, job_id: str) -> int:
    row = sqlite.execute("SELECT count(*) FROM under_way WHERE job = ?", (job_id,)).fetchone()
    return int(row[0])


def _may_follow(entry: JournalEntry, known: _Known) -> bool:
    """Check whether an entry is valid after what is known about its job.

    A job that waits for approval can only be approved or declined. A declined or finished job stays
    so; a forgotten one does too, unless its process continues it. Only the process of a run can
    report about that run, and not after another run has begun.
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
            return entry.record is not None and may_approve(known.user, entry.user)
        case _ if known.state is State.ASKED:
            return False
        case JobStep.BEGUN | JobStep.RESUMED:
            return True
        case _ if is_additive(entry):
            return True
        case _:
            return _is_of_run(entry, known)


def _is_of_run(entry: JournalEntry, known: _Known | JobRecord) -> bool:
    return known.run == entry.run and entry.user == known.user


def _displaces(sqlite: sqlite3.Connection, entry: JournalEntry, known: _Known) -> bool:
    """Check whether an entry says that somebody resumed a job which its owner was running."""
    if entry.step not in (JobStep.BEGUN, JobStep.RESUMED) or known.state is not State.RUNNING:
        return False
    owner = sqlite.execute("SELECT user FROM owner WHERE job = ?", (entry.job,)).fetchone()
    return owner is not None and known.user == owner[0] and entry.user != known.user


def is_superseded(sqlite: sqlite3.Connection, entry: JournalEntry) -> bool:
    """Check whether an entry belongs to a run after which another run has begun."""
    known = found(sqlite, entry.job)
    return known is not None and entry.step in _OF_ONE_RUN and known.run != entry.run


def wait_again(sqlite: sqlite3.Connection, asked: JournalEntry) -> None:
    """Return a job to waiting for approval, as described by the entry that asked for it."""
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


_LISTS = ("duplicate_ids", "not_sent_ids")
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
    """Return a job's state after a step, ignoring its record except for how it ended."""
    if step is JobStep.ENDED and said not in (State.DONE, State.FAILED):
        return State.INTERRUPTED
    return _STATES.get(step, said)


def _apply_record(sqlite: sqlite3.Connection, entry: JournalEntry, record: JobRecord) -> None:
    known = found(sqlite, entry.job)
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
        # The author is not the one who asked for the job, or runs it.
        why = record.problem.partition(": ")[2]
        problem = f"{record.state.value} by {entry.by}{f': {why}' if why else ''}"
        changed_at = record.changed_at
        put(sqlite, replace(known, state=record.state, problem=problem, changed_at=changed_at))
        return
    record = record.with_known_of(known).with_order_of(known)
    if record.sent < known.sent:
        settled = _settled(sqlite, entry.job)
        record = replace(record, sent=max(record.sent, min(known.sent, settled)))
    if known.state is State.ASKED and entry.step is JobStep.RESUMED:
        # The identities of requester and approver come from the broker.
        record = replace(record, asked_by=known.by, approved_by=record.by)
    if entry.step not in WHOLE:
        # In the stream, such an entry has no lists of ids.
        ids = {name: getattr(record, name) or getattr(known, name) for name in _LISTS}
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
