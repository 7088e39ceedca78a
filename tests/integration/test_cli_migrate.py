"""`redrive topology migrate` on a live subscription: publishers and consumers go on, nothing is
lost, a killed run goes on."""

from concurrent.futures import ThreadPoolExecutor
from concurrent.futures import TimeoutError as FuturesTimeout
from pathlib import Path

import pytest

from cli_support import redrive
from contract.plain import drain, plain_channel, properties_of, publish_plain
from contract.support import Recorder
from effort import nightly
from live_shop import EACH, FILE, NEW, OLD, Shop
from redrive import FailedQueue, Publisher, RetryPolicy, Subscriber
from redrive.amqp.field_table import Table
from redrive.pubsub.admin.management_api import ManagementAPI
from redrive.pubsub.blocking.connection import Connector
from redrive.pubsub.blocking.declarer import declare
from redrive.testing import Broker
from redrive.topology.diff import compare
from redrive.topology.model import DELIVERY_LIMIT, Subscription
from waiting import DEADLINE, wait_until

pytestmark = pytest.mark.versions("which arguments a queue may have, and what moves between queues")


@pytest.fixture
def shop(
    rabbitmq_url: str, rabbitmq_management_url: str, tmp_path: Path, request: pytest.FixtureRequest
) -> Shop:
    return Shop(rabbitmq_url, rabbitmq_management_url, tmp_path / "team.yaml", OLD[request.param])


@pytest.mark.timeout(480)
@pytest.mark.parametrize(
    "shop",
    [
        "quorum for classic",
        nightly("another delay", why="the queue is made anew each time"),
        nightly("the default kind for the interop kind", why="the queue is made anew each time"),
    ],
    indirect=True,
)
def test_a_live_subscription_is_migrated_without_a_loss_or_a_duplicate(shop: Shop) -> None:
    with shop.consuming(shop.old):
        shop.publish(EACH)
        shop.wait_until_half_is_done()
        with shop.publishing():
            done = redrive(
                "topology",
                "migrate",
                str(shop.file),
                "--yes",
                "--management-url",
                shop.management_url,
                url=shop.url,
            )
    assert (done.code, "is migrated" in done.out) == (0, True), done
    with shop.consuming(NEW):
        shop.assert_nothing_is_lost()
    again = redrive(
        "topology", "migrate", str(shop.file), "--management-url", shop.management_url, url=shop.url
    )
    assert again.out.startswith("Nothing to migrate")


@pytest.mark.nightly("a unit test has one die at each step; a live one is tried each time")
@pytest.mark.timeout(720)
@pytest.mark.parametrize("shop", ["quorum for classic"], indirect=True)
def test_a_migration_that_is_killed_again_and_again_goes_on(shop: Shop) -> None:
    with shop.consuming(shop.old):
        shop.publish(EACH)
        shop.wait_until_half_is_done()
        with shop.publishing():
            for most in (1, 3, 6, 11):
                assert shop.migrate(most) in {0, -9}
            assert shop.migrate() == 0
    with shop.consuming(NEW):
        shop.assert_nothing_is_lost(most_duplicates=len(shop.published))


@pytest.mark.parametrize("shop", ["another delay"], indirect=True)
def test_a_dry_run_says_what_changes_and_what_pauses(shop: Shop) -> None:
    done = redrive(
        "topology",
        "migrate",
        str(shop.file),
        "--dry-run",
        "--management-url",
        shop.management_url,
        url=shop.url,
    )
    assert done.code == 0
    assert "~ queue shop@orders@retry: x-message-ttl is 3600000, becomes 300" in done.out
    assert "meanwhile messages in shop@orders@retry wait longer" in done.out
    with ManagementAPI(shop.url, shop.management_url) as management:
        assert compare(shop.old.topology(), management.observe()) == []


def test_a_queue_that_stood_in_is_not_deleted_while_a_run_that_died_seems_to_hold_its_messages(
    rabbitmq_url: str, rabbitmq_broker: Broker, tmp_path: Path
) -> None:
    file = tmp_path / "team.yaml"
    file.write_text(FILE)
    declare(Connector(rabbitmq_url, "test"), NEW)
    management = ("--management-url", str(rabbitmq_broker.management_url))
    transit = "shop@orders@migrating"
    with ThreadPoolExecutor(1) as pool, plain_channel(rabbitmq_url) as channel:
        channel.queue_declare(
            transit,
            durable=True,
            arguments={"x-queue-type": "quorum", "x-delivery-limit": DELIVERY_LIMIT},
        )
        publish_plain(rabbitmq_url, transit, b"socks", properties_of(Table(), "kept"), exchange="")
        method, _, _ = next(channel.consume(transit))
        assert method is not None
        migrating = pool.submit(
            redrive, "topology", "migrate", str(file), "--yes", *management, url=rabbitmq_url
        )
        with pytest.raises(FuturesTimeout):
            migrating.result(8)
        channel.connection.close()
        done = migrating.result(DEADLINE)

    assert done.code == 0, done.err
    assert [properties.message_id for properties, _ in drain(rabbitmq_url, "shop@orders")] == [
        "kept"
    ]


def test_a_message_that_many_killed_runs_held_is_not_taken_for_one_that_kills_its_worker(
    rabbitmq_url: str, rabbitmq_broker: Broker, tmp_path: Path
) -> None:
    file = tmp_path / "team.yaml"
    file.write_text(FILE)
    declare(Connector(rabbitmq_url, "test"), NEW)
    transit = "shop@orders@migrating"
    with plain_channel(rabbitmq_url) as channel:
        channel.queue_declare(
            transit,
            durable=True,
            arguments={"x-queue-type": "quorum", "x-delivery-limit": DELIVERY_LIMIT},
        )
    publish_plain(rabbitmq_url, transit, b"socks", properties_of(Table(), "kept"), exchange="")
    for _ in range(RetryPolicy().max_crashes + 1):
        with plain_channel(rabbitmq_url) as channel:
            next(channel.consume(transit))
    management = ("--management-url", str(rabbitmq_broker.management_url))
    done = redrive("topology", "migrate", str(file), "--yes", *management, url=rabbitmq_url)
    assert done.code == 0, done.err
    with plain_channel(rabbitmq_url) as channel:
        # Returned so, RabbitMQ 4.3 does not count it, and what a publisher said of its count
        # stays.
        method, _, _ = next(channel.consume("shop@orders"))
        assert method is not None
        channel.basic_nack(method.delivery_tag, requeue=True)
    recorder = Recorder()
    subscriber = Subscriber(rabbitmq_url, "shop@orders", ["order.*"], retry=NEW.retry)
    subscriber.handler(recorder)
    subscriber.start()
    wait_until(
        lambda: recorder.attempts or FailedQueue(rabbitmq_url, "shop@orders").depth(),
        "it is handled, or set aside",
    )
    subscriber.stop()
    subscriber.wait()

    assert recorder.handled.keys() == {"kept"}


def put(url: str, queue: str, count: int) -> None:
    for number in range(count):
        publish_plain(url, queue, b"socks", properties_of(Table(), str(number)), exchange="")


def take_one(url: str, queue: str) -> None:
    with plain_channel(url) as channel:
        assert channel.basic_get(queue, auto_ack=True)[0] is not None


def test_a_failed_queue_that_has_more_than_it_is_to_take_is_not_touched(
    rabbitmq_url: str, rabbitmq_broker: Broker, tmp_path: Path
) -> None:
    file = tmp_path / "topology.yaml"
    file.write_text("subscriptions:\n  shop@orders: {routing_keys: [order.*], max_failed: 2}\n")
    old = Subscription("shop@orders", ("order.*",))
    declare(Connector(rabbitmq_url, "test"), old)
    put(rabbitmq_url, "shop@orders@failed", 3)
    management = ("--management-url", str(rabbitmq_broker.management_url))
    for option in ("--dry-run", "--yes"):
        refused = redrive("topology", "migrate", str(file), option, *management, url=rabbitmq_url)
        assert refused.code == 2
        assert refused.error_lines == [
            (
                "Error: 'shop@orders@failed' has 3 messages, but may hold only 2 (max_failed): it "
                "would refuse the rest"
            ),
            (
                "Raise max_failed to 3 or more, or make room: redrive failed requeue shop@orders, "
                "or redrive failed discard."
            ),
        ]
    with ManagementAPI(rabbitmq_url, rabbitmq_broker.management_url) as asked:
        assert compare(old.topology(), asked.observe()) == []

    take_one(rabbitmq_url, "shop@orders@failed")
    done = redrive("topology", "migrate", str(file), "--yes", *management, url=rabbitmq_url)
    assert (done.code, FailedQueue(rabbitmq_url, "shop@orders").depth()) == (0, 2), done.err


def test_what_stands_in_for_a_failed_queue_counts_to_what_it_is_to_take(
    rabbitmq_url: str, rabbitmq_broker: Broker, tmp_path: Path
) -> None:
    file = tmp_path / "topology.yaml"
    file.write_text("subscriptions:\n  shop@orders: {routing_keys: [order.*], max_failed: 2}\n")
    declare(
        Connector(rabbitmq_url, "test"), Subscription("shop@orders", ("order.*",), max_failed=2)
    )
    put(rabbitmq_url, "shop@orders@failed", 1)
    transit = "shop@orders@failed@migrating"
    with plain_channel(rabbitmq_url) as channel:
        channel.queue_declare(
            transit,
            durable=True,
            arguments={"x-queue-type": "quorum", "x-delivery-limit": DELIVERY_LIMIT},
        )
    put(rabbitmq_url, transit, 2)
    management = ("--management-url", str(rabbitmq_broker.management_url))
    refused = redrive("topology", "migrate", str(file), "--yes", *management, url=rabbitmq_url)
    assert (refused.code, "'shop@orders@failed' has 3 messages" in refused.err) == (2, True)

    take_one(rabbitmq_url, "shop@orders@failed")
    done = redrive("topology", "migrate", str(file), "--yes", *management, url=rabbitmq_url)
    assert (done.code, FailedQueue(rabbitmq_url, "shop@orders").depth()) == (0, 2), done.err


@pytest.mark.nightly("the other way is tried each time")
def test_a_live_subscription_becomes_ordered(
    rabbitmq_url: str, rabbitmq_broker: Broker, tmp_path: Path
) -> None:
    file = tmp_path / "topology.yaml"
    file.write_text("subscriptions:\n  shop@orders: {routing_keys: [order.*], ordered: true}\n")
    old = Subscription("shop@orders", ("order.*",))
    declare(Connector(rabbitmq_url, "test"), old)
    with Publisher(rabbitmq_url) as publisher:
        ids = [publisher.publish(str(number), "order.paid", mandatory=True) for number in range(50)]
    management = ("--management-url", str(rabbitmq_broker.management_url))
    done = redrive("topology", "migrate", str(file), "--yes", *management, url=rabbitmq_url)
    assert done.code == 0, done.err
    recorder = Recorder()
    subscriber = Subscriber(rabbitmq_url, "shop@orders", ["order.*"], ordered=True)
    subscriber.handler(recorder)
    subscriber.start()
    recorder.wait_for_handled(ids)
    with Publisher(rabbitmq_url) as publisher:
        later = [
            publisher.publish(str(number), "order.paid", mandatory=True) for number in range(50)
        ]
    recorder.wait_for_handled(later)
    subscriber.stop()
    subscriber.wait()

    # What was in the queue before may have changed its order on its way.
    assert recorder.tried == dict.fromkeys([*ids, *later], 1)
    assert recorder.order[50:] == later


@pytest.mark.nightly("the way there is tried each time")
def test_a_live_ordered_subscription_becomes_an_ordinary_one(
    rabbitmq_url: str, rabbitmq_broker: Broker, tmp_path: Path
) -> None:
    file = tmp_path / "topology.yaml"
    file.write_text("subscriptions:\n  shop@orders: {routing_keys: [order.*]}\n")
    declare(
        Connector(rabbitmq_url, "test"), Subscription("shop@orders", ("order.*",), ordered=True)
    )
    recorder = Recorder()
    subscriber = Subscriber(rabbitmq_url, "shop@orders", ["order.*"], ordered=True, declare=False)
    subscriber.handler(recorder)
    with Publisher(rabbitmq_url) as publisher:
        ids = [publisher.publish(str(number), "order.paid", mandatory=True) for number in range(50)]
        subscriber.start()
        recorder.wait_for_handled(ids[:10])
        management = ("--management-url", str(rabbitmq_broker.management_url))
        done = redrive("topology", "migrate", str(file), "--yes", *management, url=rabbitmq_url)
        ids += [
            publisher.publish(str(number), "order.paid", mandatory=True) for number in range(50)
        ]
    assert done.code == 0, done.err
    subscriber.stop()
    subscriber.wait()
    rest = Subscriber(rabbitmq_url, "shop@orders", ["order.*"])
    rest.handler(recorder)
    rest.start()
    recorder.wait_for_handled(ids)
    rest.stop()
    rest.wait()

    assert recorder.handled.keys() == set(ids)
