"""`redrive spark`: the options that it shares with `redrive failed requeue`, and what it needs of
the machine."""

import inspect
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import get_args

import pytest
from typer.models import OptionInfo

from cli_support import redrive
from redrive.cli import failed_requeue, spark
from redrive.cli.job_options import RecordedJobOptions
from redrive.spark_reprocess import prerequisites
from redrive.topology.names import ExchangeFamily

FAMILY = {"--exchange", "--retry-suffix", "--failed-suffix"}
ALIKE = FAMILY | {
    *("--where", "--patch", "--transform", "--rate"),
    *("--canary", "--watch", "--stop-at", "--unknown", "--force"),
    *("--dry-run", "--yes", "--output", "--reason", "--journal"),
    *("--to", "--via", "--unchecked", "--literal"),
    *("--url", "--management-url"),
}
COMMANDS = ("requeue", "drain", "plan", "send", "restore", "discard", "verify", "package", "demo")


def commands_on_spark() -> dict[str, Callable[..., object]]:
    """The commands of `redrive spark`, by their names."""
    return {
        one.name: one.callback
        for one in spark.app.registered_commands
        if one.name is not None and one.callback is not None
    }


def options_of(command: Callable[..., object]) -> dict[str, dict[str, object]]:
    """All that is declared of each option of a command, by its name."""
    found: dict[str, dict[str, object]] = {}
    for parameter in inspect.signature(command, eval_str=True).parameters.values():
        kind, *declared = get_args(parameter.annotation) or (None,)
        for option in declared:
            if isinstance(option, OptionInfo):
                said = {**vars(option), "of type": kind, "if not given": parameter.default}
                # In Annotated, typer takes the first name for a default.
                names = map(str, (option.default, *(option.param_decls or ())))
                found |= {name: said for name in names if name.startswith("--")}
    return found


def test_what_requeues_on_spark_and_on_one_machine_has_the_same_options_for_the_same_things() -> (
    None
):
    here, there = options_of(failed_requeue.requeue), options_of(commands_on_spark()["requeue"])
    assert here.keys() & there.keys() == ALIKE
    assert {name: there[name] for name in ALIKE} == {name: here[name] for name in ALIKE}


@pytest.mark.parametrize("name", COMMANDS)
def test_no_command_of_spark_has_an_option_of_another_meaning(name: str) -> None:
    here, there = options_of(failed_requeue.requeue), options_of(commands_on_spark()[name])
    # A run that is taken up has its own exchange family, as a job has.
    own = FAMILY if name in ("send", "restore") else set()
    shared = (here.keys() & there.keys()) - own
    assert {one: there[one] for one in shared} == {one: here[one] for one in shared}


def test_all_commands_are_looked_at() -> None:
    assert set(commands_on_spark()) == set(COMMANDS)


def test_every_command_that_talks_to_a_broker_takes_the_whole_exchange_family() -> None:
    for name in ("requeue", "drain", "send", "restore"):
        found = options_of(commands_on_spark()[name])
        assert found.keys() >= FAMILY, name


def test_a_run_keeps_its_exchange_family_but_for_what_an_option_names() -> None:
    own = ExchangeFamily("orders", "@retry", "@failed")
    assert RecordedJobOptions().over(own) == own
    assert RecordedJobOptions(retry_suffix=".later").over(own) == ExchangeFamily(
        "orders", ".later", "@failed"
    )


@pytest.mark.parametrize("library", ["pyspark", "pyarrow", "duckdb"])
@pytest.mark.parametrize("name", COMMANDS)
def test_a_missing_library_is_named_before_anything_is_started(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, name: str, library: str
) -> None:
    monkeypatch.setattr(
        prerequisites, "find_spec", lambda asked: None if asked == library else find_spec("json")
    )
    done = redrive("spark", name, *arguments_of(name, tmp_path))
    assert (done.code, done.error_lines) == (
        2,
        [f"Error: this needs {library}, which is not installed", "pip install 'redrive[spark]'"],
    )
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("name", [name for name in COMMANDS if name != "package"])
def test_a_missing_java_is_named_before_anything_is_started(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, name: str
) -> None:
    monkeypatch.setattr(prerequisites, "find_spec", lambda _: find_spec("json"))
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.delenv("JAVA_HOME", raising=False)
    done = redrive("spark", name, *arguments_of(name, tmp_path))
    assert (done.code, len(done.error_lines)) == (2, 2)
    assert done.error_lines[0] == "Error: Spark needs Java, and there is no java on PATH"
    assert not list(tmp_path.iterdir())


@pytest.fixture(autouse=True)
def nothing_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    """A broker that is started here is a failure of the test."""
    monkeypatch.setattr("redrive.testing.private_broker", lambda *_: pytest.fail("it was started"))


def arguments_of(name: str, folder: Path) -> list[str]:
    """What a command needs at least."""
    queue = ["shop@orders"] if name in ("requeue", "drain") else []
    return [] if name in ("demo", "package") else [*queue, "--archive", str(folder / "archive")]
