"""Counts that tasks make, and their sum: the same however the rows are split."""

from collections import Counter
from datetime import UTC, datetime, timedelta

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from redrive.spark_reprocess.archived_messages import KEPT
from redrive.spark_reprocess.ledger import Event
from redrive.spark_reprocess.run_plan import plan_of
from redrive.spark_reprocess.selection import RowJudge, Selection
from redrive.spark_reprocess.tally import (
    AT,
    CELL,
    COUNT,
    PART,
    SIZE,
    TIME,
    WIDTH,
    Tally,
    added,
    rows_in,
)

BEGAN = datetime(2024, 5, 17, 8, 0, tzinfo=UTC)
NAMES = ("id", "state", "group_id", "queue", "dead_letter_queue", "error_type", "error_message")
STATES = (KEPT, str(Event.REFUSED), str(Event.SENT))


def rows_of(numbers: "list[int]", *, causes: int = 5, sizes: int = 50, every: int = 1) -> pa.Table:
    """Made-up messages; each number makes one."""
    values = [
        (
            f"{number:09d}",
            STATES[number % 3],
            f"group-{number % causes}",
            "shop@orders",
            "other" if number % 7 == 0 else None,
            None if number % 11 == 0 else "KeyError",
            f"no {number % causes}",
            number % sizes,
            BEGAN + timedelta(seconds=number * every) if number % 13 else None,
            number % 6,
        )
        for number in numbers
    ]
    columns = list(zip(*values, strict=True)) or [()] * (len(NAMES) + 3)
    types = [*([pa.string()] * len(NAMES)), pa.int64(), pa.timestamp("us", "UTC"), pa.int64()]
    arrays = [pa.array(column, kind) for column, kind in zip(columns, types, strict=True)]
    return pa.table(arrays, [*NAMES, "size", "failed_at", "redrive_count"])


def counts_of(*parts: pa.Table, choice: Selection | None = None) -> pa.Table:
    """What one task counts that has these tables in hand."""
    with RowJudge(choice or Selection()) as judge:
        tally = Tally(judge)
        for part in parts:
            tally.add(part)
        return tally.counts()


def part_of(counts: pa.Table, part: str) -> "list[dict[str, object]]":
    return [row for row in counts.to_pylist() if row[PART] == part]


@given(st.lists(st.integers(0, 2000), unique=True, max_size=60), st.integers(0, 60))
def test_however_rows_are_split_their_sum_is_the_same(numbers: "list[int]", cut: int) -> None:
    choice = Selection()
    one = counts_of(rows_of(numbers[:cut]), choice=choice)
    other = counts_of(rows_of(numbers[cut:]), choice=choice)
    whole = counts_of(rows_of(numbers), choice=choice)
    for is_whole in (False, True):
        split = plan_of("run", added([one, other]), choice, whole=is_whole)
        assert split == plan_of("run", whole, choice, whole=is_whole)
    assert rows_in(added([one, other])) == len(numbers)


def test_a_plan_says_what_the_rows_say() -> None:
    numbers = list(range(1, 400))
    plan = plan_of("run", counts_of(rows_of(numbers)), Selection())
    about = [number for number in numbers if number % 3 != 2]
    chosen = [number for number in about if number % 6 != 5 and number % 7]
    assert (plan.count, plan.chosen, plan.ways) == (
        len(about),
        len(chosen),
        {"shop@orders": len(chosen)},
    )
    assert plan.too_often == sum(number % 6 == 5 for number in about)
    assert plan.no_way_back + plan.contradicted + plan.unchecked == sum(
        number % 6 != 5 and number % 7 == 0 for number in about
    )
    assert plan.size == sum(number % 50 for number in about)
    assert plan.largest == max(number % 50 for number in about)
    assert plan.median == sorted(number % 50 for number in about)[(len(about) - 1) // 2]
    assert plan.states == dict(Counter(STATES[number % 3] for number in numbers))
    assert sum(count for _, count in plan.times) == sum(bool(number % 13) for number in about)
    assert plan.rest == sum(number % 3 == 0 and number % 6 == 5 for number in numbers)
    assert {group.id: group.count for group in plan.groups} == Counter(
        f"group-{number % 5}" for number in about
    )
    whole = plan_of("run", counts_of(rows_of(numbers)), Selection(), whole=True)
    assert whole.count == len(numbers)


def test_a_few_messages_that_failed_long_before_the_others_are_left_out_of_the_times() -> None:
    rows = rows_of([*range(1, 3), *range(10**7, 10**7 + 200)])
    plan = plan_of("run", counts_of(rows), Selection(), whole=True)
    assert (plan.earlier, plan.later) == (2, 0)
    assert len(plan.times) <= 49


@pytest.mark.parametrize("every", [1, 3600, 86_400])
def test_intervals_stay_few_and_lose_no_message(every: int) -> None:
    rows = rows_of(list(range(1, 12_000)), sizes=9_000, every=every)
    counts = counts_of(rows)
    for part in (TIME, SIZE):
        assert len(part_of(counts, part)) <= 3 * 4096
        assert all(int(str(row[AT])) % int(str(row[WIDTH])) == 0 for row in part_of(counts, part))
    dated = sum(number % 13 != 0 for number in range(1, 12_000))
    assert sum(int(str(row[COUNT])) for row in part_of(counts, TIME)) == dated
    plan = plan_of("run", counts, Selection(), whole=True)
    assert sum(count for _, count in plan.times) == dated


def test_more_causes_than_fit_are_counted_together() -> None:
    rows = rows_of(list(range(1, 25_000)), causes=25_000)
    counts = counts_of(rows)
    assert len(part_of(counts, CELL)) <= 20_000 + 9
    assert rows_in(counts) == 24_999
