"""Attempts to steer the terminal of somebody who looks: what commands print is rendered, and
searched for what steers."""

import ast
import contextlib
import io
import json
import os
import re
import time
from collections.abc import Iterator
from pathlib import Path
from unittest import mock

import pytest

import redrive
from corpus import STEERING, steering_in
from redrive.cli import output, top
from redrive.cli.output import Cell, OutputFormat, Printer, TableColumn
from redrive.cli.top import Screen
from redrive.errors import BrokerUnavailable
from redrive.topology.flow import QueueCount

each_payload = pytest.mark.parametrize("payload", STEERING.values(), ids=STEERING)
COUNT = QueueCount(ready=1, held=0, consumers=0)
OWN = re.compile(r"\x1b\[(?:[0-9;]*m|\d+;1H|2[JK]|\?\d+[hl]|H)")
"""What rich and the live view write themselves: colours, places, clearing. No payload is made of
such alone but one, which is text, too."""


class Pipe(io.StringIO):
    """A stream that takes all letters."""

    encoding = "utf-8"


class FakeTerminal(Pipe):
    """A stream that says it is a terminal."""

    def isatty(self) -> bool:
        return True


in_both = pytest.mark.parametrize("kind", [FakeTerminal, Pipe], ids=["terminal", "pipe"])


@contextlib.contextmanager
def written_to(kind: type[Pipe]) -> Iterator[tuple[io.StringIO, io.StringIO]]:
    """What is written to stdout and stderr in the block."""
    out, err = kind(), kind()
    with (
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
        mock.patch.dict(os.environ),
    ):
        os.environ.pop("COLUMNS", None)
        yield out, err


def assert_it_steers_nothing(written: str, payload: str, keep: str = "\n\t") -> None:
    own = {payload} if steering_in(payload, keep) else set()
    assert not any(raw in written for raw in own)
    assert steering_in(OWN.sub("", written), keep) == set()


@in_both
@each_payload
def test_a_line_and_a_table_for_people(payload: str, kind: type[Pipe]) -> None:
    columns = (
        TableColumn("a", give=True),
        TableColumn(f"b {payload}", "right", give=True, wrap=True),
    )
    with written_to(kind) as (out, _):
        Printer(OutputFormat.TABLE).say(f"said {payload}", "bold")
        Printer(OutputFormat.TABLE).table(columns, [[f"cell {payload}", Cell(payload, "red")]])
    assert "said " in out.getvalue()
    assert "cell " in out.getvalue()
    assert_it_steers_nothing(out.getvalue(), payload)


@in_both
@each_payload
def test_a_note_an_error_and_a_bar(payload: str, kind: type[Pipe]) -> None:
    printer = Printer(OutputFormat.TABLE)
    with written_to(kind) as (_, err):
        printer.note(f"note {payload}")
        output.error("Kind", f"problem {payload}", f"remedy {payload}", as_json=False)
        with printer.progress(f"sending {payload}", 3) as done:
            done(3)
    shown = ["note ", "Error: problem ", "remedy ", *(["sending "] if kind is FakeTerminal else [])]
    assert [word for word in shown if word in err.getvalue()] == shown
    assert_it_steers_nothing(re.sub(r"\r|\x1b\[1A", "", err.getvalue()), payload)


@in_both
@each_payload
def test_a_sentence_a_cell_a_note_and_an_error_are_a_line_each(
    payload: str, kind: type[Pipe]
) -> None:
    printer = Printer(OutputFormat.TABLE)
    with written_to(kind) as (out, err):
        printer.table((TableColumn("a"),), [[payload]])
        printer.say(f"\nsaid {payload}")
        printer.note(payload)
        output.error("Kind", payload, payload, as_json=False)
    assert (out.getvalue().count("\n"), err.getvalue().count("\n")) == (5, 3)


@in_both
@each_payload
def test_json_is_the_same_json_and_steers_nothing(payload: str, kind: type[Pipe]) -> None:
    with written_to(kind) as (out, err):
        Printer(OutputFormat.JSON).result({"body": payload, payload: [payload]})
        output.error("Kind", payload, payload, as_json=True)
    assert json.loads(out.getvalue()) == {"body": payload, payload: [payload]}
    assert json.loads(err.getvalue()) == {
        "error": {"kind": "Kind", "problem": payload, "remedy": payload}
    }
    assert_it_steers_nothing(out.getvalue() + err.getvalue(), payload)


def drawn(address: str, seen: top._Seen) -> str:
    """What the live view writes on a terminal of 120 columns."""
    from rich.console import Console

    console = Console(
        file=FakeTerminal(),
        force_terminal=True,
        width=120,
        height=30,
        highlight=False,
        markup=False,
        emoji=False,
    )
    with written_to(FakeTerminal) as (out, _):
        top._draw(Screen(console, None), address, seen, 0, sort=top.SortKey.NAME, late=60)
    return out.getvalue()


@each_payload
def test_the_live_view_shows_the_names_of_queues(payload: str) -> None:
    name = f"shop@{payload}"
    written = drawn(
        f"host {payload}", top._Seen(time.monotonic(), {name: COUNT, f"{name}@failed": COUNT})
    )
    assert "1 subscription;" in written
    assert "shop@" in written
    assert_it_steers_nothing(written, payload, keep="")


@each_payload
@pytest.mark.parametrize(
    "queues",
    [None, {"shop@q": COUNT, "shop@q@failed": COUNT}],
    ids=["never answered", "answered before"],
)
def test_the_live_view_shows_the_words_of_the_management_api(
    payload: str, queues: dict[str, QueueCount] | None
) -> None:
    problem = BrokerUnavailable(
        "host", f"its management API failed with 500: {payload}", f"look {payload}"
    )
    written = drawn("host", top._Seen(time.monotonic(), queues, problem=problem))
    assert "its management API failed with 500" in written
    assert_it_steers_nothing(written, payload, keep="")


def test_only_one_module_makes_texts_for_rich() -> None:
    """So that what steers is taken out of all of them. What else draws, as rich's markup does, is
    not used at all."""
    made_in = set()
    for module in Path(redrive.__file__).parent.rglob("*.py"):
        source = module.read_text(encoding="utf-8")
        if "rich" not in source:
            continue
        for node in ast.walk(ast.parse(source)):
            if isinstance(node, ast.Call) and ast.unparse(node.func).split(".")[0] in {
                "Text",
                "Markdown",
                "Syntax",
                "Panel",
                "Pretty",
            }:
                made_in.add(module.name)
    assert made_in == {"output.py"}
