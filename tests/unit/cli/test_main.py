"""The command without a broker: help, usage, and what may never reach a user."""

import json
import re
import subprocess
import sys

import pytest

from redrive.cli.__main__ import main
from redrive.errors import BrokerUnavailable

COMMANDS = [
    "declare",
    "status",
    "publish",
    "run",
    "exporter",
    "failed",
    "failed list",
    "failed show",
    "failed requeue",
    "failed purge",
    "demo",
]


def test_alone_it_prints_its_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 0
    assert "Usage: redrive" in capsys.readouterr().out


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_help_without_secrets(
    capsys: pytest.CaptureFixture[str], command: str
) -> None:
    assert main([*command.split(), "--help"]) == 0
    told = capsys.readouterr().out
    assert f"Usage: redrive {command}" in told
    assert "guest:guest" not in told


@pytest.mark.parametrize("command", [command for command in COMMANDS if command != "failed"])
def test_every_help_has_an_example_and_fits_a_terminal(
    capsys: pytest.CaptureFixture[str], command: str
) -> None:
    main([*command.split(), "--help"])
    told = capsys.readouterr().out
    assert f"  redrive {command}" in told
    assert max(map(len, told.splitlines())) <= 80


def test_the_version_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0
    assert capsys.readouterr().out.startswith("redrive ")


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["declaer"], "No such command 'declaer'"),
        (["status", "--colour"], "No such option: --colour"),
        (["failed", "show", "q"], "Missing argument"),
        (["status", "q", "--output", "xml"], "Invalid value for '--output'"),
    ],
)
def test_a_usage_error_is_two_lines(
    capsys: pytest.CaptureFixture[str], arguments: list[str], problem: str
) -> None:
    assert main(arguments) == 2
    lines = capsys.readouterr().err.splitlines()
    assert problem in lines[0]
    assert lines[1].startswith("See: redrive")
    assert len(lines) == 2


@pytest.mark.parametrize("form", [["--output", "json"], ["--output=json"]])
def test_with_json_a_usage_error_is_json(
    capsys: pytest.CaptureFixture[str], form: list[str]
) -> None:
    assert main(["status", "--colour", *form]) == 2
    assert capsys.readouterr().err.startswith('{"error": {"kind": "UsageError"')


def test_behind_two_dashes_nothing_is_an_option(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["publish", "--url", "amqp://127.0.0.1:9/", "key", "--", "--output", "json"]) == 2
    assert capsys.readouterr().err.startswith("Error: ")


def raising(monkeypatch: pytest.MonkeyPatch, error: BaseException) -> None:
    """Makes the status command raise."""

    def broken(*_: object) -> None:
        raise error

    monkeypatch.setattr("redrive.cli.status.depths", broken)


def test_a_defect_asks_to_be_reported(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    raising(monkeypatch, RuntimeError("amqp://user:hunter2@host/\nbroke"))
    assert main(["status", "q"]) == 2
    assert capsys.readouterr().err.splitlines() == [
        "Error: unexpected RuntimeError: amqp://user:***@host/ broke",
        "This is a bug in redrive: please report it. REDRIVE_DEBUG=1 shows the traceback.",
    ]


def test_with_debug_the_traceback_is_shown_without_secrets(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REDRIVE_DEBUG", "1")
    raising(monkeypatch, RuntimeError("amqp://user:hunter2@host/"))
    assert main(["status", "q"]) == 2
    told = capsys.readouterr().err
    assert "Traceback (most recent call last):" in told
    assert "hunter2" not in told


def test_ctrl_c_is_130_and_no_trace(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    raising(monkeypatch, KeyboardInterrupt())
    assert main(["status", "q"]) == 130
    assert "Traceback" not in capsys.readouterr().err


def test_what_the_broker_says_on_several_lines_is_one_problem_and_a_remedy(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    raising(monkeypatch, BrokerUnavailable("host:1", "it says\nmuch"))
    assert main(["status", "q"]) == 2
    assert len(capsys.readouterr().err.splitlines()) == 2


def main_without(library: str, *words: str) -> tuple[int, str]:
    """What the command line says on stderr where a library is not installed, and its exit code."""
    program = (
        f"import sys; sys.modules[{library!r}] = None; "
        "import redrive.failures.queue.failed_count as counting; "
        "counting.depths = lambda *_: {'main': None}; from redrive.cli.__main__ import main; "
        f"sys.exit(main({list(words)!r}))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )
    return done.returncode, done.stderr


@pytest.mark.parametrize(
    ("library", "extra", "words"),
    [
        ("typer", "cli", ["status", "q"]),
        ("rich.cells", "cli", ["failed", "columns"]),
        # Each command of Spark is called in tests/packaging, where it is really missing.
        ("pyspark", "spark", ["spark", "requeue", "q", "--archive", "a"]),
    ],
)
def test_without_its_extra_it_says_what_to_install(
    library: str, extra: str, words: list[str]
) -> None:
    code, said = main_without(library, *words)
    assert code == 2
    assert re.fullmatch(
        rf"Error: this (command )?needs {library}, which is not installed\n"
        rf"pip install 'redrive\[{extra}\]'\n",
        said,
    )


def test_what_to_install_is_said_as_json_where_that_is_asked_for() -> None:
    code, said = main_without("typer", "status", "q", "--output", "json")
    assert code == 2
    assert json.loads(said)["error"]["remedy"] == "pip install 'redrive[cli]'"


def test_a_client_of_a_version_that_does_not_work_says_which_to_install(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    raising(
        monkeypatch,
        ImportError(
            "pika 2.0.0 does not work with this redrive: x.\nInstall one that was tested: y",
            name="pika",
        ),
    )
    assert main(["status", "q"]) == 2
    assert capsys.readouterr().err.splitlines() == [
        "Error: pika 2.0.0 does not work with this redrive: x.",
        "Install one that was tested: y",
    ]


def test_help_loads_nothing_heavy() -> None:
    program = (
        "import sys; from redrive.cli.__main__ import main; main(['status', '--help']); "
        "sys.exit(bool({'rich.progress', 'httpx', 'redrive.testing'} & set(sys.modules)))"
    )
    assert (
        subprocess.run([sys.executable, "-c", program], capture_output=True, check=False).returncode
        == 0
    )
