"""The journal of jobs: what it keeps, for whom, and what it says where it can't."""

import contextlib
import os
import sqlite3
import stat
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from deliveries import failed
from hypothesis import HealthCheck, given, settings
from test_failure_columns import failed_deliveries

from redrive.errors import ConfigurationError
from redrive.failures.journal import Journal, default_path, whoami
from redrive.failures.ledger import JournalLedger
from redrive.failures.order import Order
from redrive.failures.record import Job, State
from redrive.failures.selection import Selection
from redrive.topology.headers import Delivery

JOB = Job(
    "job-1", "requeue", "ucenter@user", "amqp://guest@host:5672/%2F", Order(Selection("size > 1"), 5).as_json(), reason="fixed", planned=7
)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "state" / "journal.sqlite3"


def test_a_job_is_kept_with_who_ran_it(path: Path) -> None:
    with Journal(path) as journal:
        journal.update(replace(journal.begin(JOB), sent=3, state=State.DONE))
    with Journal(path) as journal:
        (job,) = journal.jobs()
    assert (job.id, job.sent, job.state, job.who, job.reason) == ("job-1", 3, State.DONE, whoami(), "fixed")
    assert Order.from_json(job.order) == Order(Selection("size > 1", frozenset(), (), Order.from_json(JOB.order).selection.now), 5)


def test_only_its_user_can_read_the_journal(path: Path) -> None:
    Journal(path).close()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700


def test_a_job_is_found_by_the_beginning_of_its_id(path: Path) -> None:
    with Journal(path) as journal:
        for id_ in ("abc1", "abc2", "abc", "x%"):
            journal.begin(replace(JOB, id=id_))
        assert [journal.job(id_).id for id_ in ("abc1", "abc", "x")] == ["abc1", "abc", "x%"]
        for wrong in ("ab", "", "y", "%", "_"):
            with pytest.raises(ConfigurationError):
                journal.job(wrong)


def test_the_latest_job_comes_first(path: Path) -> None:
    with Journal(path) as journal:
        for id_ in "abc":
            journal.begin(replace(JOB, id=id_))
        assert [job.id for job in journal.jobs(2)] == ["c", "b"]


def test_a_job_whose_process_has_died_was_interrupted(path: Path) -> None:
    program = (
        "import sys; from pathlib import Path; from redrive.failures.journal import Journal; from redrive.failures.record import Job;"
        "Journal(Path(sys.argv[1])).begin(Job('job-1', 'requeue', 'q', 'b'))"
    )
    subprocess.run([sys.executable, "-c", program, str(path)], check=True, timeout=60)
    with Journal(path) as journal:
        assert journal.job("job-1").state is State.INTERRUPTED
        journal.begin(journal.job("job-1"))


def test_a_job_that_another_process_runs_can_not_be_taken_up(path: Path) -> None:
    with Journal(path) as journal:
        begun = journal.begin(JOB)
        journal.update(replace(begun, process=os.getppid()))
        assert journal.job("job-1").state is State.RUNNING
        with pytest.raises(ConfigurationError, match="is running"):
            journal.begin(JOB)


def test_what_is_on_its_way_is_known_after_a_kill(path: Path) -> None:
    with Journal(path) as journal:
        ledger = JournalLedger(journal, "job-1")
        ledger.sending(["a", "b", "c"])
        ledger.settled(["b"])
        ledger.sending(["c", "d"])  # c again, after its connection was lost
    with Journal(path) as journal:
        assert journal.under_way("job-1") == {"a", "c", "d"}
        assert journal.handed_over("job-1") == 4
        journal.take_up(replace(journal.begin(JOB), sent=2, possible_duplicates=2))
    with Journal(path) as journal:
        assert journal.job("job-1").possible_duplicates == 2
        assert journal.under_way("job-1") == set()
        assert journal.handed_over("job-1") == 2
        assert journal.handed_over("job-2") == 0


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=20)
@given(delivery=failed_deliveries())
def test_an_original_comes_back_byte_for_byte(path: Path, delivery: Delivery) -> None:
    with Journal(path) as journal:
        job = str(sum(1 for _ in journal.originals("count")))
        journal.keep("count", "x", failed())
        journal.keep(job + "-job", "f", delivery)
        (kept,) = journal.originals(job + "-job")
    assert kept == delivery
    assert kept.properties.encode() == delivery.properties.encode()


def test_what_became_of_messages_is_added_up_and_survives_the_job_itself(path: Path) -> None:
    with Journal(path) as journal:
        job = journal.begin(JOB)
        journal.heard("job-1", 2, 1, 0)
        heard = journal.heard("job-1", 3, 0, 2)
        assert (heard.handled, heard.failed_told, heard.failed_here, heard.failed_again) == (5, 1, 2, 2)
        updated = journal.update(replace(job, sent=10))
        assert (updated.handled, updated.failed_again, updated.on_the_way) == (5, 2, 3)


@pytest.mark.parametrize("content", [b"hello" * 1000, b"\0" * 5000])
def test_a_file_that_is_no_journal_is_said_to_be_none(path: Path, content: bytes) -> None:
    path.parent.mkdir()
    path.write_bytes(content)
    with pytest.raises(ConfigurationError, match="--journal"):
        Journal(path)


def test_a_file_that_is_no_journal_is_not_kept_open(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path.parent.mkdir()
    path.write_bytes(b"hello" * 1000)
    opened: list[sqlite3.Connection] = []
    connect = sqlite3.connect

    def remembered(*arguments: Any, **options: Any) -> sqlite3.Connection:
        opened.append(connect(*arguments, **options))
        return opened[-1]

    monkeypatch.setattr(sqlite3, "connect", remembered)
    with pytest.raises(ConfigurationError):
        Journal(path)

    (connection,) = opened
    with pytest.raises(sqlite3.ProgrammingError, match="closed"):
        connection.execute("SELECT 1")


def test_a_journal_that_can_not_be_written_is_an_error_that_helps(path: Path) -> None:
    with Journal(path) as journal:
        with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as blocker:
            blocker.execute("BEGIN EXCLUSIVE")
            journal._sqlite.execute("PRAGMA busy_timeout = 10")
            with pytest.raises(ConfigurationError, match="can't be written"):
                journal.begin(JOB)
        journal.begin(JOB)


def test_the_journal_is_in_the_users_state_directory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setenv("XDG_STATE_HOME", "/state")
    assert default_path() == Path("/state/redrive/journal.sqlite3")
    monkeypatch.delenv("XDG_STATE_HOME")
    monkeypatch.setenv("HOME", "/home/somebody")
    assert default_path() == Path("/home/somebody/.local/state/redrive/journal.sqlite3")
