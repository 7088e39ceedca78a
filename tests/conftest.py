"""What all tests share: the private broker that redrive gives to its users' tests, and the version matrix's table.

A matrix is several runs of pytest. Each appends what it ran to the file REDRIVE_TEST_TABLE and prints the table so
far, so the last run prints all of it, above pytest's own summary line.
"""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

# How long an example takes says something of the machine, and nothing of redrive.
settings.register_profile("redrive", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("redrive")

pytest_plugins = ["redrive.testing.plugin", "pytester"]

_OUTCOMES = ("passed", "failed", "error", "skipped")
_started = pytest.StashKey[float]()


def pytest_sessionstart(session: pytest.Session) -> None:
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        # A shell has what it runs in the background ignore Ctrl-C, and all that these tests start would inherit that.
        signal.signal(signal.SIGINT, signal.default_int_handler)
    session.config.stash[_started] = time.monotonic()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    # Imported only now: pytest rewrites the plugin's asserts when it loads it by its name.
    from redrive.testing.plugin import brokers_used

    table = os.environ.get("REDRIVE_TEST_TABLE")
    if not table or hasattr(config, "workerinput"):
        return  # what processes that run a share of the tests have to say, the one that started them says for all
    brokers = "; ".join(brokers_used(config)) or "no broker"
    counts = (str(len(terminalreporter.stats.get(outcome, []))) for outcome in _OUTCOMES)
    seconds = f"{time.monotonic() - config.stash[_started]:.0f} s"
    row = "\t".join([os.environ.get("REDRIVE_TEST_LABEL", "tests"), brokers, *counts, seconds])
    with Path(table).open("a", encoding="utf-8") as rows:
        rows.write(row + "\n")
    _print_table(terminalreporter, Path(table).read_text(encoding="utf-8"))


def _print_table(terminalreporter: pytest.TerminalReporter, text: str) -> None:
    rows = [["tests", "broker", *_OUTCOMES, "time"], *(line.split("\t") for line in text.splitlines())]
    widths = [max(len(row[column]) for row in rows if column < len(row)) for column in range(len(rows[0]))]
    terminalreporter.write_sep("=", "what ran on which broker")
    for row in rows:
        terminalreporter.write_line("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=False)).rstrip())


@pytest.fixture(autouse=True, scope="session")
def _journal_of_its_own(tmp_path_factory: pytest.TempPathFactory) -> None:
    """No test writes into the journal of the user who runs them."""
    os.environ["XDG_STATE_HOME"] = str(tmp_path_factory.mktemp("state"))
