"""redrive on the dead-letter queues of services that know nothing of it: each framework fails
messages of three causes in its usual way, one cause is requeued, and the framework's own service
handles exactly these."""

from collections import Counter
from pathlib import Path

import pytest

from contract.plain import depth
from effort import some_of
from interop.framework import CAUSES, FRAMEWORKS, MANY, Framework
from interop.peer import NotInstalled
from prerequisites import unavailable
from redrive import FailedQueue
from redrive.failures.message.groups import Groups
from waiting import wait_until


def ids_of(cause: str) -> list[str]:
    """The orders that failed of a cause."""
    return [f"order-{number}" for number in range(CAUSES.index(cause), MANY, len(CAUSES))]


@pytest.fixture(params=some_of(FRAMEWORKS), ids=lambda framework: framework.name)
def framework(request: pytest.FixtureRequest, tmp_path: Path) -> Framework:
    """Each framework in turn."""
    found: Framework = request.param
    try:
        found.command(tmp_path)
    except NotInstalled as missing:
        unavailable(*missing.packages)
    return found


def test_what_a_framework_failed_is_understood_requeued_and_handled_by_it(
    framework: Framework, rabbitmq_url: str, rabbitmq_management_url: str, tmp_path: Path
) -> None:
    framework.fail(rabbitmq_url, tmp_path, MANY)
    wait_until(
        lambda: depth(rabbitmq_url, framework.dead_letters) == MANY,
        "all messages are in the dead-letter queue",
    )
    failed = FailedQueue(
        rabbitmq_url, framework.dead_letters, management_url=rabbitmq_management_url
    )
    messages = list(failed.browse())

    assert {message.dialect for message in messages} == {framework.dialect}
    assert {str(message.way_back) for message in messages} == {framework.queue}
    assert {message.first_way for message in messages} == {framework.first_way}
    groups = Groups()
    groups.add(messages)
    counts = {len(ids_of(cause)) for cause in CAUSES} if framework.errors else {MANY}
    assert {group.count for group in groups.largest_first} == counts
    assert len(groups.largest_first) == (len(CAUSES) if framework.errors else 1)
    types = {message.error_type for message in messages}
    assert types == (set(framework.errors.values()) if framework.errors else {None})

    expected = ids_of("bank")
    report = failed.requeue(framework.filter_of("bank"))

    assert (report.requeued, report.skipped, report.failed) == (
        len(expected),
        MANY - len(expected),
        [],
    )
    handled = framework.succeed(rabbitmq_url, tmp_path, len(expected))
    assert Counter(handled) == Counter(expected)
    wait_until(
        lambda: depth(rabbitmq_url, framework.queue) == 0, "all that was requeued is handled"
    )
    assert depth(rabbitmq_url, framework.dead_letters) == MANY - len(expected)
