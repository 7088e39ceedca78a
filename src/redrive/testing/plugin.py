"""A pytest plugin that provides a real RabbitMQ for a service's tests, or an in-memory model of it.

    # conftest.py
    pytest_plugins = ["redrive.testing.plugin"]

    # test_orders.py
    def test_an_order_is_stored(rabbitmq_url): ...
    def test_an_order_is_set_aside(memory_broker): ...

The broker is started when the first test asks for it and runs until the last one ends; each test
gets its own virtual host. pytest-xdist's processes share a broker, except for tests that ask for
the broker itself: these get one per process that nobody else uses. If no broker can be started,
tests fail with an error that says what to install; they are never skipped.
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
    """Return the brokers that this run has started so far, such as `RabbitMQ 4.3.6 (container
    rabbitmq:4.3-management)`."""
    return config.stash[_brokers].copy()


def note_broker(config: pytest.Config, broker: str) -> None:
    """Note a broker that this run has started, for `brokers_used` and the summary."""
    config.stash[_brokers].append(broker)


def pytest_configure(config: pytest.Config) -> None:
    config.stash[_brokers] = []
    config.stash[_shared] = contextlib.ExitStack()


def pytest_sessionfinish(session: pytest.Session) -> None:
    # Here rather than in the fixture: this may wait for the other processes' last tests, and that
    # time must not count for a test of this one.
    session.config.stash[_shared].close()
    # With pytest-xdist the workers have the brokers, but only the controller prints.
    output = getattr(session.config, "workeroutput", None)
    if output is not None:
        output[_BROKERS] = brokers_used(session.config)


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: object, error: object) -> None:
    """Take over the list of brokers from a pytest-xdist worker that has ended."""
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
    """Show the end of the broker's log with a failed test, if the broker belongs to this
    process."""
    report = yield
    broker: Broker | None = getattr(item, "funcargs", {}).get("rabbitmq_broker")
    if report.failed and broker is not None and (lines := broker.log().splitlines()):
        report.sections.append((f"end of the log of {broker}", "\n".join(lines[-_LOG_LINES:])))
    return report


@pytest.fixture
def memory_broker() -> Iterator[MemoryBroker]:
    """An in-memory broker for this test, whose time stands still until the test turns it."""
    from redrive.testing import MemoryBroker

    with MemoryBroker() as broker:
        yield broker


@pytest.fixture(scope="session")
def rabbitmq_broker(pytestconfig: pytest.Config) -> Iterator[Broker]:
    """A private broker of this process, to stop, kill, pause and restart."""
    # Imported here, so that a run without a broker doesn't pay for it.
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
    """The private broker shared by all processes of this test run; none of them may stop it."""
    process: dict[str, str] | None = getattr(pytestconfig, "workerinput", None)
    if process is None:
        own: Broker = request.getfixturevalue("rabbitmq_broker")
        return own
    from redrive.testing.shared_broker import shared_broker

    # The folder of pytest-xdist's controller is the parent of each worker's.
    folder = tmp_path_factory.getbasetemp().parent / "rabbitmq"
    with _or_fail():
        shared = pytestconfig.stash[_shared].enter_context(
            shared_broker(folder, process["workerid"])
        )
    note_broker(pytestconfig, shared.label)
    return shared.broker


@pytest.fixture
def _rabbitmq_broker_in_use(request: pytest.FixtureRequest) -> Broker:
    """The process's own broker if the test or one of its fixtures asks for it, otherwise the shared
    one."""
    own = "rabbitmq_broker" in request.fixturenames
    broker: Broker = request.getfixturevalue(
        "rabbitmq_broker" if own else "_shared_rabbitmq_broker"
    )
    return broker


@pytest.fixture
def rabbitmq_url(_rabbitmq_broker_in_use: Broker, request: pytest.FixtureRequest) -> Iterator[str]:
    """The AMQP URL of a virtual host created for this test, and deleted after it."""
    broker = _rabbitmq_broker_in_use
    own = "rabbitmq_broker" in request.fixturenames
    if broker.kind != "external":
        # An earlier test may have stopped or paused it, and failed before starting it again.
        broker.start()
    name = f"test-{uuid.uuid4().hex[:12]}"
    url = broker.create_virtual_host(name)
    if own and broker.kind != "external" and not _takes_queues(url):
        # RabbitMQ 3.10.8, killed by a test under load, was seen to answer every later declaration
        # of a quorum queue with an internal error, which made the following tests fail.
        broker.restart()
    with _broker_failures() as failures:
        yield url
    if broker.kind != "external":
        broker.start()
    if not failures:
        broker.delete_virtual_host(name)


@contextlib.contextmanager
def _broker_failures() -> Iterator[list[str]]:
    """Collect redrive's log messages about connections that the broker closed because of an
    internal error.

    In that case the virtual host is kept until the broker ends. The process that dead-letters for a
    quorum queue which the broker could not start in time keeps looking for that queue, and ends
    five minutes later if none of its name exists. RabbitMQ 4.3.6 was seen to fail from then on for
    each queue that dead-letters at least once: `rabbit_fifo_dlx_sup` had restarted the process too
    often, and was gone.
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
    """Return whether a quorum queue can be declared there."""
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
    """The URL of the broker's management HTTP API. Its user is in the AMQP URL, `guest` for a
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
    """Fail the test with a short message if no broker can be started."""
    from redrive.errors import RedriveError

    try:
        yield
    except RedriveError as error:
        pytest.fail(str(error), pytrace=False)
