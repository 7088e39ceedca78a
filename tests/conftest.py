"""What all tests share: the private broker that redrive gives to its users' tests, and the version
matrix's table.

A matrix is several runs of pytest. Each appends what it ran, and what failed, to the file
REDRIVE_TEST_TABLE and prints the table so far, so the last run prints all of it, above pytest's own
summary line.
"""

from __future__ import annotations

import gc
import os
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, Phase, settings

from effort import IS_NIGHTLY, effort
from redrive.topology.broker_version import BrokerVersion
from text_table import aligned
from times import TimesPlugin

if TYPE_CHECKING:
    from redrive.testing import Broker

# The links at the top of the repository are names of packages, too: with the root on the path, as
# `python -m pytest` has it, a second copy of each part could be imported through them.
_ROOT = Path(__file__).resolve().parents[1]
sys.path[:] = [entry for entry in sys.path if Path(entry or os.curdir).resolve() != _ROOT]

# How long an example takes says something of the machine, and nothing of redrive.
settings.register_profile(
    "redrive",
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
    max_examples=int(os.environ.get("REDRIVE_TEST_EXAMPLES", effort(25, nightly=200))),
    # Of a mutant it is enough to know that it dies; the smallest example takes minutes.
    phases=[
        one for one in Phase if one is not Phase.shrink or "MUTANT_UNDER_TEST" not in os.environ
    ],
)
settings.load_profile("redrive")

if IS_NIGHTLY:  # a test does ten times as much then, beside others
    os.environ.setdefault("PYTEST_TIMEOUT", "1200")

pytest_plugins = ["redrive.testing.plugin", "pytester"]

_UNIT = Path(__file__).parent / "unit"
_OWN_BROKERS = frozenset({"rabbitmq_broker", "broker", "secured", "strict_broker"})
"""The fixtures that start a broker for some tests alone, once in each process that runs one."""
_FAILED = "failed: "
"""How the table's lines of tests that failed begin."""
_OUTCOMES = ("passed", "failed", "error", "skipped")
_started = pytest.StashKey[float]()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--versions",
        action="store_true",
        help="run only the tests whose result depends on the version of RabbitMQ",
    )
    parser.addoption("--times", type=Path, help="append what each test costs to this file")


def pytest_configure(config: pytest.Config) -> None:
    path = config.getoption("--times")
    if path is not None:
        config.pluginmanager.register(TimesPlugin(path.resolve()))


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    # What is collected stays to the end: to look through it for garbage, again and again in each
    # process, finds none.
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    kept = [item for item in items if not _is_left_out(item, config)]
    if not IS_NIGHTLY:
        kept = _each_value_once(kept)
    config.hook.pytest_deselected(items=list(set(items).difference(kept)))
    # First those that have a broker of their own. They take longest, and among the first of a run
    # they are one process's, for which each of these brokers starts once.
    items[:] = sorted(kept, key=lambda item: not _has_its_own_broker(item))


def _is_left_out(item: pytest.Item, config: pytest.Config) -> bool:
    if config.getoption("--versions") and item.get_closest_marker("versions") is None:
        return True
    return not IS_NIGHTLY and item.get_closest_marker("nightly") is not None


def _each_value_once(items: list[pytest.Item]) -> list[pytest.Item]:
    """Of each test of the wire, as many runs as try each value of each of its parameters once, not
    in every combination: those are for the night. Rules are tried in all, and so is the contract in
    memory."""
    products: dict[str, list[tuple[pytest.Item, set[tuple[str, int]]]]] = {}
    for item in items:
        call = getattr(item, "callspec", None)
        if (
            call is not None
            and len(call.params) > 1
            and _UNIT not in item.path.parents
            and call.params.get("broker_kind") != "memory"
        ):
            runs = products.setdefault(item.nodeid.partition("[")[0], [])
            runs.append((item, {(name, id(value)) for name, value in call.params.items()}))
    left_out: set[pytest.Item] = set()
    for runs in products.values():
        missing = set().union(*(values for _, values in runs))
        while missing:
            best = max(runs, key=lambda run: len(run[1] & missing))
            runs.remove(best)
            missing -= best[1]
        left_out.update(item for item, _ in runs)
    return [item for item in items if item not in left_out]


def _has_its_own_broker(item: pytest.Item) -> bool:
    return not _OWN_BROKERS.isdisjoint(getattr(item, "fixturenames", ()))


@pytest.fixture
def broker_version(rabbitmq_url: str, _rabbitmq_broker_in_use: Broker) -> BrokerVersion:
    """The version of the broker that the test runs on."""
    return BrokerVersion.parse(_rabbitmq_broker_in_use.version)


def pytest_sessionstart(session: pytest.Session) -> None:
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        # A shell has what it runs in the background ignore Ctrl-C, and all that these tests start
        # would inherit that.
        signal.signal(signal.SIGINT, signal.default_int_handler)
    session.config.stash[_started] = time.monotonic()


def pytest_unconfigure() -> None:
    # DuckDB tells of whatever is left of it when the interpreter has ended.
    gc.unfreeze()


def pytest_sessionfinish(session: pytest.Session) -> None:
    # Now, and not when this process exits: pytest-xdist kills one that takes ten seconds for that,
    # and what it has covered would be lost.
    coverage = sys.modules.get("coverage")
    if coverage is not None and (running := coverage.Coverage.current()) is not None:
        running.save()


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    # Imported only now: pytest rewrites the plugin's asserts when it loads it by its name.
    from redrive.testing.plugin import brokers_used

    table = os.environ.get("REDRIVE_TEST_TABLE")
    if not table or hasattr(config, "workerinput"):
        # what processes that run a share of the tests have to say, the one that started them says
        # for all
        return
    brokers = "; ".join(brokers_used(config)) or "no broker"
    counts = (str(len(terminalreporter.stats.get(outcome, []))) for outcome in _OUTCOMES)
    seconds = f"{time.monotonic() - config.stash[_started]:.0f} s"
    label = os.environ.get("REDRIVE_TEST_LABEL", "tests")
    failed = [
        f"{_FAILED}{report.nodeid} ({label}, {brokers})"
        for outcome in ("failed", "error")
        for report in terminalreporter.stats.get(outcome, [])
    ]
    with Path(table).open("a", encoding="utf-8") as rows:
        rows.writelines(
            f"{line}\n" for line in ["\t".join([label, brokers, *counts, seconds]), *failed]
        )
    _print_table(terminalreporter, Path(table).read_text(encoding="utf-8"))


def _print_table(terminalreporter: pytest.TerminalReporter, text: str) -> None:
    lines = text.splitlines()
    rows = [
        ["tests", "broker", *_OUTCOMES, "time"],
        *(line.split("\t") for line in lines if not line.startswith(_FAILED)),
    ]
    terminalreporter.write_sep("=", "what ran on which broker")
    terminalreporter.write_line(aligned(rows))
    for line in lines:
        if line.startswith(_FAILED):
            terminalreporter.write_line(line)


@pytest.fixture(autouse=True, scope="session")
def _journal_of_its_own(tmp_path_factory: pytest.TempPathFactory) -> None:
    """No test writes into the journal of the user who runs them, or is answered from what another
    command has found: those that want that say so."""
    os.environ["XDG_STATE_HOME"] = str(tmp_path_factory.mktemp("state"))
    os.environ["REDRIVE_INDEX"] = "off"
