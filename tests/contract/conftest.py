"""One service in a virtual host of its own, once for each shell."""

import pytest

from contract.shells import SHELLS, Shell
from contract.support import Service
from redrive.topology.model import QueueType


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
