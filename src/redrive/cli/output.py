"""Output of commands: tables and sentences for people, JSON for programs, and errors.

Text for people goes to stdout, or to stderr if stdout has JSON. Notes, questions and progress
always go to stderr.
"""

import contextlib
import json
import os
import select
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import IO, TYPE_CHECKING, Literal, TextIO, TypeVar

from redrive.errors import ConfigurationError
from redrive.redaction import in_one_line, printable, printable_json, redact

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress
    from rich.text import Text

T = TypeVar("T")

_UNBOUNDED = 10_000
"""Width of output to a pipe or a file, whose lines are not cut."""

_PADDED = 60
"""Maximum width to which a cell is padded in a table for a pipe or a file; a longer cell moves the
rest of its line to the right."""

_LONGEST_CELL = 1000
"""Characters of a cell, and of a line that a terminal would cut, for a pipe or a file."""

_GAP = "  "
"""Separator of two columns in such a table."""

_STEP = 0.2
_WORTH_A_BAR = 0.5
"""Seconds after which people wonder whether anything is happening."""

NO_PROGRESS = "REDRIVE_NO_PROGRESS"
"""Environment variable that turns progress bars off."""


class OutputFormat(StrEnum):
    """The output format of a command."""

    TABLE = "table"
    JSON = "json"


class RowsFormat(StrEnum):
    """The output format of a command that lists rows."""

    TABLE = "table"
    JSON = "json"
    CSV = "csv"


@dataclass(frozen=True, slots=True)
class TableColumn:
    """A column of a table.

    Args:
        title: its heading.
        align: `right` for numbers.
        give: whether it gets narrower on a narrow terminal.
        wrap: whether it then takes several lines; otherwise it is cut with an ellipsis.
        least: the most width that it needs; None for the width of its longest cell.
        hide: the order in which a narrow terminal drops columns, from 1; 0 is never dropped.
    """

    title: str
    align: Literal["left", "right"] = "left"
    give: bool = False
    wrap: bool = False
    least: int | None = None
    hide: int = 0


@dataclass(frozen=True, slots=True)
class Cell:
    """A cell with a style. The text says everything: the style only helps to find it."""

    text: str
    style: str = ""


class Printer:
    """The output of one command."""

    def __init__(self, form: OutputFormat | RowsFormat) -> None:
        self._form = form.value
        self.for_programs = form.value != OutputFormat.TABLE.value
        """Whether stdout is for programs, so that text for people goes to stderr."""
        self._people: Console | None = None

    @property
    def _stream(self) -> TextIO:
        """Where text for people goes."""
        return sys.stderr if self.for_programs else sys.stdout

    @property
    def width(self) -> int | None:
        """Number of columns to print in; None if there is no limit."""
        return self._console().width if _is_bounded(self._stream) else None

    def say(self, text: str = "", style: str = "", *, cut: bool = False) -> None:
        """Print a line for people. Line feeds at the start become empty lines before it; any others
        come from untrusted text and are escaped."""
        sentence = text.lstrip("\n")
        self.block(
            "\n" * (len(text) - len(sentence)) + sentence.replace("\n", "\\n"), style, cut=cut
        )

    def block(self, text: str, style: str = "", *, cut: bool = False) -> None:
        """Print lines for people, such as a body or a traceback; `cut` truncates each at the width
        of the terminal."""
        if not _needs_rich(self._stream):
            lines = printable(text).split("\n")
            _print("\n".join(map(_shortened, lines) if cut else lines), self._stream)
            return
        console = self._console()
        console.print(
            paragraph(text, style),
            soft_wrap=not console.is_terminal,
            no_wrap=cut or None,
            overflow="ellipsis" if cut else None,
        )

    def table(self, columns: Sequence[TableColumn], rows: Sequence[Sequence[str | Cell]]) -> None:
        """Print a table for people. For a pipe or a file it is not cut, and one long cell does not
        lengthen every line."""
        if not _is_bounded(self._stream):
            _print("\n".join(_lines_of(columns, rows)), self._stream)
            return
        from rich import box
        from rich.table import Table

        console = self._console()
        columns, rows = fitting(columns, rows, console.width, len(_GAP))
        table = Table(
            box=box.SIMPLE_HEAD,
            padding=(0, 1, 0, 0),
            pad_edge=False,
            show_edge=False,
            header_style="bold",
        )
        for column in columns:
            table.add_column(line(column.title), justify=column.align, no_wrap=not column.give)
        for row in rows:
            cells = [cell if isinstance(cell, Cell) else Cell(cell) for cell in row]
            table.add_row(
                *(
                    line(cell.text, cell.style, wrap=column.wrap)
                    for column, cell in zip(columns, cells, strict=True)
                )
            )
        if console.is_terminal:
            console.print(table)
            return
        with console.capture() as captured:
            console.print(table)
        # rich pads each line to the table's width.
        print(
            "\n".join(line.rstrip() for line in captured.get().splitlines()),
            file=console.file,
            flush=True,
        )

    def table_of(
        self, found: Sequence[T], columns: Mapping[TableColumn, Callable[[T], str | Cell]]
    ) -> None:
        """Print a table for people, each column with a function that returns a row's cell."""
        self.table([*columns], [[cell(one) for cell in columns.values()] for one in found])

    def rows(
        self,
        found: Sequence[T],
        as_json: Callable[[T], Mapping[str, object]],
        columns: Mapping[TableColumn, Callable[[T], str | Cell]],
        wrapped: Callable[[list[Mapping[str, object]]], object] = lambda rows: rows,
    ) -> None:
        """Print what a command has found, one row each: as a table, JSON or CSV.

        Args:
            found: the rows.
            as_json: returns a row as JSON values; their names are the columns in CSV.
            columns: the columns of the table, each with a function that returns a row's cell.
            wrapped: returns the JSON around the rows.
        """
        if not self.for_programs:
            if found:
                self.table_of(found, columns)
            return
        rows = [as_json(one) for one in found]
        if self._form == RowsFormat.CSV.value:
            from redrive.failures.store.csv_text import csv_of

            names = dict.fromkeys(name for row in rows for name in row)
            if names:
                _print(csv_of([*names], rows).removesuffix("\r\n"), sys.stdout)
        else:
            self.result(wrapped(rows))

    def result(self, value: object) -> None:
        """Print what the command has found or done as JSON; in table format, print nothing."""
        if self.for_programs:
            print_json(value, indent=2)

    def note(self, text: str) -> None:
        """Print a sentence to stderr that is neither the result nor an error."""
        _print(in_one_line(redact(text)), sys.stderr)

    def confirm(self, question: str, *, yes: bool) -> bool:
        """Return whether to go ahead: `yes` was given, or somebody at the terminal agrees."""
        if yes:
            return True
        if not sys.stdin.isatty():
            raise ConfigurationError(
                f"there is no terminal to ask at: {question}",
                "Give --yes to go ahead, or --dry-run to see what would happen.",
            )
        sys.stdout.flush()
        sys.stderr.write(f"{in_one_line(question)} [y/N] ")
        sys.stderr.flush()
        answer = _typed_line()
        if not answer:
            _print("", sys.stderr)
        return answer.strip().lower() in {"y", "yes"}

    @contextlib.contextmanager
    def progress(self, what: str, total: int) -> Iterator[Callable[[int], None]]:
        """Show a bar on stderr if that is a terminal; yield a function to call with the number
        done."""
        with self.bar(stays=True) as bar:
            bar.show(what, 0, total)

            def done(count: int) -> None:
                bar.show(what, count, total)

            yield done

    @contextlib.contextmanager
    def bar(self, *, stays: bool = False) -> Iterator["ProgressBar"]:
        """Yield a bar on stderr, which shows nothing without a terminal or with --no-progress."""
        bar = ProgressBar(sys.stderr, stays=stays)
        try:
            yield bar
        finally:
            bar.end()

    def _console(self) -> "Console":
        if self._people is None:
            self._people = _console(self._stream)
        return self._people


def fitting(
    columns: Sequence[TableColumn],
    rows: Sequence[Sequence[str | Cell]],
    width: int,
    gap: int,
    *,
    head: Callable[[str], int] = len,
) -> tuple[list[TableColumn], list[list[str | Cell]]]:
    """Return the columns that fit into the width, and the rows without the others.

    Names stay readable: a less important column is hidden before a name is cut.
    """
    shown = list(range(len(columns)))
    for place in sorted(
        filter(lambda at: columns[at].hide, shown), key=lambda at: columns[at].hide
    ):
        needed = (width_of(columns, rows, at, head=head) for at in shown)
        if sum(needed) + gap * (len(shown) - 1) <= width:
            break
        shown.remove(place)
    return [columns[at] for at in shown], [[row[at] for at in shown] for row in rows]


def width_of(
    columns: Sequence[TableColumn],
    rows: Sequence[Sequence[str | Cell]],
    place: int,
    *,
    head: Callable[[str], int] = len,
) -> int:
    """Return the width that a column needs."""
    column = columns[place]
    cells = (row[place] for row in rows)
    widest = max([len(cell.text if isinstance(cell, Cell) else cell) for cell in cells], default=0)
    needed = widest if column.least is None else min(widest, column.least)
    return max(head(column.title), needed)


def paragraph(words: str, style: str = "") -> "Text":
    """Return text of any origin for rich, with no control over the terminal. All text that rich
    prints is made by this function or `line`."""
    from rich.text import Text

    return Text(printable(words), style)


def line(words: str, style: str = "", *, wrap: bool = False) -> "Text":
    """Return text of any origin for rich, on one line with no control over the terminal. Without
    enough room it wraps, or is cut with an ellipsis."""
    from rich.text import Text

    return Text(
        in_one_line(words), style, no_wrap=not wrap, overflow="fold" if wrap else "ellipsis"
    )


class ProgressBar:
    """A progress bar for people at a terminal."""

    def __init__(self, stream: TextIO, *, stays: bool) -> None:
        self._stream = stream
        self._stays = stays
        self._wanted = (
            not os.environ.get(NO_PROGRESS) and _needs_rich(stream) and _console(stream).is_terminal
        )
        self._began = time.monotonic()
        self._explained = False
        self._shown: Progress | None = None
        self._lines: list[str] = []

    @property
    def is_seen(self) -> bool:
        """Whether the bar is visible by now."""
        return self._shown is not None

    def show(self, what: str, done: int, total: int | None) -> bool:
        """Show how many of `total` are done, if the total is known; return whether the bar is
        visible."""
        if not self._wanted or not (
            self._shown or self._stays or time.monotonic() - self._began > _WORTH_A_BAR
        ):
            return False
        count = "" if total is None else f"{done:,}/{total:,}"
        progress = self._shown or self._begin()
        progress.update(
            progress.task_ids[0],
            description=printable(what),
            completed=done,
            total=total,
            count=count,
        )
        return True

    def show_lines(self, lines: Sequence[str]) -> None:
        """Show lines above the bar, in place of the previous ones; they disappear with the bar."""
        self._lines = list(lines)

    def explain(self, text: str) -> None:
        """Print a sentence above the bar if it is visible; only the first one is printed."""
        if self._shown is not None and not self._explained:
            self._explained = True
            self._shown.console.print(printable(text))

    def end(self) -> None:
        """Stop the bar."""
        if self._shown is not None:
            self._shown.stop()

    def _begin(self) -> "Progress":
        from rich.console import RenderableType
        from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

        class WithLines(Progress):
            """A bar with lines above it."""

            def get_renderables(progress) -> Iterator[RenderableType]:
                for words in self._lines:
                    text = paragraph(words)
                    text.no_wrap, text.overflow = True, "ellipsis"
                    yield text
                yield from super().get_renderables()

        columns = (
            TextColumn("{task.description}", markup=False),
            # rich's default colours only suit a dark background.
            BarColumn(style="dim", complete_style="cyan", finished_style="green"),
            TextColumn("{task.fields[count]}"),
            TimeRemainingColumn(),
        )
        self._shown = WithLines(*columns, console=_console(self._stream), transient=not self._stays)
        self._shown.add_task("", total=None, count="")
        self._shown.start()
        return self._shown


def print_json(value: object, *, indent: int | None = None, stream: TextIO | None = None) -> None:
    """Print a value as JSON that can't control the terminal, to stdout by default; on one line
    without an indent."""
    stream = stream or sys.stdout
    text = printable_json(value, indent=indent)
    try:
        text.encode(stream.encoding or "ascii")
    except UnicodeEncodeError:  # a terminal without Unicode gets escapes
        text = json.dumps(value, indent=indent)
    _print(text, stream)


def error(kind: str, problem: str, remedy: str, *, as_json: bool) -> None:
    """Print an error to stderr: at most two lines, or one JSON object."""
    problem, remedy = redact(problem), redact(remedy)
    if as_json:
        print_json(
            {"error": {"kind": kind, "problem": problem, "remedy": remedy or None}},
            stream=sys.stderr,
        )
        return
    lines = [f"Error: {problem}", remedy]
    _print("\n".join(in_one_line(line) for line in lines if line), sys.stderr)


def _typed_line() -> str:
    """Return the next line that is typed; empty at the end of the input.

    It polls: a Ctrl-C right before a blocking read would only be noticed when the read ends.
    """
    while os.name == "posix" and not select.select([sys.stdin], [], [], _STEP)[0]:
        pass
    return sys.stdin.readline()


def _print(text: str, stream: TextIO) -> None:
    print(text, file=stream, flush=True)


def _console(stream: TextIO) -> "Console":
    from rich.console import Console

    return Console(
        file=stream,
        width=None if _is_bounded(stream) else _UNBOUNDED,
        highlight=False,
        markup=False,
        emoji=False,
    )


def _shortened(text: str) -> str:
    """Return the beginning of a text that is longer than a reader of a pipe or a file needs."""
    return text if len(text) <= _LONGEST_CELL else f"{text[: _LONGEST_CELL - 1]}…"


def _needs_rich(stream: IO[str]) -> bool:
    """Return whether output to a stream has styles or a limited width; importing rich is slow."""
    return _is_bounded(stream) or not os.environ.keys().isdisjoint(
        ("FORCE_COLOR", "TTY_COMPATIBLE")
    )


def _is_bounded(stream: IO[str]) -> bool:
    """Return whether output to a stream has a limited width."""
    return stream.isatty() or "COLUMNS" in os.environ


def _lines_of(
    columns: Sequence[TableColumn], rows: Sequence[Sequence[str | Cell]]
) -> Iterator[str]:
    """Yield the lines of a table of unlimited width."""
    from rich.cells import cell_len

    table = [[in_one_line(column.title) for column in columns]]
    table += [
        [_shortened(in_one_line(cell.text if isinstance(cell, Cell) else cell)) for cell in row]
        for row in rows
    ]
    widths = [
        min(_PADDED, max(cell_len(row[place]) for row in table)) for place in range(len(columns))
    ]

    def lined_up(row: list[str]) -> str:
        padded = (
            f"{' ' * (width - cell_len(cell))}{cell}"
            if column.align == "right"
            else f"{cell}{' ' * (width - cell_len(cell))}"
            for column, cell, width in zip(columns, row, widths, strict=True)
        )
        return _GAP.join(padded).rstrip()

    yield lined_up(table[0])
    yield "─" * (sum(widths) + len(_GAP) * (len(widths) - 1))
    yield from map(lined_up, table[1:])
