"""An entry of the shared journal: what is written comes back, and nothing that is read raises."""

import json
import sqlite3
import uuid
from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from redrive.failures.jobs import journal_tables
from redrive.failures.jobs.cause_remark import CauseRemark, RemarkKind
from redrive.failures.jobs.job_record import JobRecord, State
from redrive.failures.jobs.journal_entry import (
    EDITS_LEFT_OUT,
    FORMAT,
    LONGEST_ENTRY,
    WITH_RECORD,
    JobStep,
    JournalEntry,
    NewerEntry,
    Original,
    Unreadable,
)
from redrive.failures.queue.canary import Guards
from redrive.failures.queue.order import Order
from redrive.failures.store.filter import Filter
from redrive.topology.names import ExchangeFamily

ORDER = Order(
    Filter("size > 1", groups=("3f2a",)),
    5,
    "elsewhere",
    2.5,
    Guards(20, timedelta(minutes=1), 0.05),
    edits={"0" * 64: "c2VjcmV0"},
)
JOB = JobRecord(
    "job-1",
    "requeue",
    "ucenter@user",
    "amqp://guest@host:5672/%2F",
    ORDER.as_json(),
    who="bob@desk",
    reason="fixed",
    sent=3,
    exchanges=ExchangeFamily("shop").as_json(),
)
TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=40)
NUMBERS = st.integers(0, 2**53)
TIMES = st.datetimes(timezones=st.just(UTC))
DIGESTS = st.binary(min_size=32, max_size=32).map(bytes.hex)
WHOLE_STEPS = st.sampled_from(
    [JobStep.BEGUN, JobStep.RESUMED, JobStep.TAKEN_UP, JobStep.STOPPED, JobStep.ENDED]
)


@st.composite
def entries(draw: st.DrawFn) -> JournalEntry:
    """Any entry that redrive may write, but for one whose reason has a secret."""
    step = draw(st.sampled_from(JobStep))
    record = None
    if step in WITH_RECORD:
        record = replace(
            JOB,
            begun_at=draw(TIMES),
            changed_at=draw(TIMES),
            state=draw(st.sampled_from(State)),
            sent=draw(NUMBERS),
            failed_here=draw(NUMBERS),
            order={},
            exchanges={},
        )
        if step in (JobStep.BEGUN, JobStep.RESUMED):
            record = replace(record, order=JOB.order, exchanges=JOB.exchanges)
    original = None
    if step is JobStep.ORIGINAL:
        four = st.tuples(st.binary(), st.binary(), st.binary(), st.binary())
        original = Original(draw(TEXTS), draw(TEXTS), draw(four))
    id_, who, at = str(uuid.uuid4()), draw(TEXTS), draw(TIMES)
    remark = None
    if step is JobStep.REMARK:
        remark = CauseRemark(RemarkKind.STATE, "0" * 12, draw(TEXTS), id=id_, at=at, who=who)
    return JournalEntry(
        step,
        "" if step in (JobStep.READ, JobStep.REMARK) else JOB.id,
        who,
        id=id_,
        at=at,
        run=draw(TEXTS),
        record=record,
        handed_over=draw(NUMBERS),
        digests=tuple(draw(st.lists(DIGESTS, max_size=5))),
        told=draw(st.dictionaries(st.sampled_from(["handled", "failed_told"]), NUMBERS)),
        original=original,
        remark=remark,
    )


def encoded(**changes: object) -> dict[str, Any]:
    """The JSON of an entry of a job that ended, with some values of its record changed."""
    values: dict[str, Any] = json.loads(
        JournalEntry(JobStep.ENDED, JOB.id, "bob@desk", record=JOB).encode()
    )
    values["record"] |= changes
    return values


@given(entries())
@example(JournalEntry(JobStep.SETTLED, JOB.id, "bob@desk", handed_over=2**53))
def test_what_is_written_comes_back(entry: JournalEntry) -> None:
    assert JournalEntry.decode(entry.encode()) == entry


def test_a_note_belongs_to_no_job_whatever_it_says() -> None:
    remark = CauseRemark(RemarkKind.STATE, "0" * 12)
    entry = JournalEntry(JobStep.REMARK, JOB.id, "bob@desk", id=remark.id, remark=remark)
    assert JournalEntry.decode(entry.encode()).job == ""


def test_the_user_is_the_one_that_the_broker_vouches_for() -> None:
    entry = JournalEntry(JobStep.READ, who="bob@desk", user="somebody that it says itself")
    assert JournalEntry.decode(entry.encode(), "bob").user == "bob"
    assert JournalEntry.decode(entry.encode()).user == ""


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=20,
)


def read(body: bytes) -> JournalEntry | None:
    """An entry; None where it is refused as it should be."""
    try:
        return JournalEntry.decode(body)
    except (Unreadable, NewerEntry):
        return None


@given(st.binary() | JSON.map(lambda value: json.dumps(value).encode()))
def test_what_is_no_entry_is_told_apart_and_nothing_else_is_raised(body: bytes) -> None:
    assert read(body) is None


@given(st.data())
def test_an_entry_with_something_else_in_a_place_is_refused_or_harms_no_table(
    data: st.DataObject,
) -> None:
    values = encoded()
    places = [values, values["record"], values["record"]["order"]]
    places.append(values["record"]["order"]["selection"])
    place = data.draw(st.sampled_from(places))
    place[data.draw(st.sampled_from(sorted(place)))] = data.draw(JSON)
    entry = read(json.dumps(values).encode())
    if entry is None:
        return
    with closing(sqlite3.connect(":memory:")) as sqlite:
        sqlite.executescript(journal_tables.SCHEMA)
        for _ in range(2):
            journal_tables.apply(sqlite, entry)
        job = journal_tables.found(sqlite, entry.job)
    if job is not None and job.order and job.kind == "requeue":
        Order.from_json(job.order)


@pytest.mark.parametrize(
    "values",
    [
        encoded(sent=True),
        encoded(sent=-1),
        encoded(sent=2**80),
        encoded(id="another"),
        encoded(state="won"),
        encoded(begun_at="2026-11-21T15:08:48"),
        encoded(order={"selection": {"where": 5, "groups": []}}),
        encoded(order={"a": {"b": {"c": {"d": {"e": {"f": 1}}}}}}),
        {**encoded(), "job": "\x1b[2J"},
        {**encoded(), "id": "5"},
        {**encoded(), "digests": "YQ=="},
        {**encoded(), "step": "won"},
        {**encoded(), "format": True},
        {**encoded(), "format": 0},
    ],
    ids=[
        "a truth for a count",
        "a negative count",
        "a count that is too large",
        "another job's record",
        "no state",
        "a time of no zone",
        "an order with a number for its filter",
        "too deep an order",
        "an id that steers a terminal",
        "no id",
        "half a digest",
        "no step",
        "a truth for a version",
        "version 0",
    ],
)
def test_an_entry_that_can_not_be_ours_is_refused(values: dict[str, Any]) -> None:
    with pytest.raises(Unreadable):
        JournalEntry.decode(json.dumps(values).encode())


@pytest.mark.parametrize(
    "part",
    [
        {"canary": -1},
        {"edits": []},
        {"edits": {"0" * 64: "%"}},
        {"edits": {"0" * 64: 5}},
        {"limit": "5"},
        {"rate": "2"},
        {"selection": {"where": None, "groups": "3f2a"}},
        {"selection": {"where": None, "groups": [], "digests": [5]}},
        {"stop_at": 2**53},
        {"to": 5},
        {"unknown to us": [float("inf")]},
        {"unknown to us": {"x": float("nan")}},
        {"via": 1},
        {"watch": True},
    ],
    ids=repr,
)
def test_an_order_that_can_not_be_ours_is_refused(part: dict[str, Any]) -> None:
    order = {**ORDER.as_json(), **part}
    with pytest.raises(Unreadable):
        JournalEntry.decode(json.dumps(encoded(order=order)).encode())


@pytest.mark.parametrize(
    "body",
    [b"[" * 200_000, b" " * (LONGEST_ENTRY + 1), b'{"format":1e400}'],
    ids=["deep", "long", "large"],
)
def test_what_is_too_deep_too_long_or_too_large_is_refused(body: bytes) -> None:
    with pytest.raises(Unreadable):
        JournalEntry.decode(body)


@pytest.mark.parametrize(("job", "known"), [("job-1", "job-1"), (5, ""), ("\x1b", "")])
def test_an_entry_of_a_newer_version_says_of_which_job_it_is(job: object, known: str) -> None:
    values = {"format": FORMAT + 1, "job": job, "step": ["anything"]}
    with pytest.raises(NewerEntry) as newer:
        JournalEntry.decode(json.dumps(values).encode())
    assert newer.value.job == known


@given(WHOLE_STEPS)
def test_without_bodies_an_order_says_how_many_it_is_without(step: JobStep) -> None:
    body = JournalEntry(step, JOB.id, record=JOB).encode(bodies=False)
    assert b"c2VjcmV0" not in body
    record = JournalEntry.decode(body).record
    assert record is not None
    assert (record.order["edits"], record.order[EDITS_LEFT_OUT]) == ({}, 1)


def test_without_bodies_an_original_says_only_which_it_is() -> None:
    original = Original("failure-1", "ucenter@user", (b"x", b"y", b"\0\0", b"secret"))
    entry = JournalEntry(JobStep.ORIGINAL, JOB.id, original=original)
    found = JournalEntry.decode(entry.encode(bodies=False)).original
    assert found == replace(original, parts=None)


@pytest.mark.parametrize("name", ["reason", "problem"])
def test_a_password_in_what_people_or_brokers_say_is_taken_out(name: str) -> None:
    said = replace(JOB, **{name: "amqp://bob:hunter2@rabbit/ is back"})  # type: ignore[arg-type]
    body = JournalEntry(JobStep.ENDED, JOB.id, record=said).encode()
    assert b"hunter2" not in body
    assert b"is back" in body


def tables(*some: JournalEntry) -> tuple[JobRecord | None, set[str], int]:
    """What the tables say of the job after these entries."""
    with closing(sqlite3.connect(":memory:")) as sqlite:
        sqlite.executescript(journal_tables.SCHEMA)
        for entry in some:
            journal_tables.apply(sqlite, entry)
        return (
            journal_tables.found(sqlite, JOB.id),
            set(journal_tables.under_way(sqlite, JOB.id)),
            journal_tables.handed_over(sqlite, JOB.id),
        )


FIRST, SECOND = (replace(JOB, run=run) for run in ("first", "second"))
A, B = "a" * 64, "b" * 64
BEGUN = JournalEntry(JobStep.BEGUN, JOB.id, run="first", record=FIRST)
SENDING = JournalEntry(JobStep.SENDING, JOB.id, run="first", handed_over=2, digests=(A, B))


def test_a_job_whose_beginning_the_broker_has_dropped_is_as_its_last_step_says() -> None:
    ended = replace(FIRST, state=State.INTERRUPTED, sent=9)
    last = JournalEntry(
        JobStep.ENDED, JOB.id, run="first", record=ended, handed_over=2, digests=(A,)
    )
    assert tables(last) == tables(BEGUN, SENDING, last)
    job, under_way, handed_over = tables(last)
    assert job is not None
    assert (job.sent, job.order, under_way, handed_over) == (9, JOB.order, {A}, 2)


def test_a_late_step_of_an_earlier_run_changes_nothing() -> None:
    resumed = JournalEntry(
        JobStep.RESUMED, JOB.id, run="second", record=SECOND, handed_over=2, digests=(A, B)
    )
    late = JournalEntry(
        JobStep.ENDED, JOB.id, run="first", record=replace(FIRST, state=State.FAILED)
    )
    assert tables(BEGUN, SENDING, resumed, late) == tables(BEGUN, SENDING, resumed)


def test_bodies_that_this_file_has_are_not_forgotten_for_an_order_without_them() -> None:
    without = JournalEntry.decode(
        JournalEntry(JobStep.RESUMED, JOB.id, run="second", record=SECOND).encode(bodies=False)
    )
    job, _, _ = tables(BEGUN, without)
    assert job is not None
    assert job.order["edits"] == JOB.order["edits"]


def test_the_id_of_an_entry_is_its_own() -> None:
    assert len({JournalEntry(JobStep.READ).id for _ in range(100)}) == 100
    assert uuid.UUID(JournalEntry(JobStep.READ).id)
    assert JournalEntry(JobStep.READ).at <= datetime.now(UTC)
