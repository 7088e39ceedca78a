"""The tables of the local journal: what an entry changes in them, whoever has written it, and that
a file of a newer version is left alone."""

import sqlite3
import uuid
from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from redrive.errors import ConfigurationError
from redrive.failures.jobs import journal_tables
from redrive.failures.jobs.job_record import JobRecord, State
from redrive.failures.jobs.journal_entry import WITH_RECORD, JobStep, JournalEntry
from redrive.failures.jobs.local_journal import LocalJournal
from redrive.failures.queue.order import Order
from redrive.failures.store.filter import Filter


def test_a_file_of_a_newer_version_is_told_of_in_a_line_and_left_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "journal.sqlite3"
    with closing(sqlite3.connect(path)) as sqlite:
        sqlite.execute(f"PRAGMA user_version = {journal_tables.VERSION + 1}")
        sqlite.execute("CREATE TABLE stranger (name TEXT)")
    with pytest.raises(ConfigurationError) as refused:
        LocalJournal(path)
    assert str(refused.value).splitlines() == [
        f"the journal {str(path)!r} was written by a newer version of redrive",
        "Use that version, or name another file with --journal.",
    ]
    with closing(sqlite3.connect(path)) as sqlite:
        names = {name for (name,) in sqlite.execute("SELECT name FROM sqlite_master")}
    assert names == {"stranger"}


def test_an_entry_is_new_only_once() -> None:
    with closing(sqlite3.connect(":memory:")) as sqlite:
        sqlite.executescript(journal_tables.SCHEMA)
        assert [journal_tables.is_new(sqlite, b"id") for _ in range(3)] == [True, False, False]


def test_a_timeline_has_what_happened_to_a_job_here_and_elsewhere(tmp_path: Path) -> None:
    job = JobRecord(str(uuid.uuid4()), "requeue", "shop@orders", "amqp://localhost/", planned=2)
    with LocalJournal(tmp_path / "journal.sqlite3") as journal:
        begun = journal.begin(job)
        journal.sending(job.id, ["ab" * 16])
        journal.judge(begun)
        stopped = journal.update(replace(begun, state=State.STOPPED, problem="1 of 1 failed"))
        elsewhere = JournalEntry(JobStep.RESUMED, job.id, "ben@laptop", record=stopped)
        with journal.writing() as sqlite:
            journal_tables.apply(sqlite, elsewhere)
            journal_tables.apply(sqlite, elsewhere)
        events = journal.events(job.id)
    assert [one.step for one in events] == [
        *(JobStep.BEGUN, JobStep.CANARY, JobStep.STOPPED, JobStep.RESUMED)
    ]
    assert (events[2].state, events[2].problem) == ("stopped", "1 of 1 failed")


ORDER = Order(Filter("error_type = 'KeyError'"), limit=2)
ASKED = JobRecord(
    str(uuid.uuid4()),
    "requeue",
    "shop@orders",
    "amqp://localhost/",
    ORDER.as_json(),
    who="anna@laptop",
    state=State.ASKED,
    planned=2,
    plan={"fingerprint": "f" * 16},
)
CHANGES: list[dict[str, object]] = [
    {"order": replace(ORDER, patch="{}").as_json()},
    {"order": replace(ORDER, filter=Filter()).as_json()},
    {"planned": 30},
    {"plan": {"fingerprint": "e" * 16}},
    {"queue": "payroll@salaries"},
    {"who": "carol@desk", "asked_by": "carol@desk", "approved_by": "dave@desk"},
    {"state": State.DONE},
]


def entry(step: JobStep, user: str, run: str = "", **changes: Any) -> JournalEntry:
    """An entry that somebody has written, whose record says what they like."""
    record = replace(ASKED, run=run, **changes) if step in WITH_RECORD else None
    return JournalEntry(step, ASKED.id, f"{user}@desk", user, run=run, record=record)


def after(*entries: JournalEntry) -> JobRecord:
    """The job after these entries."""
    with closing(sqlite3.connect(":memory:")) as sqlite:
        sqlite.executescript(journal_tables.SCHEMA)
        for one in entries:
            journal_tables.apply(sqlite, one)
        found = journal_tables.found(sqlite, ASKED.id)
    assert found is not None
    return found


DIGESTS = tuple(f"{number:064x}" for number in range(40))
OF_ANNA = entry(JobStep.ASKED, "anna")
WAITS = after(OF_ANNA)


@pytest.mark.parametrize("change", CHANGES, ids=min)
@pytest.mark.parametrize("user", ["anna", "mallory", ""])
def test_nothing_but_an_answer_changes_a_job_that_waits_for_an_approval(
    change: dict[str, Any], user: str
) -> None:
    for step in set(JobStep) - {JobStep.RESUMED, JobStep.DECLINED, JobStep.READ, JobStep.REMARK}:
        assert after(OF_ANNA, entry(step, user, **change)) == WAITS, step


@pytest.mark.parametrize("change", CHANGES, ids=min)
def test_who_approves_a_job_changes_neither_what_it_sends_nor_who_has_asked(
    change: dict[str, Any],
) -> None:
    approved = after(OF_ANNA, entry(JobStep.RESUMED, "ben", **{"state": State.RUNNING, **change}))
    assert (approved.digest, approved.asked_by) == (WAITS.digest, "anna@laptop as anna")
    assert approved.approved_by.endswith("as ben")


@pytest.mark.parametrize("user", ["anna", ""])
def test_neither_who_has_asked_nor_nobody_approves(user: str) -> None:
    assert after(OF_ANNA, entry(JobStep.RESUMED, user, state=State.RUNNING)) == WAITS


def test_what_nobody_vouches_for_is_approved_by_nobody() -> None:
    asked = entry(JobStep.ASKED, "", who="ben@desk")
    assert after(asked, entry(JobStep.RESUMED, "anna", state=State.RUNNING)) == after(asked)


def test_a_job_that_was_declined_stays_so() -> None:
    declined = (OF_ANNA, entry(JobStep.DECLINED, "ben", state=State.DECLINED))
    for step in WITH_RECORD - {JobStep.HEARD}:
        assert after(*declined, entry(step, "carol", state=State.RUNNING)) == after(*declined)


@pytest.mark.parametrize("change", CHANGES, ids=min)
def test_no_step_of_a_job_changes_what_it_sends(change: dict[str, Any]) -> None:
    begun = entry(JobStep.BEGUN, "anna", "first", state=State.RUNNING)
    for step in WITH_RECORD:
        changed = after(begun, entry(step, "anna", "first", **change))
        assert changed.digest == ASKED.digest, step


def test_only_who_runs_a_job_tells_how_far_it_is() -> None:
    begun = entry(JobStep.BEGUN, "anna", "first", state=State.RUNNING)
    forged = entry(JobStep.ENDED, "mallory", "first", state=State.DONE, sent=2)
    assert after(begun, forged) == after(begun)


RUNS = entry(JobStep.BEGUN, "anna", "first", state=State.RUNNING)
GOES_ON = entry(JobStep.PROGRESS, "anna", "first", sent=1)


@pytest.mark.parametrize(
    "forged",
    [
        [entry(JobStep.RESUMED, "mallory", "second", sent=2)],
        [
            entry(JobStep.RESUMED, "mallory", "second", sent=2),
            entry(JobStep.ENDED, "mallory", "second", state=State.DONE, sent=2),
        ],
        [
            entry(JobStep.RESUMED, "mallory", "second", sent=2),
            entry(JobStep.RESUMED, "carol", "third", sent=2),
        ],
    ],
    ids=["resumed", "ended", "resumed by two"],
)
def test_who_goes_on_running_a_job_is_believed_and_not_who_says_that_they_have_resumed_it(
    forged: list[JournalEntry],
) -> None:
    assert after(RUNS, *forged).user != "anna"
    assert after(RUNS, *forged, GOES_ON) == after(RUNS, GOES_ON)


def test_a_job_that_somebody_else_has_resumed_is_theirs_until_then() -> None:
    resumed = entry(JobStep.RESUMED, "ben", "second")
    ended = entry(JobStep.ENDED, "ben", "second", state=State.DONE, sent=2)
    found = after(RUNS, resumed, ended)
    assert (found.user, found.state, found.sent) == ("ben", State.DONE, 2)


def test_who_has_resumed_a_job_of_another_does_not_take_it_back_from_its_owner() -> None:
    interrupted = entry(JobStep.ENDED, "anna", "first", state=State.INTERRUPTED)
    claimed = entry(JobStep.RESUMED, "mallory", "second")
    resumed = entry(JobStep.RESUMED, "anna", "third")
    done = entry(JobStep.ENDED, "anna", "third", state=State.DONE, sent=2)
    late = entry(JobStep.PROGRESS, "mallory", "second", sent=1)
    so_far = (RUNS, interrupted, claimed, resumed)
    assert after(*so_far, late) == after(*so_far)
    assert after(*so_far, done, late).state is State.DONE


def test_who_has_approved_a_job_is_its_owner() -> None:
    approved = entry(JobStep.RESUMED, "ben", "first", state=State.RUNNING)
    forged = entry(JobStep.RESUMED, "mallory", "second", state=State.RUNNING)
    goes_on = entry(JobStep.PROGRESS, "ben", "first", sent=1)
    assert after(OF_ANNA, approved, forged, goes_on).user == "ben"


def test_a_run_that_goes_on_has_what_was_on_its_way_and_what_was_reported_meanwhile() -> None:
    sending = replace(
        GOES_ON, step=JobStep.SENDING, record=None, digests=DIGESTS[:3], handed_over=3
    )
    forged = replace(entry(JobStep.RESUMED, "mallory", "second"), handed_over=2**50)
    heard = replace(entry(JobStep.HEARD, "ben"), told={"handled": 2})
    more = replace(sending, digests=DIGESTS[3:4], handed_over=4)
    with closing(sqlite3.connect(":memory:")) as sqlite:
        sqlite.executescript(journal_tables.SCHEMA)
        for one in (RUNS, sending, forged, heard, more):
            journal_tables.apply(sqlite, one)
        found = journal_tables.found(sqlite, ASKED.id)
        assert found is not None
        assert (found.user, found.handled) == ("anna", 2)
        assert sorted(journal_tables.under_way(sqlite, ASKED.id)) == sorted(DIGESTS[:4])
        assert journal_tables.handed_over(sqlite, ASKED.id) == 4


def test_reading_a_forged_claim_again_does_not_make_it_true() -> None:
    forged = entry(JobStep.RESUMED, "mallory", "second", sent=2)
    with closing(sqlite3.connect(":memory:")) as sqlite:
        sqlite.executescript(journal_tables.SCHEMA)
        for one in (RUNS, forged):
            journal_tables.apply(sqlite, one)
        journal_tables.drop_run_before(sqlite, ASKED.id)
        for one in (RUNS, forged, GOES_ON):
            journal_tables.apply(sqlite, one)
        found = journal_tables.found(sqlite, ASKED.id)
    assert found is not None
    assert found.user == "anna"


def test_who_ran_a_job_that_has_ended_is_not_believed_once_it_is_resumed() -> None:
    interrupted = entry(JobStep.ENDED, "anna", "first", state=State.INTERRUPTED)
    resumed = entry(JobStep.RESUMED, "ben", "second")
    assert after(RUNS, interrupted, resumed, GOES_ON).user == "ben"


def test_who_has_approved_a_job_is_not_believed_of_what_ends_it() -> None:
    ended = entry(JobStep.ENDED, "anna", state=State.DONE, asked_by="carol", approved_by="dave")
    assert (after(ended).asked_by, after(ended).approved_by) == ("", "")


def test_a_job_that_was_forgotten_is_not_resumed_and_goes_on_only_where_it_runs() -> None:
    begun = entry(JobStep.BEGUN, "anna", "first")
    forgotten = entry(JobStep.FORGOTTEN, "ben", "first")
    assert after(begun, forgotten).state is State.FORGOTTEN
    resumed = entry(JobStep.RESUMED, "ben", "second")
    assert after(begun, forgotten, resumed).state is State.FORGOTTEN
    goes_on = entry(JobStep.PROGRESS, "anna", "first")
    assert after(begun, forgotten, goes_on).state is State.RUNNING


@pytest.mark.parametrize("step", sorted(WITH_RECORD - {JobStep.HEARD}))
def test_where_a_job_stands_is_said_by_the_step_and_not_by_its_record(step: JobStep) -> None:
    stands = {after(entry(step, "anna", state=state)).state for state in State}
    ended = {State.DONE, State.FAILED, State.INTERRUPTED}
    assert stands == ended if step is JobStep.ENDED else len(stands) == 1


def test_of_too_many_jobs_the_oldest_are_dropped_and_last_those_that_run_or_wait(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(journal_tables, "MOST_JOBS", 3)
    states = [State.RUNNING, State.ASKED, *[State.DONE] * 5]
    with closing(sqlite3.connect(":memory:")) as sqlite:
        sqlite.executescript(journal_tables.SCHEMA)
        for number, state in enumerate(states):
            begun_at = datetime(2026, 1, 1 + number, tzinfo=UTC)
            job = replace(ASKED, id=str(number), state=state, begun_at=begun_at)
            journal_tables.put(sqlite, job)
        assert journal_tables.shrink(sqlite)
        left = [job.id for job in journal_tables.jobs(sqlite, None)]
        assert not journal_tables.shrink(sqlite)
    assert left == ["6", "1", "0"]


def test_nobody_pushes_out_the_jobs_of_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journal_tables, "MOST_JOBS", 5)
    with closing(sqlite3.connect(":memory:")) as sqlite:
        sqlite.executescript(journal_tables.SCHEMA)
        for number in range(20):
            job = replace(
                ASKED,
                id=str(number),
                user="anna" if number < 3 else "mallory",
                state=State.DONE if number < 2 else State.RUNNING,
                begun_at=datetime(2026, 1, 1 + number, tzinfo=UTC),
            )
            journal_tables.put(sqlite, job)
        assert journal_tables.shrink(sqlite)
        left = [job.id for job in journal_tables.jobs(sqlite, None)]
    assert left == ["19", "18", "2", "1", "0"]


@st.composite
def of_a_stranger(draw: st.DrawFn) -> JournalEntry:
    """An entry of a run that somebody has made up, or of the one that there is."""
    step = draw(st.sampled_from(sorted(set(JobStep) - {JobStep.READ, JobStep.REMARK})))
    run = draw(st.sampled_from(["first", "second"]))
    sent = draw(st.integers(0, 40))
    written = entry(step, draw(st.sampled_from(["anna", "mallory"])), run, sent=sent)
    count = draw(st.integers(0, 40))
    return replace(written, handed_over=draw(st.integers(0, 40)), digests=DIGESTS[:count])


@given(st.lists(of_a_stranger(), max_size=6))
def test_nothing_that_is_written_later_has_what_was_settled_sent_again(
    later: list[JournalEntry],
) -> None:
    begun = entry(JobStep.BEGUN, "anna", "first")
    sending = replace(entry(JobStep.SENDING, "anna", "first"), handed_over=20, digests=DIGESTS[:20])
    settled = replace(
        entry(JobStep.SETTLED, "anna", "first"), handed_over=20, digests=DIGESTS[15:20]
    )
    with closing(sqlite3.connect(":memory:")) as sqlite:
        sqlite.executescript(journal_tables.SCHEMA)
        for one in (begun, sending, settled, *later):
            journal_tables.apply(sqlite, one)
        under_way = len(set(journal_tables.under_way(sqlite, ASKED.id)))
        assert journal_tables.handed_over(sqlite, ASKED.id) - under_way >= 15


def test_who_forgets_a_job_takes_nothing_of_what_it_has_sent() -> None:
    begun = entry(JobStep.BEGUN, "anna", "first")
    sending = replace(entry(JobStep.SENDING, "anna", "first"), handed_over=2, digests=DIGESTS[:2])
    with closing(sqlite3.connect(":memory:")) as sqlite:
        sqlite.executescript(journal_tables.SCHEMA)
        for one in (begun, sending, entry(JobStep.FORGOTTEN, "mallory")):
            journal_tables.apply(sqlite, one)
        assert journal_tables.handed_over(sqlite, ASKED.id) == 2
        assert set(journal_tables.under_way(sqlite, ASKED.id)) == set(DIGESTS[:2])


def test_what_is_done_can_not_be_hidden() -> None:
    ended = entry(JobStep.ENDED, "anna", state=State.DONE)
    assert after(ended, entry(JobStep.FORGOTTEN, "mallory")).state is State.DONE


def test_a_job_that_is_done_stays_so() -> None:
    done = (
        entry(JobStep.BEGUN, "anna", "first"),
        entry(JobStep.ENDED, "anna", "first", state=State.DONE, sent=2),
    )
    for step in WITH_RECORD - {JobStep.HEARD}:
        assert after(*done, entry(step, "mallory", "second")) == after(*done), step
