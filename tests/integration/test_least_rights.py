"""The rights that `redrive doctor` says a role needs: with them it works, and each that is missing
is found."""

import contextlib
import logging
import uuid
from collections.abc import Callable, Iterator, Sequence
from datetime import timedelta
from typing import get_args

import pytest

from contract.administration import Administration
from contract.shells import Shell
from contract.support import Recorder, Service, always_fails, assert_it_helps, both_shells, retrying
from redrive import ExchangeFamily, FailedQueue, Message, Publisher, RedriveError, Retry, Subscriber
from redrive.pubsub.admin.amqp_survey import missing_rights
from redrive.pubsub.blocking.connection import Connector
from redrive.topology.doctor.permissions import VERBS, Right, Role, granted_pattern, least_rights
from redrive.topology.model import Subscription

pytestmark = pytest.mark.versions("which rights the broker asks for")

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
        granted = {verb: granted_pattern(rights, verb) for verb in VERBS}
        with administration.user(f"least-{uuid.uuid4().hex[:12]}", **granted) as url:
            yield url

    return user


def test_a_publisher_publishes(rabbitmq_url: str, user_with: As) -> None:
    service = Service(rabbitmq_url)
    recorder = Recorder()
    with (
        service.subscriber(recorder),
        user_with(least_rights("publisher", SUBSCRIPTION)) as url,
        Publisher(url) as publisher,
    ):
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


def test_an_operator_looks_and_requeues(rabbitmq_url: str, user_with: As) -> None:
    ids = Service(rabbitmq_url).fail(3)
    with user_with(least_rights("operator", SUBSCRIPTION)) as url:
        failed = FailedQueue(url, QUEUE)
        assert [message.message_id for message in failed.browse()] == ids
        assert failed.requeue().requeued == 3


def ask_for_a_long_wait(message: Message) -> None:
    """A handler that a minute of HTTP 429 meets."""
    raise Retry("too many requests", after=timedelta(hours=1))


@both_shells
def test_a_subscriber_that_may_not_use_the_ladder_retries_by_its_retry_queue_and_never_stands_still(
    rabbitmq_url: str, user_with: As, shell: Shell, caplog: pytest.LogCaptureFixture
) -> None:
    service = Service(rabbitmq_url, shell, retry=retrying(2))
    service.declare()
    ids = service.publish_numbered(10)
    with (
        caplog.at_level(logging.WARNING, "redrive"),
        user_with(least_rights("subscriber", SUBSCRIPTION)) as url,
        service.subscriber(ask_for_a_long_wait, url=url, declare=False, prefetch=2),
    ):
        failed = service.wait_for_failed(10)

    assert sorted(message.message_id or "" for message in failed) == sorted(ids)
    assert {(message.retries, message.reason) for message in failed} == {(2, "retries-exhausted")}
    lines = [
        record.getMessage()
        for record in caplog.records
        if "it can't wait 3600 s on the delay ladder" in record.getMessage()
    ]
    assert len(lines) == 20
    assert all(
        "is now in shop@orders@retry for 0.05 s" in line and "--role delayer" in line
        for line in lines
    )


@both_shells
def test_a_subscriber_that_may_not_declare_and_finds_no_ladder_retries_by_its_retry_queue(
    rabbitmq_url: str, shell: Shell
) -> None:
    service = Service(rabbitmq_url, shell, retry=retrying(2))
    service.declare()
    message_id = service.publish()
    with service.subscriber(ask_for_a_long_wait, declare=False):
        (failed,) = service.wait_for_failed()
    assert (failed.message_id, failed.retries, failed.reason) == (
        message_id,
        2,
        "retries-exhausted",
    )


@both_shells
def test_a_subscriber_that_may_declare_its_queues_and_not_the_ladder_retries_by_its_retry_queue(
    rabbitmq_url: str, user_with: As, shell: Shell
) -> None:
    service = Service(rabbitmq_url, shell, retry=retrying(2))
    service.declare()
    message_id = service.publish()
    rights = [
        right for role in ("declarer", "subscriber") for right in least_rights(role, SUBSCRIPTION)
    ]
    with user_with(rights) as url, service.subscriber(ask_for_a_long_wait, url=url):
        (failed,) = service.wait_for_failed()
    assert (failed.message_id, failed.retries, failed.reason) == (
        message_id,
        2,
        "retries-exhausted",
    )


@both_shells
def test_a_delayer_delays_and_has_its_retries_wait_as_long_as_they_ask_for(
    rabbitmq_url: str, user_with: As, shell: Shell
) -> None:
    family = ExchangeFamily(tick=timedelta(milliseconds=50))
    service = Service(rabbitmq_url, shell, retry=retrying(1, timedelta(hours=1)))
    subscription = Subscription(QUEUE, ["order.*"], family)
    rights = [
        right
        for role in ("publisher", "subscriber", "delayer")
        for right in least_rights(role, subscription)
    ]
    service.declare(exchange=family)
    with service.publisher(exchange=family) as publisher:  # which declares the ladder
        before = publisher.publish("socks", "order.paid", delay=timedelta(seconds=3))

    def retry_soon(message: Message) -> None:
        raise Retry("not yet", after=timedelta(milliseconds=100))

    with (
        user_with(rights) as url,
        service.subscriber(retry_soon, url=url, exchange=family, declare=False),
    ):
        with service.publisher(url=url, exchange=family) as publisher:
            after = publisher.publish(
                "socks", "order.paid", delay=timedelta(milliseconds=100), mandatory=True
            )
        failed = service.wait_for_failed(2)
    assert {message.message_id for message in failed} == {before, after}
    assert {message.retries for message in failed} == {1}


@both_shells
def test_a_publisher_that_may_not_delay_is_told_what_helps(
    rabbitmq_url: str, user_with: As, shell: Shell
) -> None:
    service = Service(rabbitmq_url, shell)
    service.declare()
    with (
        user_with(least_rights("publisher", SUBSCRIPTION)) as url,
        service.publisher(url=url) as publisher,
        pytest.raises(RedriveError) as told,
    ):
        publisher.publish("socks", "order.paid", delay=timedelta(hours=1))
    assert_it_helps(told.value, "exchange", "master.", "the role delayer", secret="s3cret")
    assert "declare=False" not in str(told.value)


@pytest.mark.parametrize("role", ROLES)
def test_a_right_that_is_missing_is_found(rabbitmq_url: str, user_with: As, role: Role) -> None:
    Service(rabbitmq_url).declare()
    rights = least_rights(role, SUBSCRIPTION)
    # One of each kind: each is asked for in a way of its own.
    for missing in {
        (right.verb, right.kind): (right.verb, right.name) for right in rights
    }.values():
        left = [right for right in rights if (right.verb, right.name) != missing]
        with user_with(left) as url, Connector(url, "doctor").blocking() as connection:
            found = {(right.verb, right.name) for right in missing_rights(connection, rights)}
        assert found == {missing}
