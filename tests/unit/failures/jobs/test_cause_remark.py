"""What may be said of a cause, and how it is written down."""

import json
from datetime import UTC, datetime

import pytest

from redrive.errors import ConfigurationError
from redrive.failures.jobs.cause_remark import CauseRemark, CauseState, RemarkKind
from redrive.failures.jobs.journal_entry import (
    FORMAT,
    JobStep,
    JournalEntry,
    NewerEntry,
    Unreadable,
)

GROUP, OTHER = "0123456789ab", "ba9876543210"


def entry(remark: CauseRemark) -> JournalEntry:
    return JournalEntry(JobStep.REMARK, who=remark.who, id=remark.id, at=remark.at, remark=remark)


@pytest.mark.parametrize(
    "remark",
    [
        CauseRemark(RemarkKind.STATE, GROUP, "KeyError", CauseState.FIXED, "2.3.1", "the table"),
        CauseRemark(RemarkKind.MERGE, GROUP, into=OTHER),
        CauseRemark(RemarkKind.SPLIT, GROUP, where="host = 'b'", name="host b"),
        CauseRemark(RemarkKind.UNDO, GROUP, undoes="x"),
    ],
)
def test_what_is_written_comes_back(remark: CauseRemark) -> None:
    assert JournalEntry.decode(entry(remark).encode()).remark == remark


def test_an_older_version_reads_of_what_form_it_is_and_no_more() -> None:
    written = json.loads(entry(CauseRemark(RemarkKind.MERGE, GROUP, into=OTHER)).encode())
    assert written["format"] == 2
    assert json.loads(JournalEntry(JobStep.READ).encode())["format"] == 1


def test_a_newer_form_is_told_apart() -> None:
    body = json.dumps({"format": FORMAT + 1, "step": "remark"}).encode()
    with pytest.raises(NewerEntry):
        JournalEntry.decode(body)


@pytest.mark.parametrize(
    "damage",
    [
        {"group": "x"},
        {"group": None},
        {"kind": "else"},
        {"kind": "merge", "into": GROUP},
        {"kind": "split", "where": "true", "name": "a]"},
        {"state": "failing again"},
        {"note": "x" * 2001},
        {"note": ["x"]},
    ],
)
def test_what_is_no_remark_is_not_read(damage: dict[str, object]) -> None:
    values = json.loads(entry(CauseRemark(RemarkKind.STATE, GROUP)).encode())
    values["remark"] |= damage
    with pytest.raises(Unreadable):
        JournalEntry.decode(json.dumps(values).encode())


def test_a_password_in_a_note_is_not_written_down() -> None:
    remark = CauseRemark(RemarkKind.STATE, GROUP, note="see amqp://bob:hunter2@host/")
    assert "hunter2" not in str(remark.as_json())


def test_what_can_not_be_is_told() -> None:
    with pytest.raises(ConfigurationError, match="not a group id"):
        CauseRemark(RemarkKind.STATE, "3f2a")
    with pytest.raises(ConfigurationError, match="2,001"):
        CauseRemark(RemarkKind.STATE, GROUP, note="x" * 2001)
    with pytest.raises(ConfigurationError, match="needs a filter"):
        CauseRemark(RemarkKind.SPLIT, GROUP, name="b", at=datetime.now(UTC))
