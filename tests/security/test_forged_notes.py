"""What a publisher writes into the headers that only redrive writes is not believed, and not passed
on."""

from collections.abc import Callable
from datetime import timedelta

import pytest

from deliveries import CIRCUMSTANCES, ERROR, FAMILY, FRAME_MAX, NOW_TEXT, decided, first_delivery
from field_tables import QUEUE
from model_broker import ModelBroker
from redrive.amqp.field_table import Table
from redrive.amqp.properties import Properties
from redrive.topology import headers, rewrite
from redrive.topology.broker_version import BrokerVersion
from redrive.topology.decision import MoveToFailed, Raised, retries_made
from redrive.topology.headers import Delivery
from redrive.topology.migration import Step, moved, transit_queue
from redrive.topology.model import Queue, Subscription
from redrive.topology.policy import RetryPolicy
from redrive.topology.rewrite import Publish

FORGED = Table.of(
    {
        headers.ORIG_USER_ID: "admin",
        headers.ORIG_EXPIRATION: "1",
        headers.ORIG_EXCHANGE: "payments",
        headers.FIRST_FAILED_AT: "1999-01-01T00:00:00Z",
        headers.COUNT: 4,
        headers.JOB: "job-of-somebody",
        headers.RETRIES: 2,
        headers.FAILURE_ID: "another-id",
        headers.REASON: "crashed",
        headers.HOST: "bank",
        "tenant": "a",
    }
)
VERSIONS = [BrokerVersion(3, 10, 8), BrokerVersion(4, 0, 5), BrokerVersion(4, 3, 6)]


def published(version: BrokerVersion) -> Delivery:
    """As the main exchange delivered it."""
    return ModelBroker(version).first_delivery(Properties(headers=FORGED))


def rejected(version: BrokerVersion) -> Delivery:
    """As it came back after its first failure: by a way of ours, with the headers that it had."""
    broker = ModelBroker(version)
    return broker.reject(broker.first_delivery(Properties(headers=FORGED)))


def give_up(delivery: Delivery) -> Publish:
    return rewrite.give_up(
        delivery, FAMILY, reason="gave-up", error=ERROR, retries=0, context=CIRCUMSTANCES
    )


def republish(delivery: Delivery) -> Publish:
    return rewrite.republish(delivery, FAMILY, retries=0, counts_on=False, frame_max=FRAME_MAX)


def republish_and_count_on(delivery: Delivery) -> Publish:
    return rewrite.republish(delivery, FAMILY, retries=0, counts_on=True, frame_max=FRAME_MAX)


def postpone(delivery: Delivery) -> Publish:
    return rewrite.postpone(
        delivery, FAMILY, retry=1, delay=timedelta(seconds=5), context=CIRCUMSTANCES
    )


def migrate(delivery: Delivery) -> Publish:
    return moved(
        Step("drain", "main", Queue(QUEUE), Queue(transit_queue(QUEUE))),
        delivery,
        QUEUE,
        frame_max=FRAME_MAX,
    )


def migrate_while_it_waits(delivery: Delivery) -> Publish:
    retry = f"{QUEUE}@retry"
    waiting = Delivery(QUEUE, "master.retry", QUEUE, delivery.properties, delivery.body)
    return moved(
        Step("drain", "retry", Queue(retry), Queue(transit_queue(retry))),
        waiting,
        retry,
        frame_max=FRAME_MAX,
    )


MOVES = [give_up, republish, republish_and_count_on, postpone, migrate]
arrivals = pytest.mark.parametrize("arrival", [published, rejected], ids=["published", "rejected"])
versions = pytest.mark.parametrize("version", VERSIONS, ids=str)


@versions
@arrivals
@pytest.mark.parametrize("move", MOVES)
def test_no_move_passes_on_what_a_publisher_made_up(
    move: Callable[[Delivery], Publish],
    arrival: Callable[[BrokerVersion], Delivery],
    version: BrokerVersion,
) -> None:
    found = move(arrival(version)).properties.headers.to_dict()
    assert {headers.ORIG_USER_ID, headers.ORIG_EXPIRATION, headers.COUNT, headers.JOB} & set(
        found
    ) == set()
    assert found.get(headers.ORIG_EXCHANGE, "master") == "master"
    assert not str(found.get(headers.FIRST_FAILED_AT)).startswith("1999")
    assert found.get(headers.RETRIES, 0) in (0, 1)
    assert found["tenant"] == "a"


def test_a_message_that_waits_for_its_retry_is_moved_without_what_its_publisher_made_up() -> None:
    found = migrate_while_it_waits(rejected(VERSIONS[1])).properties.headers
    assert not {headers.ORIG_USER_ID, headers.COUNT, headers.JOB} & set(found)
    assert found[headers.RETRIES] == 1


def test_a_message_that_waits_for_its_retry_is_moved_with_what_a_requeue_wrote() -> None:
    broker = ModelBroker(VERSIONS[1])
    requeued = rewrite.requeue(first_delivery(), job="job-1", frame_max=FRAME_MAX)
    found = migrate_while_it_waits(broker.reject(broker.delivery_of(requeued))).properties.headers
    assert (found[headers.JOB], found[headers.COUNT]) == ("job-1", 1)


def test_the_properties_that_did_not_travel_are_told_whatever_a_publisher_made_up() -> None:
    delivery = Delivery(
        QUEUE,
        "master",
        "user.create",
        Properties(headers=FORGED, user_id="shop", expiration="60000"),
        b"{}",
    )
    found = give_up(delivery).properties.headers
    assert (found[headers.ORIG_USER_ID], found[headers.ORIG_EXPIRATION]) == ("shop", "60000")


@versions
@arrivals
def test_what_is_set_aside_tells_of_its_own_failure(
    arrival: Callable[[BrokerVersion], Delivery], version: BrokerVersion
) -> None:
    found = give_up(arrival(version)).properties.headers
    assert (found[headers.FAILURE_ID], found[headers.REASON], found[headers.HOST]) == (
        CIRCUMSTANCES.failure_id,
        "gave-up",
        "worker-1",
    )
    assert found[headers.FIRST_FAILED_AT] in (NOW_TEXT, "2024-05-17T08:00:00.000Z")


@versions
@arrivals
def test_a_job_that_a_publisher_made_up_is_told_nothing(
    arrival: Callable[[BrokerVersion], Delivery], version: BrokerVersion
) -> None:
    assert arrival(version).job is None


@versions
def test_retries_that_a_publisher_made_up_do_not_count_after_the_first_failure(
    version: BrokerVersion,
) -> None:
    assert [retries_made(published(version)), retries_made(rejected(version))] == [0, 1]


@versions
def test_a_count_that_a_publisher_made_up_makes_no_message_young(version: BrokerVersion) -> None:
    aged = Subscription(QUEUE, ["user.*"], retry=RetryPolicy(max_age=timedelta(hours=1)))
    old = Delivery(QUEUE, "master", "user.create", Properties(headers=FORGED, timestamp=1), b"{}")
    settlement = decided(old, aged, Raised(ERROR), version)
    assert isinstance(settlement, MoveToFailed)
    assert settlement.reason == "too-old"


@versions
def test_what_redrive_wrote_is_believed_after_a_requeue_and_its_retries(
    version: BrokerVersion,
) -> None:
    broker = ModelBroker(version)
    requeued = broker.delivery_of(
        rewrite.requeue(first_delivery(), job="job-1", frame_max=FRAME_MAX)
    )
    again = broker.reject(broker.reject(requeued))
    assert [one.job for one in (requeued, again)] == ["job-1", "job-1"]
    assert retries_made(again) == 2
    found = give_up(again).properties.headers
    assert (found[headers.JOB], found[headers.COUNT]) == ("job-1", 1)


@versions
def test_what_redrive_wrote_is_believed_after_the_ladder_and_the_retry_queue(
    version: BrokerVersion,
) -> None:
    broker = ModelBroker(version)
    postponed = broker.down_the_ladder(postpone(broker.first_delivery(Properties(headers=FORGED))))
    assert retries_made(broker.reject(postponed)) == 2
