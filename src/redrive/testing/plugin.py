"""A pytest plugin: the real RabbitMQ for a service's own tests, or a model of it in memory.

    # conftest.py
    pytest_plugins = ["redrive.testing.plugin"]

    # test_orders.py
    def test_an_order_is_stored(rabbitmq_url): ...
    def test_an_order_is_set_aside(memory_broker): ...

The broker is started when the first test asks for it and is there until the last one ends; each
test has a virtual host of its own. Processes of pytest-xdist share a broker, but for tests that ask
for the broker itself: those of a process have one that nobody else uses. What can't be had is an
error that says what to install, and never a skipped test.
"""

from __future__ import annotations

import contextlib
import logging
import uuid
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator

    from redrive.testing import Broker, MemoryBroker

_brokers = pytest.StashKey[list[str]]()
_shared = pytest.StashKey[contextlib.ExitStack]()
_BROKERS = "redrive_brokers"
_LOG_LINES = 40
_PROBE = "redrive-probe"


def brokers_used(config: pytest.Config) -> list[str]:
    """The brokers that this run has started so far, such as
    `RabbitMQ 4.3.6 (container rabbitmq:4.3-management)`."""
    return config.stash[_brokers].copy()


def note_broker(config: pytest.Config, broker: str) -> None:
    """Notes a broker that this run has started, for `brokers_used` and the summary."""
    config.stash[_brokers].append(broker)


def pytest_configure(config: pytest.Config) -> None:
    config.stash[_brokers] = []
    config.stash[_shared] = contextlib.ExitStack()


def pytest_sessionfinish(session: pytest.Session) -> None:
    # Here and not in the fixture: it may wait for the other processes' last tests, which is no time
    # of a test of this one.
    session.config.stash[_shared].close()
    # Of pytest-xdist: the workers have the brokers, and only the controller prints.
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


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    for broker in brokers_used(config):
        terminalreporter.write_line(broker)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Shows the end of the broker's log with a test that failed, where the broker is this
    process's."""
    report = yield
    broker: Broker | None = getattr(item, "funcargs", {}).get("rabbitmq_broker")
    if report.failed and broker is not None and (lines := broker.log().splitlines()):
        report.sections.append((f"end of the log of {broker}", "\n".join(lines[-_LOG_LINES:])))
    return report


@pytest.fixture
def memory_broker() -> Iterator[MemoryBroker]:
    """A broker in memory of this test's own, whose time stands still until the test turns it."""
    from redrive.testing import MemoryBroker

    with MemoryBroker() as broker:
        yield broker


@pytest.fixture(scope="session")
def rabbitmq_broker(pytestconfig: pytest.Config) -> Iterator[Broker]:
    """A private broker of this process, to stop, kill, pause and restart."""
    # Here and not above: a run that needs no broker doesn't pay for it.
    from redrive.testing import private_broker

    with _or_fail(), private_broker() as broker:
        note_broker(pytestconfig, str(broker))
        yield broker


@pytest.fixture(scope="session")
def _shared_rabbitmq_broker(
    request: pytest.FixtureRequest,
    pytestconfig: pytest.Config,
    tmp_path_factory: pytest.TempPathFactory,
) -> Broker:
    """The private broker of all processes of this test run, which none of them may stop."""
    process: dict[str, str] | None = getattr(pytestconfig, "workerinput", None)
    if process is None:
        own: Broker = request.getfixturevalue("rabbitmq_broker")
        return own
    from redrive.testing.shared_broker import shared_broker

    # The folder of pytest-xdist's controller is above the one of each worker.
    folder = tmp_path_factory.getbasetemp().parent / "rabbitmq"
    with _or_fail():
        shared = pytestconfig.stash[_shared].enter_context(
            shared_broker(folder, process["workerid"])
        )
    note_broker(pytestconfig, shared.label)
    return shared.broker


@pytest.fixture
def _rabbitmq_broker_in_use(request: pytest.FixtureRequest) -> Broker:
    """The broker itself, where the test or a fixture of it asks for that, else the one that is
    shared."""
    own = "rabbitmq_broker" in request.fixturenames
    broker: Broker = request.getfixturevalue(
        "rabbitmq_broker" if own else "_shared_rabbitmq_broker"
    )
    return broker


@pytest.fixture
def rabbitmq_url(_rabbitmq_broker_in_use: Broker, request: pytest.FixtureRequest) -> Iterator[str]:
    """The AMQP URL of a virtual host that was made for this test, and is deleted after it."""
    broker = _rabbitmq_broker_in_use
    own = "rabbitmq_broker" in request.fixturenames
    if broker.kind != "external":
        # A test before this one may have stopped or paused it, and failed before it could start it
        # again.
        broker.start()
    name = f"test-{uuid.uuid4().hex[:12]}"
    url = broker.create_virtual_host(name)
    if own and broker.kind != "external" and not _takes_queues(url):
        # RabbitMQ 3.10.8, killed by a test under load, was seen to answer each declaration of a
        # quorum queue with an internal error from then on, and so to fail the tests behind it.
        broker.restart()
    with _broker_failures() as failures:
        yield url
    if broker.kind != "external":
        broker.start()
    if not failures:
        broker.delete_virtual_host(name)


@contextlib.contextmanager
def _broker_failures() -> Iterator[list[str]]:
    """What redrive tells meanwhile of a broker that closed a connection because it failed itself.

    Then the virtual host is left to the broker's end. What dead-letters for a quorum queue that the
    broker could not start in time goes on looking for that queue, and ends five minutes later if
    there is none of its name. RabbitMQ 4.3.6 was seen to fail from then on at each queue that
    dead-letters at least once: `rabbit_fifo_dlx_sup` had restarted what ended too often, and was
    gone.
    """
    failures: list[str] = []

    class Listener(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            if "INTERNAL_ERROR" in (told := record.getMessage()):
                failures.append(told)

    listener, logger = Listener(logging.WARNING), logging.getLogger("redrive")
    logger.addHandler(listener)
    try:
        yield failures
    finally:
        logger.removeHandler(listener)


def _takes_queues(url: str) -> bool:
    """Whether a quorum queue can be declared there."""
    import pika

    try:
        with pika.BlockingConnection(pika.URLParameters(url)) as connection:
            channel = connection.channel()
            channel.queue_declare(_PROBE, durable=True, arguments={"x-queue-type": "quorum"})
            channel.queue_delete(_PROBE)
    except pika.exceptions.AMQPError:
        return False
    return True


@pytest.fixture
def rabbitmq_management_url(_rabbitmq_broker_in_use: Broker) -> str:
    """The URL of the broker's management HTTP API; its user is in the AMQP URL, `guest` for a
    private broker."""
    url = _rabbitmq_broker_in_use.management_url
    if url is None:
        pytest.fail(
            "The management API of this broker does not answer.\nSet REDRIVE_MANAGEMENT_URL to "
            "where it listens.",
            pytrace=False,
        )
    return url


@contextlib.contextmanager
def _or_fail() -> Iterator[None]:
    """A broker that can't be had fails the test, in a line or two."""
    from redrive.errors import RedriveError

    try:
        yield
    except RedriveError as error:
        pytest.fail(str(error), pytrace=False)
