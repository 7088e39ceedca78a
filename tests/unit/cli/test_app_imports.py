"""What a command imports: the test suite, completion and people's shells start hundreds."""

import inspect
import os
import subprocess
import sys

import pytest
import typer

from effort import some_of
from redrive.cli import app as application
from redrive.cli.lazy_group import CommandEntry, LazyGroup

HEAVY = frozenset({"pika", "pydantic", "pydantic_core", "duckdb", "httpx", "rich", "pyspark"})
TYPER = frozenset({"pydantic", "pydantic_core"})
"""What typer itself imports once it reads an option."""

# The measurement of coverage would import libraries of its own.
_ENVIRONMENT = {
    name: value for name, value in os.environ.items() if not name.startswith("COVERAGE")
}

GROUPS = ("", "failed", "causes", "dlq", "jobs", "topology")
LISTED = {
    f"{prefix}{name}": one
    for prefix, group in (
        ("", "redrive.cli.app"),
        ("failed ", "redrive.cli.failed"),
        ("dlq ", "redrive.cli.dlq"),
        ("causes ", "redrive.cli.causes"),
        ("jobs ", "redrive.cli.jobs"),
        ("topology ", "redrive.cli.topology_app"),
    )
    for name, one in CommandEntry(f"{group}:app", "").load().info.cls.listed.items()  # type: ignore[attr-defined]
}


def imported_by(code: str, **environment: str) -> set[str]:
    """The modules that a new interpreter has once it ran this."""
    code = f"import sys\n{code}\nprint('\\n'.join(['-- modules', *sys.modules]))"
    done = subprocess.run(
        [sys.executable, "-P", "-c", code],
        capture_output=True,
        text=True,
        check=True,
        env={**_ENVIRONMENT, **environment},
    )
    return set(done.stdout.rpartition("-- modules")[2].split())


def test_the_help_of_a_group_imports_none_of_its_commands() -> None:
    """All of them in one interpreter, each of which takes as long to start as the others."""
    calls = [[*group.split(), "--help"] for group in GROUPS]
    modules = imported_by(
        "from redrive.cli.__main__ import main\n"
        f"assert [main(words) for words in {calls!r}] == {[0] * len(calls)}",
    )
    assert modules & (HEAVY - TYPER) == set()
    assert {
        name for name in modules if name.startswith(("redrive.pubsub", "redrive.failures"))
    } == set()


def test_completing_a_command_imports_none() -> None:
    modules = imported_by(
        "from redrive.cli.app import app\n"
        "try:\n    app(prog_name='redrive')\nexcept SystemExit:\n    pass",
        _REDRIVE_COMPLETE="complete_bash",
        COMP_WORDS="redrive failed re",
        COMP_CWORD="2",
    )
    assert "redrive.cli.failed" in modules
    assert {name for name in modules if name.startswith("redrive.cli.failed_")} == set()
    assert modules & (HEAVY - TYPER) == set()


@pytest.mark.parametrize(
    ("module", "unneeded"),
    some_of(
        [
            ("jobs_list", HEAVY - {"pika"}),
            ("jobs_originals", HEAVY - {"duckdb", "pika"}),
            ("failed_columns", HEAVY),
            ("status", HEAVY - {"pika"}),
            ("top", HEAVY - {"pika"}),
            ("doctor", HEAVY - {"pika"}),
            ("dlq_scan", HEAVY - {"pika"}),
            ("declare", HEAVY - {"pika"}),
            ("failed_list", {"duckdb", "httpx", "rich", "sqlite3"}),
            ("failed_requeue", {"duckdb", "httpx", "rich"}),
            ("exporter", HEAVY - TYPER - {"pika"}),
            ("publish", {"duckdb", "httpx", "rich", "sqlite3"}),
            ("watch", {"duckdb", "httpx", "rich", "sqlite3"}),
        ]
    ),
)
def test_a_command_imports_no_library_that_it_may_not_need(
    module: str, unneeded: frozenset[str]
) -> None:
    assert imported_by(f"import redrive.cli.{module}") & unneeded == set()


@pytest.mark.parametrize("name", LISTED)
def test_the_line_that_lists_a_command_is_the_first_sentence_of_its_help(name: str) -> None:
    found = LISTED[name].load()
    text = found.info.help if isinstance(found, typer.Typer) else inspect.getdoc(found)
    assert isinstance(text, str)
    first = " ".join(text.split("\n\n")[0].split()).partition(". ")[0].removesuffix(".")
    assert f"{first}." == LISTED[name].summary


def test_no_line_of_a_list_of_commands_is_cut_in_a_terminal(
    capsys: pytest.CaptureFixture[str],
) -> None:
    from redrive.cli.__main__ import main

    for group in GROUPS:
        main([*group.split(), "--help"])
    shown = " ".join(capsys.readouterr().out.split())
    assert [one.summary for one in LISTED.values() if one.summary not in shown] == []


def test_every_group_is_listed_here() -> None:
    groups = [name for name, one in LISTED.items() if isinstance(one.load(), typer.Typer)]
    assert groups == ["failed", "causes", "dlq", "jobs", "spark", "topology"]
    assert issubclass(application.app.info.cls or object, LazyGroup)
