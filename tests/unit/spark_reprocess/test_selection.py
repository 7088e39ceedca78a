"""The rows that a selection sends, as a task has them in hand."""

import pyarrow as pa
import pytest

from redrive.spark_reprocess.row_message import SENT_BY
from redrive.spark_reprocess.selection import Selection

ROWS = pa.table(
    {
        "queue": ["shop@orders"] * 4,
        "dead_letter_queue": pa.array([None, None, None, "orders.dlq"], pa.string()),
        "redrive_count": [0, 9, 2, 0],
        "size": [10, 10, 500, 10],
        "id": ["a", "b", "c", "d"],
    }
)


@pytest.mark.parametrize(
    ("selection", "ids"),
    [
        (Selection(), ["a", "c"]),
        (Selection(force=True), ["a", "b", "c"]),
        (Selection("size > 100"), ["c"]),
        (Selection("size > 1000"), []),
        (Selection(to="elsewhere"), ["a", "c", "d"]),
    ],
)
def test_a_task_takes_what_is_selected_and_may_go(selection: Selection, ids: list[str]) -> None:
    batches = list(selection.chosen(iter([*ROWS.slice(0, 0).to_batches(), *ROWS.to_batches()])))
    rows = [row for batch in batches for row in batch.to_pylist()]
    assert [row["id"] for row in rows] == ids
    assert all(row[SENT_BY] is None for row in rows)
