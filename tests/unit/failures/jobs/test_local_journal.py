"""The journal of jobs: what it keeps, for whom, and what it says where it can't."""

import contextlib
import gc
import json
import os
import sqlite3
import stat
import subprocess
import sys
import uuid
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from deliveries import failed
from failed_deliveries import failed_deliveries
from redrive.errors import ConfigurationError
from redrive.failures.jobs import journal_tables
from redrive.failures.jobs.job_record import JobOutcome, JobRecord, State
from redrive.failures.jobs.job_stop import running_on
from redrive.failures.jobs.journal_entry import JobStep, JournalEntry
from redrive.failures.jobs.local_journal import LocalJournal, UnsavedJournal, default_path
from redrive.failures.jobs.requeue_job import JournalDeliveries
from redrive.failures.queue.canary import Guards, Unknown
from redrive.failures.queue.order import Order
from redrive.failures.store.filter import Filter
from redrive.failures.store.operator_name import whoami
from redrive.topology.headers import Delivery
from redrive.topology.names import ExchangeFamily
from redrive.topology.outcome_events import Outcomes

JOB = JobRecord(
    "job-1",
    "requeue",
    "ucenter@user",
    "amqp://guest@host:5672/%2F",
    Order(Filter("size > 1"), 5).as_json(),
    reason="fixed",
    planned=7,
)


COUNTS = ("sent", "handled", "failed_told", "failed_here", "retrying_told", "retried_told")
"""What a journal counts of a job."""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "state" / "journal.sqlite3"


def test_a_job_is_kept_with_who_ran_it(path: Path) -> None:
    with LocalJournal(path) as journal:
        journal.update(replace(journal.begin(JOB), sent=3, state=State.DONE))
    with LocalJournal(path) as journal:
        (job,) = journal.jobs()
    assert (job.id, job.sent, job.state, job.who, job.reason) == (
        "job-1",
        3,
        State.DONE,
        whoami(),
        "fixed",
    )
    assert Order.from_json(job.order) == Order(
        Filter("size > 1", frozenset(), (), Order.from_json(JOB.order).filter.now), 5
    )


def test_a_journal_that_nobody_closes_leaves_nothing_open() -> None:
    journal = UnsavedJournal()
    sqlite = journal._sqlite
    del journal
    gc.collect()
    with pytest.raises(sqlite3.ProgrammingError, match="closed"):
        sqlite.execute("SELECT 1")


def test_only_its_user_can_read_the_journal(path: Path) -> None:
    LocalJournal(path).close()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700


@pytest.mark.parametrize("mode", [0o600, 0o644])
def test_whoever_opens_it_besides_takes_no_lock_from_another(path: Path, mode: int) -> None:
    program = (
        "import sys; from pathlib import Path;"
        "from redrive.failures.jobs.job_record import JobRecord;"
        "from redrive.failures.jobs.local_journal import LocalJournal;"
        "journal = LocalJournal(Path(sys.argv[1]));"
        "journal.begin(JobRecord('job-2', 'requeue', 'q', 'b')); journal.close()"
    )
    with LocalJournal(path) as journal:
        journal.begin(JOB)
        path.chmod(mode)
        LocalJournal(path).close()
        subprocess.run([sys.executable, "-c", program, str(path)], check=True, timeout=60)
        # The other process would have deleted it, as the last one that has the journal open.
        assert path.with_name(f"{path.name}-wal").exists()
        journal.begin(replace(JOB, id="job-3"))
    with LocalJournal(path) as journal:
        assert {job.id for job in journal.jobs()} == {"job-1", "job-2", "job-3"}


def test_a_job_is_found_by_the_beginning_of_its_id(path: Path) -> None:
    with LocalJournal(path) as journal:
        whole = str(uuid.uuid4())
        for id_ in ("abc1", "abc2", "abc", "x%", whole, f"{whole}-of-another"):
            journal.begin(replace(JOB, id=id_))
        for given, found in (("abc1", "abc1"), ("x", "x%"), (whole, whole)):
            assert journal.job(given).id == found
        # A short id may have been made up to be taken for the beginning of others.
        for wrong in ("abc", "ab", "", "y", "%", "_"):
            with pytest.raises(ConfigurationError):
                journal.job(wrong)


def test_the_latest_job_comes_first(path: Path) -> None:
    with LocalJournal(path) as journal:
        for id_ in "abc":
            journal.begin(replace(JOB, id=id_))
        assert [job.id for job in journal.jobs(2)] == ["c", "b"]


def test_a_job_whose_process_has_died_was_interrupted(path: Path) -> None:
    program = (
        "import sys; from pathlib import Path;"
        "from redrive.failures.jobs.job_record import JobRecord;"
        "from redrive.failures.jobs.local_journal import LocalJournal;"
        "LocalJournal(Path(sys.argv[1])).begin(JobRecord('job-1', 'requeue', 'q', 'b'))"
    )
    subprocess.run([sys.executable, "-c", program, str(path)], check=True, timeout=60)
    with LocalJournal(path) as journal:
        assert journal.job("job-1").state is State.INTERRUPTED
        journal.begin(journal.job("job-1"))


def test_a_job_that_another_process_runs_can_not_be_taken_up(path: Path) -> None:
    with LocalJournal(path) as journal:
        begun = journal.begin(JOB)
        journal.update(replace(begun, process=os.getppid()))
        assert journal.job("job-1").state is State.RUNNING
        with pytest.raises(ConfigurationError, match="is running"):
            journal.begin(JOB)


def test_what_is_on_its_way_is_known_after_a_kill(path: Path) -> None:
    with LocalJournal(path) as journal:
        ledger = JournalDeliveries(journal, "job-1")
        ledger.sending(["a", "b", "c"])
        ledger.settled(["b"])
        ledger.sending(["c", "d"])  # c again, after its connection was lost
    with LocalJournal(path) as journal:
        assert journal.under_way("job-1") == {"a", "c", "d"}
        assert journal.handed_over("job-1") == 4
        journal.take_up(replace(journal.begin(JOB), sent=2, possible_duplicates=2))
    with LocalJournal(path) as journal:
        assert journal.job("job-1").possible_duplicates == 2
        assert journal.under_way("job-1") == set()
        assert journal.handed_over("job-1") == 2
        assert journal.handed_over("job-2") == 0


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=20)
@given(delivery=failed_deliveries())
def test_an_original_comes_back_byte_for_byte(path: Path, delivery: Delivery) -> None:
    with LocalJournal(path) as journal:
        job = str(sum(1 for _ in journal.originals("count")))
        journal.keep("count", "x", failed())
        journal.keep(job + "-job", "f", delivery)
        (kept,) = journal.originals(job + "-job")
    assert kept == delivery
    assert kept.properties.encode() == delivery.properties.encode()


def test_what_became_of_messages_is_added_up_and_survives_the_job_itself(path: Path) -> None:
    with LocalJournal(path) as journal:
        job = journal.begin(JOB)
        journal.heard(
            "job-1", [Outcomes("job-1", "q", 2, 1), Outcomes("job-1", "q", retrying=4)], 0
        )
        heard = journal.heard("job-1", [Outcomes("job-1", "q", 3, 0, handled_after_retry=2)], 2)
        assert (heard.handled, heard.failed_told, heard.failed_here) == (5, 1, 2)
        updated = journal.update(replace(job, sent=10))
        assert updated.outcome == JobOutcome(5, 2, 2, 1)


def test_what_is_retrying_and_what_is_unknown_are_never_more_than_what_is_left() -> None:
    lost = replace(
        JOB, sent=5, handled=2, failed_here=2, retrying_told=4
    )  # the event that two of them failed for good was lost
    assert lost.outcome == JobOutcome(2, 1, 2, 0)
    assert lost.reported_twice == 0


@given(**dict.fromkeys(COUNTS, st.integers(0, 20)))
def test_the_outcomes_of_a_job_add_up_to_what_it_sent_whatever_was_reported(**counts: int) -> None:
    job = replace(JOB, **counts)  # type: ignore[arg-type]
    assert sum(job.outcome) == job.sent
    assert min(job.outcome) >= 0
    assert job.reported_twice >= 0


def test_an_outcome_too_many_is_counted_apart_and_a_failure_before_a_success() -> None:
    twice = replace(JOB, sent=5, handled=7)
    assert twice.outcome == JobOutcome(5, 0, 0, 0)
    assert twice.reported_twice == 2
    both = replace(JOB, sent=5, handled=5, failed_here=2)
    assert both.outcome == JobOutcome(3, 0, 2, 0)
    assert both.reported_twice == 2


def test_what_is_known_to_be_handled_was_sent_by_a_job_that_was_killed_before_it_counted_it(
    path: Path,
) -> None:
    with LocalJournal(path) as journal:
        journal.update(replace(journal.begin(JOB), sent=10))
        JournalDeliveries(journal, "job-1").sending([str(number) for number in range(30)])
        heard = journal.heard("job-1", [Outcomes("job-1", "q", 20)], 1)
        assert (heard.sent, heard.reported_twice) == (21, 0)
        assert heard.outcome == JobOutcome(20, 0, 1, 0)
        # It can have sent no more than it handed over: what is told besides was delivered twice.
        heard = journal.heard("job-1", [Outcomes("job-1", "q", 15)], 1)
        assert (heard.sent, heard.reported_twice) == (30, 6)
        assert heard.outcome == JobOutcome(29, 0, 1, 0)


OLD_RECORD = {
    "id": "3f2a9c1e-old",
    "kind": "requeue",
    "queue": "ucenter@user",
    "broker": "amqp://guest@host:5672/%2F",
    "order": {
        "selection": {
            "where": "size > 1",
            "ids": [],
            "groups": [],
            "now": "2026-11-21T15:08:48+00:00",
        },
        "limit": None,
        "to": None,
        "rate": None,
        "canary": 20,
        "watch": 60.0,
        "stop_at": 0.05,
        "force": False,
        "patch": None,
        "function": None,
        "edits": {},
    },
    "who": "root@vm",
    "reason": "",
    "begun_at": "2026-11-21T15:08:48+00:00",
    "changed_at": "2026-11-21T15:09:48+00:00",
    "process": 1,
    "state": "stopped",
    "planned": 200,
    "sent": 20,
    "possible_duplicates": 0,
    "not_sent": 0,
    "handled": 3,
    "failed_told": 2,
    "failed_here": 2,
    "file": "",
    "problem": "2 of the first 20 failed again",
}
"""A record as the first version wrote it."""


def write_as_the_first_version_did(path: Path, record: dict[str, object]) -> None:
    path.parent.mkdir(parents=True)
    with contextlib.closing(sqlite3.connect(path)) as sqlite, sqlite:
        sqlite.execute(
            "CREATE TABLE job (id TEXT PRIMARY KEY, begun_at TEXT NOT NULL, record TEXT NOT NULL)"
        )
        sqlite.execute(
            "INSERT INTO job VALUES (?, ?, ?)",
            (record["id"], record["begun_at"], json.dumps(record)),
        )


def test_a_journal_of_the_first_version_still_opens_and_its_jobs_go_on(path: Path) -> None:
    write_as_the_first_version_did(path, OLD_RECORD)
    with LocalJournal(path) as journal:
        job = journal.job("3f2a")
        order = Order.from_json(job.order)
        assert order.guards == Guards(20, timedelta(minutes=1), 0.05, Unknown.STOP)
        assert job.family is None
        assert job.outcome == JobOutcome(3, 0, 2, 15)
        begun = journal.begin(job)
        journal.update(replace(begun, sent=30, exchanges=ExchangeFamily("shop").as_json()))
        assert journal.job("3f2a").family == ExchangeFamily("shop")


@pytest.mark.parametrize(
    "family",
    [ExchangeFamily(), ExchangeFamily("shop", "@retry", "@failed", timedelta(milliseconds=250))],
    ids=["usual", "own"],
)
def test_the_whole_exchange_family_is_kept_with_a_job(path: Path, family: ExchangeFamily) -> None:
    with LocalJournal(path) as journal:
        journal.begin(replace(JOB, exchanges=family.as_json()))
    with LocalJournal(path) as journal:
        assert journal.job("job-1").family == family


def test_a_family_that_was_damaged_in_the_journal_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="the stored exchange family is invalid"):
        _ = replace(JOB, exchanges={"main": 5}).family


@pytest.mark.parametrize("content", [b"hello" * 1000, b"\0" * 5000])
def test_a_file_that_is_no_journal_is_said_to_be_none(path: Path, content: bytes) -> None:
    path.parent.mkdir()
    path.write_bytes(content)
    with pytest.raises(ConfigurationError, match="--journal"):
        LocalJournal(path)


def test_a_file_that_is_no_journal_is_not_kept_open(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path.parent.mkdir()
    path.write_bytes(b"hello" * 1000)
    opened: list[sqlite3.Connection] = []
    connect = sqlite3.connect

    def remembered(*arguments: Any, **options: Any) -> sqlite3.Connection:
        opened.append(connect(*arguments, **options))
        return opened[-1]

    monkeypatch.setattr(sqlite3, "connect", remembered)
    with pytest.raises(ConfigurationError):
        LocalJournal(path)

    (connection,) = opened
    with pytest.raises(sqlite3.ProgrammingError, match="closed"):
        connection.execute("SELECT 1")


def test_a_journal_that_can_not_be_written_is_an_error_that_helps(path: Path) -> None:
    with LocalJournal(path) as journal:
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


@pytest.mark.parametrize(("minutes", "state"), [(4, State.RUNNING), (6, State.INTERRUPTED)])
def test_a_job_of_another_machine_that_is_silent_for_minutes_was_interrupted(
    tmp_path: Path, minutes: int, state: State
) -> None:
    with LocalJournal(tmp_path / "journal.sqlite3") as journal:
        job = journal.begin(JobRecord("job-1", "requeue", "shop@orders", "amqp://localhost/"))
        heard_of = datetime.now(UTC) - timedelta(minutes=minutes)
        with journal.writing() as sqlite:
            journal_tables.put(sqlite, replace(job, who="ops@not-there", changed_at=heard_of))
        assert journal.job("job-1").state is state
        assert (running_on(journal, "shop@orders") is None) == (state is State.INTERRUPTED)


def test_a_job_that_nobody_runs_can_be_forgotten_and_is_neither_listed_nor_run(
    tmp_path: Path,
) -> None:
    with LocalJournal(tmp_path / "journal.sqlite3") as journal:
        job = journal.begin(JobRecord("job-1", "requeue", "shop@orders", "amqp://localhost/"))
        assert journal.forget(job, "no such machine").problem.endswith(": no such machine")
        assert (journal.jobs(), journal.count()) == ([], 0)
        assert journal.job("job-1").state is State.FORGOTTEN
        with pytest.raises(ConfigurationError, match="was forgotten by"):
            journal.begin(job)


def test_twenty_thousand_jobs_cost_what_is_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[str] = []
    known = JobRecord.from_json
    with LocalJournal(tmp_path / "journal.sqlite3") as journal:
        with journal.writing() as sqlite:
            for number in range(20_000):
                state = State.DONE if number else State.RUNNING
                queue = "shop@orders" if number % 2 else "crm@users"
                journal_tables.put(
                    sqlite, JobRecord(str(number), "requeue", queue, "b", state=state)
                )

        def reading(values: Mapping[str, object]) -> JobRecord:
            read.append(str(values["id"]))
            return known(values)

        monkeypatch.setattr(JobRecord, "from_json", reading)
        assert len(journal.jobs(20)) == 20
        assert journal.count() == 20_000
        assert journal.jobs(queue="crm@users", state=State.RUNNING)[0].id == "0"
    assert len(read) == 21


class TellingJournal(LocalJournal):
    """A journal whose entries others read."""

    _user = "anna"

    def __init__(self) -> None:
        self.told: list[bytes] = []
        super().__init__(Path(":memory:"))

    def _opened(self) -> sqlite3.Connection:
        return sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)

    def _share(self, sqlite: sqlite3.Connection, entry: JournalEntry, *, firm: bool) -> None:
        self.told.append(entry.encode())


TABLES = ("job", "handed_over", "under_way", "original", "event", "owner", "stop", "run_before")
DIGESTS = [f"{number:064x}" for number in range(12)]
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("sending"), st.sets(st.sampled_from(DIGESTS), min_size=1)),
        st.tuples(st.just("settled"), st.sets(st.sampled_from(DIGESTS), min_size=1)),
        st.tuples(st.just("update"), st.integers(0, 50)),
        st.tuples(st.just("heard"), st.integers(0, 5)),
        st.tuples(st.sampled_from(["judge", "keep", "stop", "resume", "take up"]), st.just(0)),
    ),
    max_size=20,
)


@given(STEPS, st.sampled_from([State.DONE, State.STOPPED, State.FAILED, State.INTERRUPTED]))
def test_others_know_of_a_job_what_its_own_file_has(
    steps: list[tuple[str, Any]], end: State
) -> None:
    with TellingJournal() as journal:
        job = journal.begin(JOB)
        for step, what in steps:
            match step:
                case "sending":
                    journal.sending(job.id, sorted(what))
                case "settled":
                    journal.settled(job.id, sorted(what))
                case "update":
                    job = journal.update(replace(job, sent=max(job.sent, what)))
                case "heard":
                    journal.heard(job.id, [Outcomes("job-1", "ucenter@user", what, 0)], what)
                case "judge":
                    journal.judge(job)
                case "keep":
                    journal.keep(job.id, "id-1", failed())
                case "stop":
                    journal.ask_to_stop_again(job)
                case "take up":
                    job = journal.take_up(replace(job, sent=journal.handed_over(job.id)))
                case _:
                    journal.update(replace(job, state=State.INTERRUPTED))
                    job = journal.begin(journal.job(job.id))
        journal.update(replace(job, state=end, duplicate_ids=["id-1"]))
        with contextlib.closing(sqlite3.connect(":memory:")) as elsewhere:
            elsewhere.executescript(journal_tables.SCHEMA)
            for body in journal.told:
                journal_tables.apply(elsewhere, JournalEntry.decode(body, "anna"))
            with journal.writing() as here:
                for table in TABLES:
                    rows = [
                        sorted(one.execute(f"SELECT * FROM {table}").fetchall())
                        for one in (here, elsewhere)
                    ]
                    assert rows[0] == rows[1], table


def test_a_batch_costs_the_same_however_many_are_in_flight(tmp_path: Path) -> None:
    costs: list[int] = []

    def count() -> None:
        costs[-1] += 1

    with LocalJournal(tmp_path / "journal.sqlite3") as journal:
        job = journal.begin(JOB)
        with journal.writing() as sqlite:
            sqlite.set_progress_handler(count, 10)
        for batch in range(60):
            costs.append(0)
            numbers = range(batch * 100, batch * 100 + 100)
            journal.sending(job.id, [f"{number * 7919 % 10**6:064x}" for number in numbers])
    assert costs[-1] < 2 * costs[1]


def test_what_is_in_flight_is_known_though_somebody_is_said_to_have_resumed_the_job(
    tmp_path: Path,
) -> None:
    with LocalJournal(tmp_path / "journal.sqlite3") as journal:
        job = journal.begin(JOB)
        with journal.writing() as sqlite:
            resumed = JournalEntry(JobStep.RESUMED, job.id, record=replace(job, run="another"))
            journal_tables.apply(sqlite, resumed)
        assert journal.job(job.id).run == "another"
        journal.sending(job.id, DIGESTS[:2])
        assert journal.under_way(job.id) == set(DIGESTS[:2])
        journal.update(replace(job, sent=2, state=State.DONE))
        assert journal.job(job.id).sent == 2


def test_a_job_that_is_done_is_not_begun_again(tmp_path: Path) -> None:
    with LocalJournal(tmp_path / "journal.sqlite3") as journal:
        job = journal.begin(JOB)
        journal.update(replace(job, state=State.DONE))
        with pytest.raises(ConfigurationError, match="job job-1 is done"):
            journal.begin(job)
