"""Rows as CSV that steers no terminal and has no formulas."""

import csv
import io

import pytest
from hypothesis import given
from hypothesis import strategies as st

from redrive.failures.store.csv_text import csv_of, inert


@pytest.mark.parametrize("value", ["\x1b]52;c;QQ==\x07", "a\u202eb", "a\rb", {"a": "\x9b2J"}])
def test_a_cell_steers_no_terminal(value: object) -> None:
    cell = inert(value)
    assert cell.isprintable()
    assert "\\" in cell


@pytest.mark.parametrize("text", ["=1+1", "+1", "-1", "@x", "\t=1"])
def test_a_cell_is_no_formula(text: str) -> None:
    assert inert(text) == f"'{text}"


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
    found = list(csv.reader(io.StringIO(csv_of(["a"], rows), newline="")))
    assert len(found) == len(values) + 1
    for value, (cell,) in zip(values, found[1:], strict=True):
        is_number = isinstance(value, int) and not isinstance(value, bool)
        assert is_number or not cell.startswith(("=", "+", "-", "@", "\t", "\r"))
