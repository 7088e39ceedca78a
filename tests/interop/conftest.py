"""The peers: services in PHP and Java, run as processes of their own."""

from collections.abc import Callable

import pytest

from interop.peer import JAVA_NAMES, PHP_NAMES, NotInstalled, Peer, java_command, php_command
from prerequisites import unavailable


def _command_of(make: Callable[[], tuple[str, ...]]) -> tuple[str, ...]:
    """What runs a peer."""
    try:
        return make()
    except NotInstalled as missing:
        unavailable(*missing.packages)


@pytest.fixture(scope="session")
def php_program() -> tuple[str, ...]:
    """What runs the PHP peer."""
    return _command_of(php_command)


@pytest.fixture(scope="session")
def java_program(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, ...]:
    """What runs the Java peer."""
    return _command_of(lambda: java_command(tmp_path_factory.mktemp("classes")))


@pytest.fixture
def php(php_program: tuple[str, ...], rabbitmq_url: str) -> Peer:
    """A PHP service in the test's virtual host."""
    return Peer("php", php_program, rabbitmq_url, PHP_NAMES)


@pytest.fixture
def java(java_program: tuple[str, ...], rabbitmq_url: str) -> Peer:
    """A Java service in the test's virtual host."""
    return Peer("java", java_program, rabbitmq_url, JAVA_NAMES)


@pytest.fixture(params=["php", "java"])
def peer(request: pytest.FixtureRequest) -> Peer:
    """Each peer in turn."""
    found: Peer = request.getfixturevalue(request.param)
    return found
