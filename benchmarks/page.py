"""A page of results of a measurement that has a program of its own."""

import argparse
from collections.abc import Iterable
from pathlib import Path

from benchmarks import machine


def add_options(parser: argparse.ArgumentParser, name: str) -> None:
    """Adds the options of every such program: on which brokers it measures, and where its page
    goes.

    Args:
        parser: to what.
        name: the page's, where none is given.
    """
    parser.add_argument(
        "--brokers",
        type=lambda text: tuple(text.split(",")),
        metavar="NAMES",
        help="as of python -m benchmarks",
    )
    parser.add_argument(
        "--output",
        type=Path,
        default=Path(__file__).with_name(name),
        help="where to write the results",
    )


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
