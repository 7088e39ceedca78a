"""The rights that `redrive doctor` says a role needs: with them it works, and each that is missing is found."""

import contextlib
import re
from collections.abc import Callable, Iterator, Sequence
from typing import get_args

import pytest

from contract.administration import Administration
from contract.support import Recorder, Service, always_fails, retrying
from redrive import FailedQueue, Publisher, Subscriber
from redrive.pubsub.blocking.connection import Connector
from redrive.pubsub.blocking.survey import missing_rights
from redrive.topology.model import Subscription
from redrive.topology.permissions import Right, Role, least_rights

QUEUE = "shop@orders"
SUBSCRIPTION = Subscription(QUEUE, ["order.*"])
ROLES: tuple[Role, ...] = get_args(Role)

As = Callable[[Sequence[Right]], contextlib.AbstractContextManager[str]]


@pytest.fixture
def user_with(rabbitmq_management_url: str, rabbitmq_url: str) -> As:
    """The address of a user with exactly these rights."""
    administration = Administration(rabbitmq_management_url, rabbitmq_url)

    @contextlib.contextmanager
    def user(rights: Sequence[Right]) -> Iterator[str]:
        granted = {verb: _pattern(right.name for right in rights if right.verb == verb) for verb in ("configure", "write", "read")}
        with administration.user("least", **granted) as url:
            yield url

    return user


def _pattern(names: Iterator[str]) -> str:
    return f"^({'|'.join(map(re.escape, names)) or '$nobody'})$"


def test_a_publisher_publishes(rabbitmq_url: str, user_with: As) -> None:
    service = Service(rabbitmq_url)
    recorder = Recorder()
    with service.subscriber(recorder), user_with(least_rights("publisher", SUBSCRIPTION)) as url, Publisher(url) as publisher:
        recorder.wait_for_handled([publisher.publish("socks", "order.paid", mandatory=True)])


def test_a_subscriber_retries_and_sets_aside(rabbitmq_url: str, user_with: As) -> None:
    service = Service(rabbitmq_url)
    service.declare()
    message_id = service.publish()
    with user_with(least_rights("subscriber", SUBSCRIPTION)) as url:
        subscriber = Subscriber(url, QUEUE, retry=retrying(1), declare=False)
        subscriber.handler(always_fails)
        subscriber.start()
        try:
            (failed,) = service.wait_for_failed()
        finally:
            subscriber.stop()
            subscriber.wait()
    assert (failed.message_id, failed.retries) == (message_id, 1)


def test_a_declarer_declares(user_with: As) -> None:
    with user_with(least_rights("declarer", SUBSCRIPTION)) as url:
        Subscriber(url, QUEUE, ["order.*"]).declare()


def test_an_operator_looks_and_sends_back(rabbitmq_url: str, user_with: As) -> None:
    ids = Service(rabbitmq_url).fail(3)
    with user_with(least_rights("operator", SUBSCRIPTION)) as url:
        failed = FailedQueue(url, QUEUE)
        assert [message.message_id for message in failed.browse()] == ids
        assert failed.requeue().requeued == 3


@pytest.mark.parametrize("role", ROLES)
def test_a_right_that_is_missing_is_found(rabbitmq_url: str, user_with: As, role: Role) -> None:
    Service(rabbitmq_url).declare()
    rights = least_rights(role, SUBSCRIPTION)
    # One of each kind: each is asked for in a way of its own.
    for missing in {(right.verb, right.kind): (right.verb, right.name) for right in rights}.values():
        left = [right for right in rights if (right.verb, right.name) != missing]
        with user_with(left) as url, Connector(url, "doctor").blocking() as connection:
            found = {(right.verb, right.name) for right in missing_rights(connection, rights)}
        assert found == {missing}
