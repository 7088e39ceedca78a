"""A pytest plugin: the real RabbitMQ for a service's own tests.

    # conftest.py
    pytest_plugins = ["redrive.testing.plugin"]

    # test_orders.py
    def test_an_order_is_stored(rabbitmq_url): ...

The broker is started when the first test asks for it and is there until the last one ends; each test has a virtual
host of its own. What can't be had is an error that says what to install, and never a skipped test.
"""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

    from redrive.testing import Broker

_brokers = pytest.StashKey[list[str]]()
_BROKERS = "redrive_brokers"


def brokers_used(config: pytest.Config) -> list[str]:
    """The brokers that this run has started so far, such as `RabbitMQ 4.3.6 (container rabbitmq:4.3-management)`."""
    return config.stash[_brokers].copy()


def pytest_configure(config: pytest.Config) -> None:
    config.stash[_brokers] = []


def pytest_sessionfinish(session: pytest.Session) -> None:
    # Of pytest-xdist: each worker has a broker of its own, and only the controller prints.
    output = getattr(session.config, "workeroutput", None)
    if output is not None:
        output[_BROKERS] = brokers_used(session.config)


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: object, error: object) -> None:
    """A worker of pytest-xdist has ended: takes over what it tells of its brokers."""
    config: pytest.Config = node.config  # type: ignore[attr-defined]
    for broker in getattr(node, "workeroutput", {}).get(_BROKERS, []):
        if broker not in config.stash[_brokers]:
            config.stash[_brokers].append(broker)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    for broker in brokers_used(config):
        terminalreporter.write_line(broker)


@pytest.fixture(scope="session")
def rabbitmq_broker(pytestconfig: pytest.Config) -> Iterator[Broker]:
    """The private broker of this test run, to stop, kill, pause and restart."""
    # Here and not above: a run that needs no broker doesn't pay for it.
    from redrive.errors import RedriveError
    from redrive.testing import private_broker

    try:
        broker = private_broker()
        broker.__enter__()
    except RedriveError as error:
        pytest.fail(str(error), pytrace=False)
    with broker:
        pytestconfig.stash[_brokers].append(str(broker))
        yield broker


@pytest.fixture
def rabbitmq_url(rabbitmq_broker: Broker) -> Iterator[str]:
    """The AMQP URL of a virtual host that was made for this test, and is deleted after it."""
    if rabbitmq_broker.kind != "external":
        # A test before this one may have stopped or paused it, and failed before it could start it again.
        rabbitmq_broker.start()
    name = f"test-{uuid.uuid4().hex[:12]}"
    yield rabbitmq_broker.create_virtual_host(name)
    if rabbitmq_broker.kind != "external":
        rabbitmq_broker.start()
    rabbitmq_broker.delete_virtual_host(name)


@pytest.fixture(scope="session")
def rabbitmq_management_url(rabbitmq_broker: Broker) -> str:
    """The URL of the broker's management HTTP API; its user is in the AMQP URL, `guest` for a private broker."""
    url = rabbitmq_broker.management_url
    if url is None:
        pytest.fail("The management API of this broker does not answer.\nSet REDRIVE_MANAGEMENT_URL to where it listens.", pytrace=False)
    return url
