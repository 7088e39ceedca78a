"""What a team has said of causes, and what that does to groups and filters."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from deliveries import failed
from kept_looks import index_in, keep
from redrive.amqp.field_table import Table
from redrive.errors import ConfigurationError
from redrive.failures.jobs.cause_remark import CauseRemark, CauseState, RemarkKind
from redrive.failures.jobs.cause_remarks import CauseRemarks
from redrive.failures.message.cause import Cause
from redrive.failures.message.failed_message import FailedMessage
from redrive.failures.message.groups import Group
from redrive.failures.store.filter import Filter, OpenFilter
from redrive.failures.store.look import Look

START = datetime(2026, 1, 1, tzinfo=UTC)
KEY, SLOW = Cause("KeyError", "'…'", ""), Cause("TimeoutError", "after <n> s", "")


def message(id_: str, cause: Cause, host: str = "a") -> FailedMessage:
    text = {"KeyError": f"'{id_}'", "TimeoutError": "after 3 s"}[cause.error_type]
    return FailedMessage(
        failed(
            Table.of(
                {
                    "redrive-failure-id": id_,
                    "redrive-error-type": cause.error_type,
                    "redrive-error-message": text,
                    "redrive-host": host,
                }
            )
        )
    )


MESSAGES = [
    message("1", KEY),
    message("2", KEY, "b"),
    message("3", SLOW),
    message("4", SLOW, "b"),
    message("5", SLOW, "b"),
]
MERGE = CauseRemark(RemarkKind.MERGE, KEY.group_id, into=SLOW.group_id)


def said(state: CauseState, at: datetime = START, group: str = KEY.group_id) -> CauseRemark:
    return CauseRemark(RemarkKind.STATE, group, state=state, at=at)


def counts(book: CauseRemarks) -> dict[str, int]:
    """How many messages are in which group."""
    with OpenFilter(Filter()) as all_:
        groups = book.groups_of(Look("q", messages=iter(MESSAGES)), all_)
    return {ids(group): group.count for group in groups.largest_first}


def ids(group: Group) -> str:
    assert isinstance(group.key, Cause)
    return group.key.group_id


def meant(book: CauseRemarks, *groups: str, where: str | None = None) -> list[str]:
    """The failure ids of those that a filter by group means."""
    with OpenFilter(book.resolved(Filter(where, groups=groups))) as filter_:
        return [one.failure_id for one in filter_.of(MESSAGES)]


def test_an_empty_book_changes_nothing() -> None:
    assert counts(CauseRemarks()) == {SLOW.group_id: 3, KEY.group_id: 2}
    filter_ = Filter(groups=(KEY.group_id,))
    assert CauseRemarks().resolved(filter_) is filter_


def test_causes_that_were_merged_are_one_and_any_of_their_ids_means_all() -> None:
    book = CauseRemarks([MERGE])
    assert counts(book) == {SLOW.group_id: 5}
    assert meant(book, KEY.group_id) == meant(book, SLOW.group_id[:4]) == ["1", "2", "3", "4", "5"]


def test_merging_in_a_circle_makes_one_cause_and_no_endless_loop() -> None:
    back = CauseRemark(RemarkKind.MERGE, SLOW.group_id, into=KEY.group_id)
    assert len(counts(CauseRemarks([MERGE, back]))) == 1


def test_a_remark_that_was_taken_back_holds_no_longer() -> None:
    undo = CauseRemark(RemarkKind.UNDO, SLOW.group_id, undoes=MERGE.id)
    assert counts(CauseRemarks([MERGE, undo])) == counts(CauseRemarks())


@pytest.mark.parametrize("where", ["host = 'b'", "false), false) OR coalesce((true", "(", "nosuch"])
def test_the_split_of_an_older_version_changes_nothing_and_is_told_of(where: str) -> None:
    split = CauseRemark(RemarkKind.SPLIT, SLOW.group_id, where=where, name="host b")
    book = CauseRemarks([split])
    assert counts(book) == counts(CauseRemarks())
    assert meant(book, SLOW.group_id) == ["3", "4", "5"]
    assert book.about(SLOW.group_id) == [split]


def test_a_cause_of_which_nobody_has_said_anything_is_new() -> None:
    assert CauseRemarks().standing_of(group()).state is CauseState.NEW


def test_what_was_said_last_counts_in_whichever_order_it_came() -> None:
    first, last = said(CauseState.MUTED), said(CauseState.KNOWN, START + timedelta(seconds=1))
    assert CauseRemarks([last, first]).standing_of(group()).state is CauseState.KNOWN


@pytest.mark.parametrize(
    ("after", "state"), [(-1, CauseState.FIXED), (1, CauseState.FAILING_AGAIN)]
)
def test_a_fixed_cause_is_failing_again_once_one_of_its_messages_failed_since(
    after: int, state: CauseState
) -> None:
    fixed = said(CauseState.FIXED)
    found = group(last=START + timedelta(seconds=after))
    assert CauseRemarks([fixed]).standing_of(found).state is state


def test_what_is_said_of_one_of_merged_causes_is_said_of_all() -> None:
    muted = said(CauseState.MUTED, group=KEY.group_id)
    assert CauseRemarks([MERGE, muted]).standing_of(group(SLOW)).state is CauseState.MUTED


def test_a_remark_is_named_by_the_beginning_of_its_id() -> None:
    assert CauseRemarks([MERGE]).named(MERGE.id[:8]) is MERGE
    with pytest.raises(ConfigurationError, match="names no remarks"):
        CauseRemarks([MERGE]).named("x")


def group(cause: Cause = KEY, last: datetime | None = None) -> Group:
    return Group(cause, "1", 1, last=last)


def test_what_is_merged_is_counted_once_however_often_it_is_asked(tmp_path: Path) -> None:
    book = CauseRemarks([MERGE])
    kept = keep(index_in(tmp_path), [one.delivery for one in MESSAGES])
    with OpenFilter(Filter()) as all_:
        for _ in range(3):
            groups = book.groups_of(Look("q", messages=kept), all_).largest_first
            assert [group.count for group in groups] == [5]


@pytest.mark.parametrize("remarks", [[], [MERGE]])
def test_a_cause_is_counted_as_its_group_is(tmp_path: Path, remarks: list[CauseRemark]) -> None:
    book = CauseRemarks(remarks)
    look = Look("q", messages=keep(index_in(tmp_path), [one.delivery for one in MESSAGES]))
    with OpenFilter(Filter()) as all_:
        groups = book.groups_of(look, all_).largest_first
    for group in groups:
        assert isinstance(group.key, Cause)
        assert book.count_of(look, group.key.group_id) == group.count
