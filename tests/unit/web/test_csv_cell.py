import pytest

from redrive.web.csv_cell import inert


@pytest.mark.parametrize("value", ["\x1b]52;c;QQ==\x07", "a\u202eb", "a\rb", {"a": "\x9b2J"}])
def test_a_cell_steers_no_terminal(value: object) -> None:
    cell = inert(value)
    assert cell.isprintable()
    assert "\\" in cell


@pytest.mark.parametrize("text", ["=1+1", "+1", "-1", "@x", "\t=1"])
def test_a_cell_is_no_formula(text: str) -> None:
    assert inert(text) == f"'{text}"
