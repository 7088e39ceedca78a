"""`redrive topology migrate` on a live subscription: publishers and consumers go on, nothing is lost, a killed run goes on."""

import contextlib
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from concurrent.futures import TimeoutError as FuturesTimeout
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from cli_support import redrive
from contract.plain import drain, plain_channel, properties_of, publish_plain
from contract.support import DEADLINE, Recorder, wait_until
from redrive import ExchangeFamily, FailedQueue, GiveUp, Message, Publisher, RetryPolicy, Subscriber
from redrive.pubsub.blocking.connection import Connector
from redrive.pubsub.blocking.declare import declare
from redrive.pubsub.management import Management
from redrive.testing import Broker
from redrive.topology.compare import compare
from redrive.topology.model import DELIVERY_LIMIT, Subscription
from redrive.topology.table import Table

PROGRAM = Path(__file__).with_name("migration_program.py")
FILE = """
subscriptions:
  shop@orders:
    routing_keys: [order.*]
    retry: {delay: 300ms}
"""
NEW = Subscription("shop@orders", ("order.*",), ExchangeFamily(), RetryPolicy(3, timedelta(milliseconds=300)))
LONG = RetryPolicy(3, timedelta(hours=1))
OLD = {
    "another delay": replace(NEW, retry=LONG),
    "quorum for classic": replace(NEW, retry=LONG, queue_type="classic"),
    "the default kind for the interop kind": replace(NEW, retry=LONG, queue_type="classic", retry_via="republish"),
}
EACH = 60


def act(message: Message) -> None:
    """Fails at the first attempt with some, and gives up on others."""
    kind = message.body.partition(b" ")[0]
    if kind == b"bad":
        raise GiveUp("never")
    if kind == b"flaky" and not message.retries:
        raise ValueError("not yet")


class Shop:
    """A live subscription: a publisher that goes on publishing, a consumer that goes on consuming."""

    def __init__(self, url: str, management_url: str, file: Path, old: Subscription) -> None:
        self.url = url
        self.management_url = management_url
        self.file = file
        self.old = old
        self.recorder = Recorder(act)
        self.published: dict[str, str] = {}
        self._stopping = threading.Event()
        file.write_text(FILE)
        declare(Connector(url, "test"), old)

    def publish(self, count: int) -> None:
        """Publishes some of each kind."""
        with Publisher(self.url) as publisher:
            for number in range(count):
                kind = ("good", "flaky", "bad")[number % 3]
                self.published[publisher.publish(f"{kind} {number}", "order.paid", mandatory=True)] = kind

    @contextlib.contextmanager
    def publishing(self) -> Iterator[None]:
        """Publishes all the while."""

        def go_on() -> None:
            while not self._stopping.is_set():
                self.publish(3)

        thread = threading.Thread(target=go_on)
        thread.start()
        try:
            yield
        finally:
            self._stopping.set()
            thread.join()

    @contextlib.contextmanager
    def consuming(self, subscription: Subscription) -> Iterator[None]:
        """Consumes as long as the block, without declaring anything."""
        subscriber = Subscriber(
            self.url,
            subscription.queue,
            tuple(subscription.routing_keys),
            retry=RetryPolicy(3, timedelta(hours=1)),
            queue_type=subscription.queue_type,
            retry_via=subscription.retry_via,
            declare=False,
        )
        subscriber.handler(self.recorder)
        subscriber.start()
        try:
            yield
        finally:
            subscriber.stop()
            subscriber.wait()

    @property
    def failed(self) -> FailedQueue:
        """The failed queue."""
        return FailedQueue(self.url, "shop@orders")

    def ids(self, kind: str) -> set[str]:
        """The ids of what was published of a kind."""
        return {id_ for id_, published in self.published.items() if published == kind}

    def wait_until_half_is_done(self) -> None:
        """Waits until what was published so far is handled, failed, or waits in the retry queue."""
        wait_until(lambda: self.failed.depth() >= EACH // 3 and len(self.recorder.attempts) >= EACH, "all was tried once")

    def migrate(self, most: int = 0) -> int:
        """Migrates in a process of its own, which dies when it has told `most` sentences."""
        command = [sys.executable, str(PROGRAM), str(self.file), self.url, self.management_url, str(most)]
        return subprocess.run(command, timeout=300, check=False, stdout=sys.stderr).returncode

    def assert_nothing_is_lost(self, most_duplicates: int = 0) -> None:
        """Every message that was published is handled or in the failed queue, and each once."""
        wanted = self.ids("good") | self.ids("flaky")
        self.recorder.wait_for_handled(wanted, 180)
        wait_until(lambda: self.failed.depth() >= len(self.ids("bad")), "every bad one is in the failed queue")
        failed = [message.message_id for message in self.failed.browse()]
        assert set(failed) == self.ids("bad")
        handled = self.recorder.handled
        assert set(handled) == wanted
        assert sum(handled.values()) - len(wanted) + len(failed) - len(self.ids("bad")) <= most_duplicates
        for attempt in self.recorder.attempts:
            assert attempt.routing_key == "order.paid"
        # A consumer of the interop kind does not see what the new retry queue counts, until it is one of the default kind.
        if not most_duplicates and self.old.retry_via != "republish":
            assert {self.recorder.tried[id_] for id_ in self.ids("flaky")} == {2}
        with Management(self.url, self.management_url) as management:
            observed = management.observe()
        assert compare(NEW.topology(), observed) == []
        assert set(observed.queues) == {"shop@orders", "shop@orders@retry", "shop@orders@failed"}


@pytest.fixture
def shop(rabbitmq_url: str, rabbitmq_management_url: str, tmp_path: Path, request: pytest.FixtureRequest) -> Shop:
    return Shop(rabbitmq_url, rabbitmq_management_url, tmp_path / "team.yaml", OLD[request.param])


@pytest.mark.timeout(480)
@pytest.mark.parametrize("shop", sorted(OLD), indirect=True)
def test_a_live_subscription_is_migrated_without_a_loss_or_a_duplicate(shop: Shop) -> None:
    with shop.consuming(shop.old):
        shop.publish(EACH)
        shop.wait_until_half_is_done()
        with shop.publishing():
            done = redrive("topology", "migrate", str(shop.file), "--yes", "--management-url", shop.management_url, url=shop.url)
    assert (done.code, "is migrated" in done.out) == (0, True), done
    with shop.consuming(NEW):
        shop.assert_nothing_is_lost()
    again = redrive("topology", "migrate", str(shop.file), "--management-url", shop.management_url, url=shop.url)
    assert again.out.startswith("Nothing to migrate")


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
    done = redrive("topology", "migrate", str(shop.file), "--dry-run", "--management-url", shop.management_url, url=shop.url)
    assert done.code == 0
    assert "~ queue shop@orders@retry: x-message-ttl is 3600000, and becomes 300" in done.out
    assert "meanwhile messages in shop@orders@retry wait longer" in done.out
    with Management(shop.url, shop.management_url) as management:
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
        channel.queue_declare(transit, durable=True, arguments={"x-queue-type": "quorum", "x-delivery-limit": DELIVERY_LIMIT})
        publish_plain(rabbitmq_url, transit, b"socks", properties_of(Table(), "kept"), exchange="")
        method, _, _ = next(channel.consume(transit))
        assert method is not None
        migrating = pool.submit(redrive, "topology", "migrate", str(file), "--yes", *management, url=rabbitmq_url)
        with pytest.raises(FuturesTimeout):
            migrating.result(8)
        channel.connection.close()
        done = migrating.result(DEADLINE)

    assert done.code == 0, done.err
    assert [properties.message_id for properties, _ in drain(rabbitmq_url, "shop@orders")] == ["kept"]


def test_a_message_that_many_killed_runs_held_is_not_taken_for_one_that_kills_its_worker(
    rabbitmq_url: str, rabbitmq_broker: Broker, tmp_path: Path
) -> None:
    file = tmp_path / "team.yaml"
    file.write_text(FILE)
    declare(Connector(rabbitmq_url, "test"), NEW)
    transit = "shop@orders@migrating"
    with plain_channel(rabbitmq_url) as channel:
        channel.queue_declare(transit, durable=True, arguments={"x-queue-type": "quorum", "x-delivery-limit": DELIVERY_LIMIT})
    publish_plain(rabbitmq_url, transit, b"socks", properties_of(Table(), "kept"), exchange="")
    for _ in range(RetryPolicy().max_crashes + 1):
        with plain_channel(rabbitmq_url) as channel:
            next(channel.consume(transit))
    management = ("--management-url", str(rabbitmq_broker.management_url))
    done = redrive("topology", "migrate", str(file), "--yes", *management, url=rabbitmq_url)
    assert done.code == 0, done.err
    with plain_channel(rabbitmq_url) as channel:
        # Given back so, RabbitMQ 4.3 does not count it, and what a publisher said of its count stays.
        method, _, _ = next(channel.consume("shop@orders"))
        assert method is not None
        channel.basic_nack(method.delivery_tag, requeue=True)
    recorder = Recorder()
    subscriber = Subscriber(rabbitmq_url, "shop@orders", ["order.*"], retry=NEW.retry)
    subscriber.handler(recorder)
    subscriber.start()
    wait_until(lambda: recorder.attempts or FailedQueue(rabbitmq_url, "shop@orders").depth(), "it is handled, or set aside")
    subscriber.stop()
    subscriber.wait()

    assert recorder.handled.keys() == {"kept"}


def put(url: str, queue: str, count: int) -> None:
    for number in range(count):
        publish_plain(url, queue, b"socks", properties_of(Table(), str(number)), exchange="")


def take_one(url: str, queue: str) -> None:
    with plain_channel(url) as channel:
        assert channel.basic_get(queue, auto_ack=True)[0] is not None


def test_a_failed_queue_that_has_more_than_it_is_to_take_is_not_touched(rabbitmq_url: str, rabbitmq_broker: Broker, tmp_path: Path) -> None:
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
            "Error: 'shop@orders@failed' has 3 messages and is to take 2 (max_failed): it would refuse the rest",
            "Raise max_failed to 3 or more, or make room: redrive failed requeue shop@orders, or redrive failed discard.",
        ]
    with Management(rabbitmq_url, rabbitmq_broker.management_url) as asked:
        assert compare(old.topology(), asked.observe()) == []

    take_one(rabbitmq_url, "shop@orders@failed")
    done = redrive("topology", "migrate", str(file), "--yes", *management, url=rabbitmq_url)
    assert (done.code, FailedQueue(rabbitmq_url, "shop@orders").depth()) == (0, 2), done.err


def test_what_stands_in_for_a_failed_queue_counts_to_what_it_is_to_take(rabbitmq_url: str, rabbitmq_broker: Broker, tmp_path: Path) -> None:
    file = tmp_path / "topology.yaml"
    file.write_text("subscriptions:\n  shop@orders: {routing_keys: [order.*], max_failed: 2}\n")
    declare(Connector(rabbitmq_url, "test"), Subscription("shop@orders", ("order.*",), max_failed=2))
    put(rabbitmq_url, "shop@orders@failed", 1)
    transit = "shop@orders@failed@migrating"
    with plain_channel(rabbitmq_url) as channel:
        channel.queue_declare(transit, durable=True, arguments={"x-queue-type": "quorum", "x-delivery-limit": DELIVERY_LIMIT})
    put(rabbitmq_url, transit, 2)
    management = ("--management-url", str(rabbitmq_broker.management_url))
    refused = redrive("topology", "migrate", str(file), "--yes", *management, url=rabbitmq_url)
    assert (refused.code, "'shop@orders@failed' has 3 messages" in refused.err) == (2, True)

    take_one(rabbitmq_url, "shop@orders@failed")
    done = redrive("topology", "migrate", str(file), "--yes", *management, url=rabbitmq_url)
    assert (done.code, FailedQueue(rabbitmq_url, "shop@orders").depth()) == (0, 2), done.err


def test_a_live_subscription_becomes_ordered(rabbitmq_url: str, rabbitmq_broker: Broker, tmp_path: Path) -> None:
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
        later = [publisher.publish(str(number), "order.paid", mandatory=True) for number in range(50)]
    recorder.wait_for_handled(later)
    subscriber.stop()
    subscriber.wait()

    # What was in the queue before may have changed its order on its way.
    assert recorder.tried == dict.fromkeys([*ids, *later], 1)
    assert recorder.order[50:] == later


def test_a_live_ordered_subscription_becomes_an_ordinary_one(rabbitmq_url: str, rabbitmq_broker: Broker, tmp_path: Path) -> None:
    file = tmp_path / "topology.yaml"
    file.write_text("subscriptions:\n  shop@orders: {routing_keys: [order.*]}\n")
    declare(Connector(rabbitmq_url, "test"), Subscription("shop@orders", ("order.*",), ordered=True))
    recorder = Recorder()
    subscriber = Subscriber(rabbitmq_url, "shop@orders", ["order.*"], ordered=True, declare=False)
    subscriber.handler(recorder)
    with Publisher(rabbitmq_url) as publisher:
        ids = [publisher.publish(str(number), "order.paid", mandatory=True) for number in range(50)]
        subscriber.start()
        recorder.wait_for_handled(ids[:10])
        management = ("--management-url", str(rabbitmq_broker.management_url))
        done = redrive("topology", "migrate", str(file), "--yes", *management, url=rabbitmq_url)
        ids += [publisher.publish(str(number), "order.paid", mandatory=True) for number in range(50)]
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
