"""What is asked at a terminal."""

import _thread
import os
import pty
import sys
import threading
import time

import pytest

from redrive.cli.output import Cell, OutputFormat, Printer, RowsFormat, TableColumn


def test_ctrl_c_at_a_question_is_heard_though_it_comes_before_the_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    keyboard, terminal = pty.openpty()
    with os.fdopen(terminal) as stdin, os.fdopen(keyboard, "wb", buffering=0) as typing:
        monkeypatch.setattr(sys, "stdin", stdin)
        # As a signal that comes a moment before: it is pending, and interrupts no read. The second
        # one ends a read that waits.
        timers = [
            threading.Timer(0.3, _thread.interrupt_main),
            threading.Timer(20, typing.write, [b"yes\n"]),
        ]
        for timer in timers:
            timer.start()
        began = time.monotonic()
        with pytest.raises(KeyboardInterrupt):
            Printer(OutputFormat.TABLE).confirm("Sure?", yes=False)
        assert time.monotonic() - began < 15
        timers[1].cancel()


def table_of(
    rows: list[list[str | Cell]],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> list[str]:
    """The lines of a table that goes into a pipe."""
    monkeypatch.delenv("COLUMNS", raising=False)
    Printer(OutputFormat.TABLE).table(
        (
            TableColumn("id"),
            TableColumn("error", give=True, wrap=True),
            TableColumn("size", "right"),
            TableColumn("key", give=True),
        ),
        rows,
    )
    return capsys.readouterr().out.splitlines()


def test_a_table_in_a_pipe_is_lined_up(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert table_of(
        [["1", Cell("no plan", "red"), "3", "a"], ["20", "日本", "1,000", "b.c"]],
        capsys,
        monkeypatch,
    ) == [
        "id  error     size  key",
        "───────────────────────",
        "1   no plan      3  a",
        "20  日本     1,000  b.c",
    ]


def test_one_long_cell_of_a_table_in_a_pipe_makes_no_other_line_long(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    head, rule, long, short = table_of(
        [["1", "x" * 1200, "3", "a"], ["2", "no plan", "3", "b"]], capsys, monkeypatch
    )
    assert long == f"1   {'x' * 999}…     3  a"
    assert max(map(len, (head, rule, short))) <= 80
    assert rule == "─" * len(rule)
    assert not any(line.endswith(" ") for line in (head, long, short))


@pytest.mark.parametrize(
    ("form", "said"),
    [
        (RowsFormat.TABLE, "job\n───\n=1\n"),
        (
            RowsFormat.JSON,
            '{\n  "jobs": [\n    {\n      "id": "=1",\n      "more": null\n    }\n  ]\n}\n',
        ),
        (RowsFormat.CSV, '"id","more"\n"\'=1",""\n'),
    ],
)
def test_rows_are_printed_by_their_columns_in_each_format(
    form: RowsFormat,
    said: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    printer = Printer(form)
    printer.rows(
        ["=1"],
        lambda one: {"id": one, "more": None},
        {TableColumn("job"): lambda one: one},
        lambda rows: {"jobs": rows},
    )
    printer.say("for people")
    captured = capsys.readouterr()
    people = captured.out if form is RowsFormat.TABLE else captured.err
    assert "for people" in people
    assert captured.out.replace("\r", "").replace("for people\n", "") == said
