"""A page of results of a measurement that has a program of its own."""

from collections.abc import Iterable
from pathlib import Path

from benchmarks import machine


def write(path: Path, title: str, words: Iterable[str], columns: str, rows: Iterable[str]) -> None:
    """Writes the page.

    Args:
        path: where to.
        title: its headline.
        words: lines that say what was measured.
        columns: the table's head, with the line below it.
        rows: the table's rows.
    """
    lines = [f"# {title}", "", *words, "", "|  |  |", "| --- | --- |"]
    lines += [f"| **{name}** | {value} |" for name, value in machine.description()]
    path.write_text("\n".join([*lines, "", columns, *rows]) + "\n")
