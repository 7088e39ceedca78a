"""Answers as CSV, which spreadsheets open."""

import csv
import io

from hypothesis import given
from hypothesis import strategies as st

from redrive.failures.look import QueryResult
from redrive.web.query_page import _csv

_values = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.text(max_size=8)
    | st.lists(st.text(max_size=3), max_size=2)
)


@given(st.lists(_values, min_size=1, max_size=4))
def test_no_cell_is_a_formula(values: list[object]) -> None:
    rows = [{"a": value} for value in values]
    # As a spreadsheet reads it: cells in quotes, whatever is in them.
    found = list(csv.reader(io.StringIO(_csv(QueryResult(["a"], rows)), newline="")))
    assert len(found) == len(values) + 1
    for value, (cell,) in zip(values, found[1:], strict=True):
        is_number = isinstance(value, int) and not isinstance(value, bool)
        assert is_number or not cell.startswith(("=", "+", "-", "@", "\t", "\r"))
