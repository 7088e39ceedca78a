"""The model of a virtual host: what becomes of messages, by the version of the broker.

Each rule was measured on RabbitMQ 3.10.8, 4.0.5 and 4.3.6; docs/brokers.md has the figures.
"""

import pytest

from redrive.amqp.field_table import FieldValue, Table
from redrive.amqp.properties import Properties
from redrive.testing.memory.consumer_model import ConsumerModel
from redrive.testing.memory.exchange_model import BindingModel, ExchangeModel
from redrive.testing.memory.message_copy import Content, MessageCopy
from redrive.testing.memory.queue_model import QueueModel
from redrive.testing.memory.refused import RefusedByModel
from redrive.testing.memory.virtual_host import VirtualHost
from redrive.topology.broker_version import BrokerVersion

OLD, MIDDLE, NEW = BrokerVersion(3, 10, 8), BrokerVersion(4, 0, 5), BrokerVersion(4, 3, 6)
each_version = pytest.mark.parametrize("version", [OLD, MIDDLE, NEW], ids=str)
MASTER_RETRY: dict[str, FieldValue] = {
    "x-queue-type": "quorum",
    "x-dead-letter-exchange": "",
    "x-dead-letter-routing-key": "q@retry",
}
RETRY: dict[str, FieldValue] = {
    "x-queue-type": "quorum",
    "x-message-ttl": 30_000,
    "x-dead-letter-exchange": "",
    "x-dead-letter-routing-key": "q",
}


class Host:
    """A virtual host between a test's hands: its clock, and one consumer."""

    def __init__(self, version: BrokerVersion = NEW) -> None:
        self.now = 1_700_000_000.0
        self.host = VirtualHost("/", version, lambda: self.now)
        self.got: list[MessageCopy] = []

    def queue(self, name: str, arguments: dict[str, FieldValue] | None = None) -> QueueModel:
        return self.host.declare_queue(
            name,
            Table.of(arguments or {}),
            durable=True,
            exclusive=False,
            auto_delete=False,
            owner=self,
        )

    def publish(
        self,
        queue: str,
        body: bytes = b"socks",
        headers: dict[str, FieldValue] | None = None,
        expiration: str | None = None,
        exchange: str = "",
    ) -> tuple[bool, bool]:
        properties = Properties(headers=Table.of(headers or {}), expiration=expiration)
        found = self.host.publish(
            Content(exchange, (queue,), properties, properties.encode(), body)
        )
        self.host.run()
        return found

    def take(self, queue: QueueModel) -> MessageCopy:
        copy = queue.take()
        assert copy is not None
        return copy

    def reject(self, queue: QueueModel) -> None:
        self.host.reject(queue, self.take(queue))
        self.host.run()

    def give_back(self, queue: QueueModel, *, failed: bool = True) -> None:
        self.host.give_back(queue, self.take(queue), failed=failed)
        self.host.run()

    def sleep(self, seconds: float) -> None:
        """Lets time pass as a broker would: what is due happens when it is."""
        until = self.now + seconds
        while (due := self.host.next_due()) is not None and due <= until:
            self.now = due
            self.host.run()
        self.now = until

    def deliver(self, consumer: ConsumerModel, copy: MessageCopy) -> None:
        self.got.append(copy)

    def cancelled(self, consumer: ConsumerModel) -> None:
        self.got.clear()


def bodies(queue: QueueModel) -> list[bytes]:
    return [copy.content.body for copy in queue.contents()]


def deaths_of(copy: MessageCopy) -> list[tuple[object, object, object]]:
    x_death = copy.content.properties.headers.get("x-death")
    assert isinstance(x_death, list)
    return [
        (entry["queue"], entry["reason"], entry["count"])
        for entry in x_death
        if isinstance(entry, dict)
    ]


def delivery_count(queue: QueueModel, copy: MessageCopy) -> object:
    return Properties.parse(queue.encoded(copy)).headers.get("x-delivery-count", 0)


@each_version
def test_a_rejection_and_the_way_back_are_counted_once_each_time(version: BrokerVersion) -> None:
    host = Host(version)
    main = host.queue("q", MASTER_RETRY)
    host.queue("q@retry", RETRY)
    host.publish("q")
    for count in (1, 2, 3):
        host.reject(main)
        host.sleep(29.9)
        assert not len(main)
        host.sleep(0.2)
        (copy,) = main.contents()
        assert deaths_of(copy) == [("q@retry", "expired", count), ("q", "rejected", count)]


@pytest.mark.parametrize(("version", "expected"), [(OLD, 5), (MIDDLE, 1), (NEW, 1)])
def test_a_clients_x_death_counts_on_where_the_version_has_it(
    version: BrokerVersion, expected: int
) -> None:
    host = Host(version)
    main = host.queue("q", {**MASTER_RETRY, "x-dead-letter-routing-key": "failed"})
    failed = host.queue("failed")
    host.publish("q")
    host.reject(main)
    (copy,) = failed.contents()
    x_death = copy.content.properties.headers["x-death"]
    assert isinstance(x_death, list)
    host.publish("q", headers={"x-death": [{**x_death[0], "count": 4}]})
    host.reject(main)
    assert deaths_of(list(failed.contents())[1]) == [("q", "rejected", expected)]


def test_an_x_death_that_3_10_cannot_read_costs_the_message() -> None:
    lost, kept = Host(OLD), Host(NEW)
    for host in (lost, kept):
        main = host.queue("q", MASTER_RETRY)
        host.queue("q@retry", RETRY)
        host.publish("q", headers={"x-death": "none"})
        host.reject(main)
    assert not len(lost.host.queues["q@retry"])
    assert len(kept.host.queues["q@retry"]) == 1


@pytest.mark.parametrize(
    ("version", "expected"),
    [(OLD, [0, 1, 2, 0, 1, 2, 0, 1]), (MIDDLE, [0, 1, 2, 3, 1, 2, 6, 1]), (NEW, list(range(8)))],
)
def test_deliveries_of_crashing_consumers_are_counted_as_measured(
    version: BrokerVersion, expected: list[int]
) -> None:
    """A consumer dies each time, and the third and the sixth delivery are rejected."""
    host = Host(version)
    main = host.queue("q", {**MASTER_RETRY, "x-delivery-limit": 1_000_000_000})
    host.queue("q@retry", RETRY)
    host.publish("q")
    seen: list[object] = []
    for attempt in range(1, 9):
        (copy,) = main.contents()
        seen.append(delivery_count(main, copy))
        if attempt in (3, 6):
            host.reject(main)
            host.sleep(31)
        else:
            host.give_back(main)
    assert seen == expected


@pytest.mark.parametrize(
    ("version", "limit", "failed", "expected"),
    [
        (OLD, None, True, None),
        (MIDDLE, None, False, 21),
        (NEW, None, True, 21),
        (NEW, None, False, None),
        (OLD, -1, True, 1),
        (MIDDLE, -1, True, None),
        (OLD, 1_000_000_000, True, None),
    ],
)
def test_a_delivery_limit_deletes_a_message_as_measured(
    version: BrokerVersion, limit: int | None, failed: bool, expected: int | None
) -> None:
    host = Host(version)
    arguments: dict[str, FieldValue] = {"x-queue-type": "quorum"}
    queue = host.queue("q", arguments | ({} if limit is None else {"x-delivery-limit": limit}))
    host.publish("q")
    returned = 0
    while len(queue) and returned < 40:
        host.give_back(queue, failed=failed)
        returned += 1
    assert (returned if not len(queue) else None) == expected


def test_a_quorum_queue_of_4_3_holds_back_what_fails_and_nothing_else() -> None:
    host = Host(NEW)
    queue = host.queue(
        "q",
        {
            "x-queue-type": "quorum",
            "x-delayed-retry-type": "failed",
            "x-delayed-retry-min": 500,
            "x-delayed-retry-max": 1200,
        },
    )
    host.publish("q")
    host.give_back(queue, failed=False)
    assert len(queue) == 1
    for delay in (0.5, 1.0, 1.2, 1.2):
        host.give_back(queue)
        host.sleep(delay - 0.01)
        assert not len(queue)
        host.sleep(0.02)
        assert len(queue) == 1


@pytest.mark.parametrize(
    ("kind", "expected"), [("quorum", [b"1", b"0", b"2"]), ("classic", [b"0", b"1", b"2"])]
)
def test_what_is_returned_one_by_one_keeps_its_place_in_a_classic_queue_alone(
    kind: str, expected: list[bytes]
) -> None:
    host = Host()
    queue = host.queue("q", {"x-queue-type": kind})
    for number in range(3):
        host.publish("q", str(number).encode())
    first, second = host.take(queue), host.take(queue)
    for copy in (second, first):
        host.host.give_back(queue, copy, failed=False)
    assert bodies(queue) == expected


def test_a_message_behind_one_with_a_longer_time_to_live_waits() -> None:
    host = Host()
    queue = host.queue("q")
    host.publish("q", b"long", expiration="5000")
    host.publish("q", b"short", expiration="1000")
    host.sleep(2)
    assert bodies(queue) == [b"long", b"short"]
    host.sleep(4)
    assert bodies(queue) == []


def test_what_goes_in_a_circle_without_a_rejection_is_dropped() -> None:
    host = Host()
    one: dict[str, FieldValue] = {"x-message-ttl": 10, "x-dead-letter-exchange": ""}
    host.queue("a", {**one, "x-dead-letter-routing-key": "b"})
    host.queue("b", {**one, "x-dead-letter-routing-key": "a"})
    host.publish("a")
    host.sleep(1)
    assert [bodies(queue) for queue in host.host.queues.values()] == [[], []]


def test_what_nobody_takes_is_kept_at_least_once_until_somebody_does() -> None:
    host = Host()
    queue = host.queue(
        "q",
        {
            **MASTER_RETRY,
            "x-dead-letter-strategy": "at-least-once",
            "x-overflow": "reject-publish",
        },
    )
    host.publish("q")
    host.reject(queue)
    retry = host.queue("q@retry", RETRY)
    host.host.run()
    assert len(retry) == 1


def test_a_full_queue_refuses_or_drops_its_oldest() -> None:
    host = Host()
    refuses = host.queue("refuses", {"x-max-length": 1, "x-overflow": "reject-publish"})
    drops = host.queue("drops", {"x-max-length": 1})
    assert [host.publish("refuses", body) for body in (b"1", b"2")] == [(True, True), (True, False)]
    assert [host.publish("drops", body) for body in (b"1", b"2")] == [(True, True), (True, True)]
    assert (bodies(refuses), bodies(drops)) == ([b"1"], [b"2"])


def test_what_no_binding_wants_goes_to_the_alternate_exchange() -> None:
    host = Host()
    host.host.declare_exchange(ExchangeModel("rest", "fanout"), passive=False)
    alternate = Table.of({"alternate-exchange": "rest"})
    host.host.declare_exchange(ExchangeModel("shop", "topic", arguments=alternate), passive=False)
    rest = host.queue("rest")
    host.host.bind("rest", BindingModel("rest", True, "", Table()))
    assert host.publish("order.paid", exchange="shop") == (True, True)
    assert len(rest) == 1


def test_only_the_first_consumer_is_active_where_one_alone_may_be() -> None:
    host = Host()
    queue = host.queue("q", {"x-queue-type": "quorum", "x-single-active-consumer": True})
    first, second = (ConsumerModel(tag, host, prefetch=1) for tag in ("first", "second"))
    for consumer in (first, second):
        host.host.consume(queue, consumer)
    host.publish("q", b"1")
    host.publish("q", b"2")
    assert (first.unsettled, second.unsettled, len(queue)) == (1, 0, 1)
    host.host.stop_consuming(queue, first)
    host.host.run()
    assert second.unsettled == 1


def test_a_consumer_of_a_higher_priority_comes_first() -> None:
    host = Host()
    queue = host.queue("q")
    low, high = ConsumerModel("low", host, prefetch=1), ConsumerModel("high", host, prefetch=1)
    high.priority = 5
    for consumer in (low, high):
        host.host.consume(queue, consumer)
    host.publish("q")
    assert (low.unsettled, high.unsettled) == (0, 1)
    host.publish("q")
    assert low.unsettled == 1


def test_a_queue_that_nobody_uses_is_deleted_when_its_time_is_over() -> None:
    host = Host()
    host.queue("q", {"x-expires": 1000})
    host.host.run()
    host.sleep(0.9)
    assert "q" in host.host.queues
    host.sleep(0.2)
    assert "q" not in host.host.queues


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"x-message-ttl": 2}, "received the value '2' of type 'signedint' but current is the"),
        ({}, "received none but current is the value '1' of type 'signedint'"),
        ({"x-message-ttl": 1, "x-queue-type": "quorum"}, "inequivalent arg 'x-queue-type'"),
    ],
)
def test_a_queue_that_is_declared_otherwise_is_refused_in_rabbitmqs_words(
    arguments: dict[str, FieldValue], words: str
) -> None:
    host = Host()
    host.queue("q", {"x-message-ttl": 1})
    host.queue("q", {"x-message-ttl": 1, "x-queue-type": "classic"})
    with pytest.raises(RefusedByModel) as refused:
        host.queue("q", arguments)
    assert refused.value.code == 406
    assert words in refused.value.text


def test_a_queue_of_another_connection_is_locked() -> None:
    host = Host()
    host.host.declare_queue(
        "q", Table(), durable=False, exclusive=True, auto_delete=False, owner="somebody"
    )
    with pytest.raises(RefusedByModel, match="locked queue"):
        host.host.queue("q", host)
    host.host.leave("somebody")
    assert host.host.queues == {}
