"""What was done with failed messages, by whom, when and why: a file in the user's state directory
that outlives every process."""

import contextlib
import getpass
import json
import os
import socket
import sqlite3
import stat
import sys
import threading
from collections.abc import Iterable, Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Self

from redrive.amqp.properties import Properties
from redrive.errors import ConfigurationError
from redrive.failures.job_record import Job, State
from redrive.failures.stored_message import bytes_of, text_of
from redrive.topology.headers import Delivery
from redrive.topology.outcome_events import Outcomes

_SCHEMA = """
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
"""
_PATIENCE = 10.0
"""Seconds for which another process may keep the journal locked."""
_NAME = "journal.sqlite3"
_OURS_ALONE = 0o600


def default_path() -> Path:
    """Where the journal is unless told otherwise: the user's state directory."""
    from platformdirs import user_state_path

    return user_state_path("redrive", appauthor=False) / _NAME


def whoami() -> str:
    """The user of this process, and its host."""
    try:
        name = getpass.getuser()
    except (OSError, KeyError):  # a container may have a user that has no name
        name = str(os.getuid()) if hasattr(os, "getuid") else "somebody"
    return f"{name}@{socket.gethostname()}"


class Journal:
    """The journal in one file; a context manager. Several processes may use it at a time.

    Args:
        path: the file; None for the one in the user's state directory.

    Raises:
        ConfigurationError: it can't be opened, read or written.
    """

    def __init__(self, path: Path | None = None) -> None:
        self.path = path or default_path()
        self._lock = threading.Lock()
        with self._errors("opened"):
            self.path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            # Bodies may be in it: nobody else is to read them, also where the file was there with
            # other rights.
            handle = os.open(self.path, os.O_CREAT | os.O_RDWR, _OURS_ALONE)
            try:
                _tighten(handle)
            finally:
                os.close(handle)
            self._sqlite = sqlite3.connect(
                self.path, timeout=_PATIENCE, isolation_level=None, check_same_thread=False
            )
            try:
                self._sqlite.execute("PRAGMA journal_mode = WAL")
                # What is written survives this process, however it ends; waiting for the disk would
                # cost more than the messages.
                self._sqlite.execute("PRAGMA synchronous = NORMAL")
                self._sqlite.executescript(_SCHEMA)
            except BaseException:
                self._sqlite.close()
                raise

    def begin(self, job: Job) -> Job:
        """Writes down a job that begins, or is taken up again; returns it with who runs it.

        Raises:
            ConfigurationError: a process still runs it.
        """
        with self.writing() as sqlite:
            found = sqlite.execute("SELECT record FROM job WHERE id = ?", (job.id,)).fetchone()
            if found is not None and _is_alive(Job.from_json(json.loads(found[0]))):
                raise ConfigurationError(
                    f"job {job.id} is running", "Wait for its end, or stop it there with Ctrl-C."
                )
            begun = replace(
                job,
                who=whoami(),
                process=os.getpid(),
                state=State.RUNNING,
                changed_at=datetime.now(UTC),
                problem="",
            )
            _put(sqlite, begun)
        return begun

    def update(self, job: Job) -> Job:
        """Writes down how far a job is; returns it with the time."""
        with self.writing() as sqlite:
            return _update(sqlite, job)

    def heard(self, job_id: str, told: Iterable[Outcomes], failed_here: int) -> Job:
        """Add what subscribers have reported of a job, and how many of its messages are in the
        failed queue; return it."""
        with self.writing() as sqlite:
            (record,) = sqlite.execute("SELECT record FROM job WHERE id = ?", (job_id,)).fetchone()
            job = Job.from_json(json.loads(record)).with_reported(
                told, failed_here, _handed_over(sqlite, job_id)
            )
            _put(sqlite, job)
        return _as_it_is(job)

    def jobs(self, limit: int | None = None) -> list[Job]:
        """The jobs, the latest first."""
        with self._errors("read"):
            rows = self._sqlite.execute(
                "SELECT record FROM job ORDER BY begun_at DESC, rowid DESC LIMIT ?", (limit or -1,)
            ).fetchall()
        return [_as_it_is(Job.from_json(json.loads(record))) for (record,) in rows]

    def count(self) -> int:
        """Return how many jobs there are."""
        with self._errors("read"):
            (found,) = self._sqlite.execute("SELECT count(*) FROM job").fetchone()
        return int(found)

    def job(self, id_: str) -> Job:
        """The job of this id, or with an id that begins so.

        Raises:
            ConfigurationError: there is none, or several begin so.
        """
        with self._errors("read"):
            rows = self._sqlite.execute(
                "SELECT record FROM job WHERE id = ?1 OR substr(id, 1, length(?1)) = ?1 ORDER BY "
                "id <> ?1",
                (id_,),
            ).fetchall()
        found = [Job.from_json(json.loads(record)) for (record,) in rows]
        if not found or not id_:
            raise ConfigurationError(
                f"there is no job {id_!r} in {self.path}", "See: redrive jobs list."
            )
        if found[0].id != id_ and len(found) > 1:
            raise ConfigurationError(
                f"{id_!r} stands for {len(found)} jobs",
                f"Give one of {', '.join(job.id for job in found[:5])}.",
            )
        return _as_it_is(found[0])

    def under_way(self, job_id: str) -> set[str]:
        """The digests of messages of which a job had not written down that they were settled.

        A job of redrive 0.1 has written failure ids in their place.
        """
        with self._errors("read"):
            return {
                found
                for (found,) in self._sqlite.execute(
                    "SELECT failure_id FROM under_way WHERE job = ?", (job_id,)
                )
            }

    def handed_over(self, job_id: str) -> int:
        """Return how many messages a job has handed to the broker in all."""
        with self._errors("read"):
            return _handed_over(self._sqlite, job_id)

    def take_up(self, job: Job) -> Job:
        """A job begins anew, with what it has sent and what may be there twice: what else was under
        way is in the failed queue, and will be sent again. It is written down as one: a job that is
        killed before it sends anything has forgotten nothing.
        """
        with self.writing() as sqlite:
            sqlite.execute("DELETE FROM under_way WHERE job = ?", (job.id,))
            sqlite.execute("UPDATE handed_over SET messages = ? WHERE job = ?", (job.sent, job.id))
            return _update(sqlite, job)

    def keep(self, job_id: str, failure_id: str, delivery: Delivery) -> None:
        """Keeps a message as it was before a job changed it."""
        row = (
            job_id,
            failure_id,
            delivery.queue,
            *map(bytes_of, (delivery.exchange, delivery.routing_key)),
        )
        with self.writing() as sqlite:
            sqlite.execute(
                "INSERT INTO original VALUES (?, ?, ?, ?, ?, ?, ?)",
                (*row, delivery.properties.encode(), delivery.body),
            )

    def originals(self, job_id: str) -> Iterator[Delivery]:
        """The messages of a job as they were before it changed them."""
        with self._errors("read"):
            rows = self._sqlite.execute(
                "SELECT queue, exchange, routing_key, properties, body FROM original WHERE job = ? "
                "ORDER BY rowid",
                (job_id,),
            )
            for queue, exchange, key, properties, body in rows:
                yield Delivery(
                    queue, text_of(exchange), text_of(key), Properties.parse(properties), body
                )

    def close(self) -> None:
        """Closes the file."""
        self._sqlite.close()

    @contextlib.contextmanager
    def writing(self) -> Iterator[sqlite3.Connection]:
        """What is written in the block is in the journal when it ends, or none of it."""
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
            raise ConfigurationError(
                f"the journal {str(self.path)!r} can't be {what}: {error}",
                "Name another one with --journal.",
            ) from error

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _tighten(handle: int) -> None:
    """Takes the rights on a file from everybody but its user."""
    if sys.platform != "win32" and stat.S_IMODE(os.fstat(handle).st_mode) & ~_OURS_ALONE:
        with contextlib.suppress(PermissionError):  # it is another user's
            os.fchmod(handle, _OURS_ALONE)


def _update(sqlite: sqlite3.Connection, job: Job) -> Job:
    """Writes down how far a job is; returns it with the time."""
    changed = replace(job, changed_at=datetime.now(UTC))
    found = sqlite.execute("SELECT record FROM job WHERE id = ?", (job.id,)).fetchone()
    if found is not None:
        # Another process may have asked meanwhile what became of its messages.
        changed = changed.with_known_of(Job.from_json(json.loads(found[0])))
    _put(sqlite, changed)
    return changed


def _handed_over(sqlite: sqlite3.Connection, job_id: str) -> int:
    found = sqlite.execute("SELECT messages FROM handed_over WHERE job = ?", (job_id,)).fetchone()
    return int(found[0]) if found else 0


def _put(sqlite: sqlite3.Connection, job: Job) -> None:
    sqlite.execute(
        "INSERT INTO job VALUES (?, ?, ?) ON CONFLICT (id) DO UPDATE SET record = excluded.record",
        (job.id, job.begun_at.isoformat(), json.dumps(job.as_json())),
    )


def _as_it_is(job: Job) -> Job:
    """A job whose process died without a word was interrupted."""
    return (
        replace(job, state=State.INTERRUPTED)
        if job.state is State.RUNNING and not _is_alive(job)
        else job
    )


def _is_alive(job: Job) -> bool:
    """Whether the job's process runs, as far as this host can tell."""
    if job.state is not State.RUNNING:
        return False
    if job.who.rpartition("@")[2] != socket.gethostname():
        return True
    if job.process == os.getpid():
        return False
    if sys.platform == "win32":
        return False  # there is no way to ask that does not end the process
    try:
        os.kill(job.process, 0)
    except OSError as error:
        return not isinstance(error, ProcessLookupError)
    return True
