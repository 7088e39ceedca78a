"""One service in a virtual host of its own, once for each shell and each broker."""

import itertools
import os
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from contract.brokers import Kind, brokers_of, is_memory_alone, why_not_in_memory
from contract.shells import APP_SHELLS, ASYNC, BLOCKING, SHELLS, Shell
from contract.support import Service
from effort import IS_NIGHTLY
from redrive.testing import MemoryBroker
from redrive.topology.model import QueueType

_EACH_SHELL = [
    *(pytest.param(shell, id=shell.name) for shell in SHELLS),
    *(
        pytest.param(
            shell,
            id=shell.name,
            marks=pytest.mark.nightly("the shell's own engine; test_apps has what an app adds"),
        )
        for shell in APP_SHELLS
    ),
]
_PAIRS_OF_THE_NIGHT = ((BLOCKING, "classic"), (ASYNC, "quorum"))
"""Each shell is tried, and each type of queue; how they meet is for the night."""
_hosts = itertools.count(1)
_left_out: Counter[str] = Counter()
_OUTPUT = "redrive_left_out"


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run each test on the brokers that it is for."""
    if "rabbitmq_url" not in metafunc.fixturenames:
        return
    function = metafunc.function.__name__
    versions = metafunc.definition.get_closest_marker("versions") is not None
    kinds = brokers_of(metafunc.fixturenames, function, depends_on_version=versions)
    if not kinds:
        reason = why_not_in_memory(metafunc.fixturenames)
        _left_out[f"{metafunc.definition.path.name}::{function}: {reason}"] += 1
    # With none at all pytest would skip the test; it is left out below.
    metafunc.parametrize("broker_kind", kinds or ["rabbitmq"], indirect=True)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out the model in a run for versions, apps on RabbitMQ, RabbitMQ where only the model
    was asked for, and except at night the other type of queue of each shell."""
    left_out = [item for item in items if _is_left_out(item, config)]
    kept = set(items) - set(left_out)
    items[:] = [item for item in items if item in kept]
    config.hook.pytest_deselected(items=left_out)


def _is_left_out(item: pytest.Item, config: pytest.Config) -> bool:
    if Path(__file__).parent not in item.path.parents:
        return False
    parameters = getattr(getattr(item, "callspec", None), "params", {})
    pair = (parameters.get("shell"), parameters.get("queue_type"))
    if pair in _PAIRS_OF_THE_NIGHT and not IS_NIGHTLY:
        return True
    match parameters.get("broker_kind"):
        case "memory":
            return bool(config.getoption("--versions"))
        case "rabbitmq":
            return is_memory_alone() or parameters.get("shell") in APP_SHELLS
    return False


def pytest_sessionfinish(session: pytest.Session) -> None:
    # Of pytest-xdist: each worker collects all tests, and only the controller prints.
    output = getattr(session.config, "workeroutput", None)
    if output is not None:
        output[_OUTPUT] = dict(_left_out)


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: object, error: object) -> None:
    """A worker of pytest-xdist has ended: take over what it tells."""
    _left_out.update(
        {
            line: count
            for line, count in getattr(node, "workeroutput", {}).get(_OUTPUT, {}).items()
            if line not in _left_out
        }
    )


def pytest_terminal_summary(terminalreporter: "pytest.TerminalReporter") -> None:
    """Say what can't run on the broker in memory, where nothing else was asked for, and why."""
    for line in sorted(_left_out):
        terminalreporter.write_line(f"not on the broker in memory: {line}")


@pytest.fixture
def broker_kind(request: pytest.FixtureRequest) -> Kind:
    """The kind of broker that the test runs on."""
    found: Kind = request.param
    return found


@pytest.fixture(scope="session")
def _memory_broker_of_the_run(pytestconfig: pytest.Config) -> Iterator[MemoryBroker]:
    # Imported only now: pytest rewrites the plugin's asserts when it loads it by its name.
    from redrive.testing.plugin import note_broker

    version = os.environ.get("REDRIVE_TEST_MEMORY_VERSION", "4.3")
    with MemoryBroker(version, real_time=True) as broker:
        note_broker(pytestconfig, f"a model of RabbitMQ {broker.version} in memory")
        yield broker


@pytest.fixture
def rabbitmq_url(request: pytest.FixtureRequest, broker_kind: Kind) -> str:
    """The AMQP URL of a virtual host that no other test has."""
    if broker_kind == "memory":
        broker: MemoryBroker = request.getfixturevalue("_memory_broker_of_the_run")
        return broker.create_virtual_host(f"test-{next(_hosts)}")
    url: str = request.getfixturevalue("rabbitmq_url")
    return url


@pytest.fixture(params=_EACH_SHELL)
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
