"""The contract on the broker in memory, in place of RabbitMQ: REDRIVE_TEST_BROKER=memory.

REDRIVE_TEST_MEMORY_VERSION says whose behaviour it has; 4.3 by default.
"""

import itertools
import os
from collections.abc import Iterator

import pytest

from redrive.testing import MemoryBroker

ASKED_FOR = os.environ.get("REDRIVE_TEST_BROKER") == "memory"

NEEDS_MORE = {
    "rabbitmq_management_url": "asks the management API",
    "rabbitmq_broker": "controls the broker itself: users, rights, alarms, its end",
}
"""Fixtures that the broker in memory has nothing for, and what a test wants of them."""

NOT_MODELLED = {
    "test_a_job_is_found_and_resumed_by_the_teams_journal_from_another_machine": (
        "the team's journal is a stream, which the model has not"
    )
}
"""Tests of what the model does not have, by the name of their function, and what that is."""

_hosts = itertools.count(1)


def why_not(item: pytest.Item) -> str | None:
    """Why a test can't run on the broker in memory; None for one that can."""
    for fixture, reason in NEEDS_MORE.items():
        if fixture in getattr(item, "fixturenames", ()):
            return reason
    return NOT_MODELLED.get(getattr(item, "originalname", item.name))


@pytest.fixture(scope="session")
def _memory_broker_of_the_run(pytestconfig: pytest.Config) -> Iterator[MemoryBroker]:
    # Imported only now: pytest rewrites the plugin's asserts when it loads it by its name.
    from redrive.testing.plugin import note_broker

    with MemoryBroker(
        os.environ.get("REDRIVE_TEST_MEMORY_VERSION", "4.3"), real_time=True
    ) as broker:
        note_broker(pytestconfig, f"a model of RabbitMQ {broker.version} in memory")
        yield broker


@pytest.fixture
def rabbitmq_url(_memory_broker_of_the_run: MemoryBroker) -> str:
    """The AMQP URL of a virtual host that no other test has."""
    return _memory_broker_of_the_run.create_virtual_host(f"test-{next(_hosts)}")
