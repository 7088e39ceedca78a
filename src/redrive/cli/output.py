"""What the commands print: tables and sentences for people, JSON for programs, and what went wrong.

What is for people goes to stdout, and to stderr where stdout holds JSON. Notes, questions and progress always go to stderr.
"""

import contextlib
import json
import os
import select
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Literal, TextIO

from redrive.errors import ConfigurationError
from redrive.redaction import in_one_line, printable, redact

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress

_UNBOUNDED = 10_000
"""The width of what is no terminal: a line that goes on to grep or a file is not cut."""

_STEP = 0.2
_WORTH_A_BAR = 0.5
"""Seconds after which people wonder whether something happens."""

NO_PROGRESS = "REDRIVE_NO_PROGRESS"
"""The environment variable that keeps bars away."""


class Form(StrEnum):
    """How a command prints."""

    TABLE = "table"
    JSON = "json"


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table.

    Args:
        title: its heading.
        align: `right` for numbers.
        give: whether it becomes narrower where the terminal is narrow.
        wrap: whether it takes several lines then; else it is cut with an ellipsis.
    """

    title: str
    align: Literal["left", "right"] = "left"
    give: bool = False
    wrap: bool = False


@dataclass(frozen=True, slots=True)
class Cell:
    """A cell that stands out. The text says all: the style only helps to find it."""

    text: str
    style: str = ""


class Printer:
    """Prints for one command."""

    def __init__(self, form: Form) -> None:
        self.as_json = form is Form.JSON
        self._people: Console | None = None

    def say(self, text: str = "", style: str = "") -> None:
        """A line for people."""
        from rich.text import Text

        console = self._console()
        console.print(Text(printable(text), style), soft_wrap=not console.is_terminal)

    def table(self, columns: Sequence[Column], rows: Sequence[Sequence[str | Cell]]) -> None:
        """A table for people."""
        from rich import box
        from rich.table import Table
        from rich.text import Text

        table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False, show_edge=False, header_style="bold")
        for column in columns:
            table.add_column(column.title, justify=column.align, no_wrap=not column.give)
        for row in rows:
            cells = [cell if isinstance(cell, Cell) else Cell(cell) for cell in row]
            table.add_row(
                *(
                    Text(in_one_line(cell.text), cell.style, no_wrap=not column.wrap, overflow="fold" if column.wrap else "ellipsis")
                    for column, cell in zip(columns, cells, strict=True)
                )
            )
        console = self._console()
        if console.is_terminal:
            console.print(table)
            return
        with console.capture() as captured:
            console.print(table)
        # rich fills each line up to the table's width.
        print("\n".join(line.rstrip() for line in captured.get().splitlines()), file=console.file, flush=True)

    def result(self, value: object) -> None:
        """What the command has found or done, for programs; nothing for people."""
        if self.as_json:
            print_json(value, indent=2)

    def note(self, text: str) -> None:
        """A sentence on stderr that is neither the result nor an error."""
        _print(printable(redact(text)), sys.stderr)

    def confirm(self, question: str, *, yes: bool) -> bool:
        """Whether to go ahead: `yes` was given, or somebody at the terminal says so.

        Raises:
            ConfigurationError: there is nobody to ask.
        """
        if yes:
            return True
        if not sys.stdin.isatty():
            raise ConfigurationError(f"there is no terminal to ask at: {question}", "Give --yes to go ahead, or --dry-run to only look.")
        sys.stdout.flush()
        sys.stderr.write(f"{printable(question)} [y/N] ")
        sys.stderr.flush()
        answer = _typed_line()
        if not answer:
            _print("", sys.stderr)
        return answer.strip().lower() in {"y", "yes"}

    @contextlib.contextmanager
    def progress(self, what: str, total: int) -> Iterator[Callable[[int], None]]:
        """A bar on stderr where that is a terminal; gives a function that is told how many are done."""
        with self.bar(stays=True) as bar:
            bar.show(what, 0, total)

            def done(count: int) -> None:
                bar.show(what, count, total)

            yield done

    @contextlib.contextmanager
    def bar(self, *, stays: bool = False) -> Iterator["Bar"]:
        """A bar on stderr, where that is a terminal and nobody gave --no-progress.

        Args:
            stays: whether it comes at once, and stays where it is at the end; else it comes once it is worth it, and goes.
        """
        bar = Bar(_console(sys.stderr), stays=stays)
        try:
            yield bar
        finally:
            bar.end()

    def _console(self) -> "Console":
        if self._people is None:
            self._people = _console(sys.stderr if self.as_json else sys.stdout)
        return self._people


class Bar:
    """How far something is, for people at a terminal."""

    def __init__(self, console: "Console", *, stays: bool) -> None:
        self._console = console
        self._stays = stays
        self._wanted = console.is_terminal and not os.environ.get(NO_PROGRESS)
        self._began = time.monotonic()
        self._explained = False
        self._shown: Progress | None = None

    def show(self, what: str, done: int, total: int | None) -> bool:
        """Shows that so many of `total` are done, where that is known; returns whether anybody can see it."""
        if not self._wanted or not (self._shown or self._stays or time.monotonic() - self._began > _WORTH_A_BAR):
            return False
        count = "" if total is None else f"{done:,}/{total:,}"
        progress = self._shown or self._begin()
        progress.update(progress.task_ids[0], description=printable(what), completed=done, total=total, count=count)
        return True

    def explain(self, text: str) -> None:
        """A sentence above the bar, once there is one; only the first."""
        if self._shown is not None and not self._explained:
            self._explained = True
            self._shown.console.print(printable(text))

    def end(self) -> None:
        """Ends it."""
        if self._shown is not None:
            self._shown.stop()

    def _begin(self) -> "Progress":
        from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

        columns = (
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            TextColumn("{task.fields[count]}"),
            TimeRemainingColumn(),
        )
        self._shown = Progress(*columns, console=self._console, transient=not self._stays)
        self._shown.add_task("", total=None, count="")
        self._shown.start()
        return self._shown


def print_json(value: object, *, indent: int | None = None, stream: TextIO | None = None) -> None:
    """A value as JSON: on stdout, one line where no indent is given."""
    stream = stream or sys.stdout
    text = json.dumps(value, indent=indent, ensure_ascii=False)
    try:
        text.encode(stream.encoding or "ascii")
    except UnicodeEncodeError:  # a lone surrogate in a body, or a terminal without Unicode: escapes say it too
        text = json.dumps(value, indent=indent)
    _print(text, stream)


def error(kind: str, problem: str, remedy: str, *, as_json: bool) -> None:
    """What went wrong, on stderr: two lines at most, or one JSON object."""
    problem, remedy = redact(problem), redact(remedy)
    if as_json:
        print_json({"error": {"kind": kind, "problem": problem, "remedy": remedy or None}}, stream=sys.stderr)
        return
    lines = [f"Error: {problem}", remedy]
    _print("\n".join(in_one_line(line) for line in lines if line), sys.stderr)


def count_of(number: int, noun: str) -> str:
    """`1 message`, `1,200 messages`."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def _typed_line() -> str:
    """The next line that is typed; empty where nobody types any more.

    Waited for in steps: of a Ctrl-C right before it begins, a read that waits would hear only when it ends.
    """
    while os.name == "posix" and not select.select([sys.stdin], [], [], _STEP)[0]:
        pass
    return sys.stdin.readline()


def _print(text: str, stream: TextIO) -> None:
    print(text, file=stream, flush=True)


def _console(stream: TextIO) -> "Console":
    from rich.console import Console

    bounded = stream.isatty() or "COLUMNS" in os.environ
    return Console(file=stream, width=None if bounded else _UNBOUNDED, highlight=False, markup=False, emoji=False)
