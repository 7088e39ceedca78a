"""A service whose user is restricted to its own queue: it works, and can't write into another's
failed or retry queue."""

import logging
import uuid
from collections.abc import Iterator
from datetime import timedelta

import pika
import pytest
from pika import exceptions

from contract.administration import Administration
from contract.plain import depth, plain_channel, publish_plain
from contract.shells import Shell
from contract.support import Recorder, Service, always_fails, both_shells, retrying
from redrive import ExchangeFamily, FailedQueue, Message, Retry
from redrive.failures.queue.failure_feed import FailureFeed
from redrive.failures.queue.operator_rights import OperatorRights
from redrive.pubsub.blocking.connection import Connector
from redrive.topology.doctor.act_rights import OperatorAct
from redrive.topology.doctor.permissions import (
    VERBS,
    Right,
    Role,
    granted_pattern,
    least_rights,
    rights_to_watch,
)
from redrive.topology.ladder import Ladder
from redrive.topology.model import Subscription
from waiting import wait_until

MINE, OTHERS = "shop@orders", "bank@accounts"
FAMILY = ExchangeFamily(tick=timedelta(milliseconds=50))
SERVICES: tuple[Role, ...] = ("publisher", "subscriber", "delayer")


@pytest.fixture
def restricted(rabbitmq_management_url: str, rabbitmq_url: str) -> Iterator[str]:
    """The address of a service's user, with the least rights and topic permissions for its own
    queue alone."""
    yield from user_of(rabbitmq_management_url, rabbitmq_url, SERVICES)


@pytest.fixture
def restricted_operator(rabbitmq_management_url: str, rabbitmq_url: str) -> Iterator[str]:
    """The same, for an operator."""
    yield from user_of(rabbitmq_management_url, rabbitmq_url, ("operator",))


def user_of(management_url: str, url: str, roles: tuple[Role, ...]) -> Iterator[str]:
    administration = Administration(management_url, url)
    for queue in (MINE, OTHERS):
        Service(url, queue=queue, retry=retrying(1)).declare(exchange=FAMILY)
    with Service(url).publisher(exchange=FAMILY) as publisher:  # which declares the ladder
        publisher.publish("later", "nobody.wants", delay=timedelta(seconds=1))
    rights = [
        right
        for role in roles
        for right in least_rights(role, Subscription(MINE, ["order.*"], FAMILY))
    ]
    name = f"restricted-{uuid.uuid4().hex[:12]}"
    with administration.user(
        name, **{verb: granted_pattern(rights, verb) for verb in VERBS}
    ) as address:
        for exchange in (FAMILY.failed, FAMILY.retry):
            administration.set_topic_permission(name, exchange, write=f"^{MINE}$", read=f"^{MINE}$")
        down_the_ladder = rf"^([01]\.){{28}}(r\.{MINE}|p\..*)$"
        for exchange in (FAMILY.deliver, *(Ladder(FAMILY).level(number) for number in range(5))):
            administration.set_topic_permission(name, exchange, write=down_the_ladder)
        yield address


@both_shells
def test_it_retries_and_sets_aside(rabbitmq_url: str, restricted: str, shell: Shell) -> None:
    service = Service(rabbitmq_url, shell, queue=MINE, retry=retrying(1))
    recorder = Recorder(always_fails)
    with service.subscriber(recorder, url=restricted, declare=False, exchange=FAMILY):
        message_id = service.publish(exchange=FAMILY)
        # What can't be rejected is republished by the service itself: it has an x-death that no
        # broker of ours wrote.
        forged = pika.BasicProperties(headers={"x-death": "x"}, message_id="forged")  # type: ignore[no-untyped-call]
        publish_plain(rabbitmq_url, "order.paid", b"forged", forged)
        failed = service.wait_for_failed(2)
    assert {message.message_id: message.retries for message in failed} == {
        message_id: 1,
        "forged": 1,
    }
    assert recorder.tried == {message_id: 2, "forged": 2}


@both_shells
def test_its_retries_wait_on_the_ladder(
    rabbitmq_url: str, restricted: str, shell: Shell, caplog: pytest.LogCaptureFixture
) -> None:
    def wait_shortly(message: Message) -> None:
        raise Retry("not yet", after=timedelta(milliseconds=200))

    service = Service(rabbitmq_url, shell, queue=MINE, retry=retrying(1))
    with (
        caplog.at_level(logging.WARNING, "redrive"),
        service.subscriber(wait_shortly, url=restricted, declare=False, exchange=FAMILY),
    ):
        service.publish(exchange=FAMILY)
        (failed,) = service.wait_for_failed()
    assert failed.retries == 1
    assert any("on the delay ladder for 0.2 s" in record.getMessage() for record in caplog.records)
    assert not any("can't wait" in record.getMessage() for record in caplog.records)


def test_an_operator_restores_and_requeues(rabbitmq_url: str, restricted_operator: str) -> None:
    Service(rabbitmq_url, queue=MINE).set_aside(3)
    failed = FailedQueue(restricted_operator, MINE)
    taken = [message.delivery for message in failed.browse()]
    assert failed.purge() == 3
    assert failed.restore(taken).confirmed == 3
    assert failed.requeue().requeued == 3


@pytest.mark.parametrize("exchange", [FAMILY.failed, FAMILY.retry])
@pytest.mark.parametrize("key", ["#", OTHERS, f"{MINE}x", "*"])
def test_an_operator_can_not_read_what_fails_or_is_retried_of_others(
    restricted_operator: str, exchange: str, key: str
) -> None:
    with plain_channel(restricted_operator) as channel:
        channel.queue_declare("redrive.watch.mine", exclusive=True)
        with pytest.raises(exceptions.ChannelClosedByBroker, match="ACCESS_REFUSED"):
            channel.queue_bind("redrive.watch.mine", exchange, key)


def test_an_operator_lacks_nothing_to_act_on_the_own_queue_and_all_on_others(
    restricted_operator: str,
) -> None:
    rights = OperatorRights(restricted_operator, FAMILY)
    for act in (OperatorAct.LOOK, OperatorAct.REQUEUE, OperatorAct.EDIT, OperatorAct.DISCARD):
        assert rights.missing(act, MINE, literal=False) == []
        assert rights.missing(act, OTHERS, literal=False)


def test_asking_for_rights_takes_no_binding_away(
    rabbitmq_url: str, restricted_operator: str
) -> None:
    rights = OperatorRights(restricted_operator, FAMILY)
    for right in rights_to_watch(FAMILY, MINE):
        rights.has([right, Right("write", "queue", f"{MINE}@retry")])
    with plain_channel(rabbitmq_url) as channel:
        for exchange in (FAMILY.failed, FAMILY.retry):
            channel.basic_publish(exchange, MINE, b"{}", mandatory=True)  # raises where it is not


def test_an_operator_follows_what_fails_in_the_own_queue_and_nothing_else(
    rabbitmq_url: str, restricted_operator: str
) -> None:
    feed = FailureFeed(Connector(restricted_operator, "test feed"), FAMILY)
    feed.start()
    try:
        wait_until(lambda: feed.state.is_following, "it follows")
        feed.want([MINE, OTHERS])
        with plain_channel(rabbitmq_url) as channel:
            for key in (OTHERS, MINE):
                channel.basic_publish(FAMILY.failed, key, key.encode(), mandatory=True)
        seen: list[bytes] = []

        def is_seen() -> bool:
            seen.extend(copy.message.body for copy in feed.take()[0])
            return bool(seen)

        wait_until(is_seen, "it is seen")
        assert seen == [MINE.encode()]
    finally:
        feed.close()


@pytest.mark.parametrize(
    ("exchange", "key"),
    [
        (FAMILY.failed, OTHERS),
        (FAMILY.retry, OTHERS),
        (FAMILY.failed, f"{MINE}x"),
        (FAMILY.deliver, "0." * 28 + f"r.{OTHERS}"),
        (Ladder(FAMILY).level(2), "0." * 25 + f"1.0.0.r.{OTHERS}"),
        ("", f"{OTHERS}@failed"),
        ("", OTHERS),
    ],
)
def test_it_can_not_write_into_anothers_queues(
    rabbitmq_url: str, restricted: str, exchange: str, key: str
) -> None:
    with (
        plain_channel(restricted) as channel,
        pytest.raises(exceptions.ChannelClosedByBroker, match="ACCESS_REFUSED"),
    ):
        channel.basic_publish(exchange, key, b"forged", mandatory=True)
    assert [
        depth(rabbitmq_url, queue) for queue in (OTHERS, f"{OTHERS}@retry", f"{OTHERS}@failed")
    ] == [0, 0, 0]
