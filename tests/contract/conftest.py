"""One service in a virtual host of its own, once for each shell."""

from collections import Counter
from pathlib import Path

import pytest

from contract import memory
from contract.shells import SHELLS, Shell
from contract.support import Service
from redrive.topology.model import QueueType

if memory.ASKED_FOR:
    from contract.memory import _memory_broker_of_the_run, rabbitmq_url  # noqa: F401

_HERE = Path(__file__).parent
_left_out: Counter[str] = Counter()
_OUTPUT = "redrive_left_out"


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leaves out what can't run on the broker in memory, where that was asked for."""
    if not memory.ASKED_FOR:
        return
    reasons = {
        item: reason
        for item in items
        if _HERE in item.path.parents and (reason := memory.why_not(item)) is not None
    }
    _left_out.update(
        f"{item.path.name}::{getattr(item, 'originalname', item.name)}: {reason}"
        for item, reason in reasons.items()
    )
    items[:] = [item for item in items if item not in reasons]
    config.hook.pytest_deselected(items=list(reasons))


def pytest_sessionfinish(session: pytest.Session) -> None:
    # Of pytest-xdist: each worker collects all tests, and only the controller prints.
    output = getattr(session.config, "workeroutput", None)
    if output is not None:
        output[_OUTPUT] = dict(_left_out)


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: object, error: object) -> None:
    """A worker of pytest-xdist has ended: takes over what it tells."""
    _left_out.update(
        {
            line: count
            for line, count in getattr(node, "workeroutput", {}).get(_OUTPUT, {}).items()
            if line not in _left_out
        }
    )


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Says what was left out, and why."""
    for line, count in sorted(_left_out.items()):
        terminalreporter.write_line(f"not on the broker in memory: {line} ({count})")


@pytest.fixture(params=SHELLS, ids=lambda shell: shell.name)
def shell(request: pytest.FixtureRequest) -> Shell:
    """Each shell in turn."""
    found: Shell = request.param
    return found


@pytest.fixture
def queue_type() -> QueueType:
    """The type of the service's queues; `both_types` runs a test with each."""
    return "quorum"


@pytest.fixture
def service(rabbitmq_url: str, shell: Shell, queue_type: QueueType) -> Service:
    """A service, nothing of it declared yet."""
    return Service(rabbitmq_url, shell, queue_type=queue_type)
