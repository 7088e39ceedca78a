"""What a subscription needs on the broker: section 2.1 of the design, line by line."""

from dataclasses import replace
from datetime import timedelta

import pytest

from deliveries import SUBSCRIPTION
from redrive.errors import ConfigurationError
from redrive.topology.broker_version import BrokerVersion
from redrive.topology.model import (
    Argument,
    Binding,
    Exchange,
    Queue,
    QueueType,
    RetryVia,
    Subscription,
    failed_queue_of,
)
from redrive.topology.names import ExchangeFamily
from redrive.topology.policy import RetryPolicy

CLASSIC = replace(SUBSCRIPTION, queue_type="classic")

QUORUM_ARGUMENTS: dict[str, dict[str, Argument]] = {
    "ucenter@user": {
        "x-queue-type": "quorum",
        "x-dead-letter-exchange": "master.retry",
        "x-dead-letter-routing-key": "ucenter@user",
        "x-dead-letter-strategy": "at-least-once",
        "x-overflow": "reject-publish",
        "x-delivery-limit": 1_000_000_000,
    },
    "ucenter@user@retry": {
        "x-queue-type": "quorum",
        "x-message-ttl": 30_000,
        "x-dead-letter-exchange": "",
        "x-dead-letter-routing-key": "ucenter@user",
        "x-dead-letter-strategy": "at-least-once",
        "x-overflow": "reject-publish",
    },
    "ucenter@user@failed": {"x-queue-type": "quorum", "x-delivery-limit": 1_000_000_000},
}
CLASSIC_ARGUMENTS: dict[str, dict[str, Argument]] = {
    "ucenter@user": {
        "x-queue-type": "classic",
        "x-dead-letter-exchange": "master.retry",
        "x-dead-letter-routing-key": "ucenter@user",
    },
    "ucenter@user@retry": {
        "x-queue-type": "classic",
        "x-message-ttl": 30_000,
        "x-dead-letter-exchange": "",
        "x-dead-letter-routing-key": "ucenter@user",
    },
    "ucenter@user@failed": {"x-queue-type": "classic"},
}


def arguments_of(subscription: Subscription) -> dict[str, dict[str, Argument]]:
    return {queue.name: dict(queue.arguments) for queue in subscription.topology().queues}


def test_the_queues_of_a_quorum_subscription() -> None:
    assert arguments_of(SUBSCRIPTION) == QUORUM_ARGUMENTS


def test_the_queues_of_a_classic_subscription() -> None:
    assert arguments_of(CLASSIC) == CLASSIC_ARGUMENTS


def test_a_subscription_has_quorum_queues_unless_told_otherwise() -> None:
    assert Subscription("ucenter@user").queue_type == "quorum"


@pytest.mark.parametrize("subscription", [SUBSCRIPTION, CLASSIC], ids=["quorum", "classic"])
def test_the_exchanges_of_a_subscription(subscription: Subscription) -> None:
    names = ("master", "master.retry", "master.failed", "master.deliver")
    assert subscription.topology().exchanges == tuple(
        Exchange(
            name,
            "topic",
            {"alternate-exchange": "master.unrouted"} if name == "master.deliver" else {},
        )
        for name in names
    )


@pytest.mark.parametrize("subscription", [SUBSCRIPTION, CLASSIC], ids=["quorum", "classic"])
def test_the_bindings_of_a_subscription(subscription: Subscription) -> None:
    assert set(subscription.topology().bindings) == {
        Binding("master", "ucenter@user", "user.*"),
        Binding("master", "ucenter@user", "ucenter@user"),
        Binding("master.retry", "ucenter@user@retry", "ucenter@user"),
        Binding("master.failed", "ucenter@user@failed", "ucenter@user"),
        Binding("master.deliver", "ucenter@user", "*." * 28 + "r.ucenter@user"),
        Binding("master.deliver", "ucenter@user", "*." * 28 + "p.user.*"),
    }


def test_a_name_or_pattern_that_leaves_no_room_for_a_delay_is_not_bound_for_delayed_messages() -> (
    None
):
    subscription = Subscription("q" * 198, ["a" * 198, "b" * 197])
    delayed = [
        binding
        for binding in subscription.topology().bindings
        if binding.source == "master.deliver"
    ]
    assert delayed == [Binding("master.deliver", "q" * 198, "*." * 28 + "p." + "b" * 197)]


@pytest.mark.parametrize(
    ("queue", "backoff", "problem"),
    [
        ("q" * 198, timedelta(seconds=1), "198 bytes"),
        ("q", timedelta(days=4000), "the delay ladder with ticks of 1 s ends at 3106 days"),
    ],
)
def test_a_subscription_whose_delays_the_ladder_cannot_do_is_refused(
    queue: str, backoff: timedelta, problem: str
) -> None:
    with pytest.raises(ConfigurationError, match=problem):
        Subscription(queue, retry=RetryPolicy(backoff=backoff))


def test_a_queue_shared_with_peers_has_the_arguments_that_they_declare() -> None:
    subscription = Subscription(
        "ucenter@user", ["user.*"], queue_type="classic", retry_via="republish"
    )
    assert arguments_of(subscription) == {
        "ucenter@user@failed": {"x-queue-type": "classic"},
        "ucenter@user@retry": {
            "x-queue-type": "classic",
            "x-message-ttl": 30_000,
            "x-dead-letter-exchange": "master",
            "x-dead-letter-routing-key": "ucenter@user",
        },
        "ucenter@user": {"x-queue-type": "classic"},
    }


def test_a_quorum_queue_is_not_shared_with_peers() -> None:
    with pytest.raises(ConfigurationError, match="Use queue_type='classic'"):
        Subscription("q", retry_via="republish")


def test_a_subscription_of_another_family_uses_its_exchanges() -> None:
    topology = replace(
        SUBSCRIPTION, exchanges=ExchangeFamily("shop", "@retry", "@failed")
    ).topology()
    assert [exchange.name for exchange in topology.exchanges] == [
        "shop",
        "shop@retry",
        "shop@failed",
        "shop.deliver",
    ]
    assert {binding.source for binding in topology.bindings} == {
        "shop",
        "shop@retry",
        "shop@failed",
        "shop.deliver",
    }
    assert topology.queues[0].arguments["x-dead-letter-exchange"] == "shop@retry"


def test_the_delay_is_the_ttl_of_the_retry_queue() -> None:
    subscription = replace(SUBSCRIPTION, retry=RetryPolicy(delay=timedelta(minutes=5)))
    assert arguments_of(subscription)["ucenter@user@retry"]["x-message-ttl"] == 300_000


@pytest.mark.parametrize("retry_via", ["dead-letter", "broker"])
def test_the_main_queue_is_declared_before_the_queues_that_depend_on_its_kind(
    retry_via: RetryVia,
) -> None:
    first, *_ = replace(SUBSCRIPTION, retry_via=retry_via).topology().queues
    assert first.name == "ucenter@user"


def test_the_main_queue_is_bound_to_patterns_after_the_ways_out_of_it() -> None:
    sources = [binding.source for binding in SUBSCRIPTION.topology().bindings]
    assert sources == [
        "master.failed",
        "master.retry",
        "master.deliver",
        "master.deliver",
        "master",
        "master",
    ]


def test_the_objects_of_a_topology_are_in_the_order_in_which_they_are_declared() -> None:
    topology = SUBSCRIPTION.topology()
    assert topology.objects == (*topology.exchanges, *topology.queues, *topology.bindings)


def test_a_pattern_given_twice_is_bound_once() -> None:
    bindings = Subscription("q", ["a", "b", "a", "q"]).topology().bindings
    assert [binding.routing_key for binding in bindings if binding.source == "master"] == [
        "a",
        "b",
        "q",
    ]


def test_a_subscription_without_patterns_is_bound_by_its_name() -> None:
    assert Binding("master", "q", "q") in Subscription("q").topology().bindings


def test_a_topology_is_a_value() -> None:
    assert (SUBSCRIPTION.topology(), hash(SUBSCRIPTION.topology())) == (
        SUBSCRIPTION.topology(),
        hash(SUBSCRIPTION.topology()),
    )


def test_the_arguments_of_a_queue_cannot_be_changed() -> None:
    queue = SUBSCRIPTION.topology().queues[0]
    with pytest.raises(TypeError):
        queue.arguments["x-max-length"] = 1  # type: ignore[index]


def test_a_queue_without_a_type_is_classic() -> None:
    assert Queue("q").type == "classic"


@pytest.mark.parametrize("queue_type", ["quorum", "classic"])
def test_the_failed_queue_of_a_name_is_that_of_its_subscription(queue_type: QueueType) -> None:
    topology = replace(SUBSCRIPTION, queue_type=queue_type).topology()
    assert failed_queue_of("ucenter@user", queue_type) in topology.queues


# --- what is refused ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ({"queue": ""}, "queue name"),
        ({"queue": "q@failed"}, "queue name"),
        ({"queue": "q", "routing_keys": "user.*"}, r"Give a list: \['user\.\*'\]"),
        ({"queue": "q", "routing_keys": ["x" * 256]}, "routing key"),
        ({"queue": "q", "routing_keys": [None]}, "routing key"),
        ({"queue": "q", "queue_type": "stream"}, "Choose 'quorum' or 'classic'"),
        ({"queue": "q", "retry_via": "pigeon"}, "retry_via is 'pigeon'"),
        ({"queue": "q", "retry": 3}, "Give a RetryPolicy"),
    ],
    ids=lambda part: str(part)[:40],
)
def test_a_subscription_that_cannot_be_is_refused(
    arguments: dict[str, object], problem: str
) -> None:
    with pytest.raises(ConfigurationError, match=problem):
        Subscription(**arguments)  # type: ignore[arg-type]


def test_quorum_queues_are_refused_on_a_broker_that_is_too_old() -> None:
    with pytest.raises(
        ConfigurationError, match=r"needs RabbitMQ 3\.10 or newer; this broker is 3\.9\.5"
    ):
        SUBSCRIPTION.check_broker(BrokerVersion(3, 9, 5))


@pytest.mark.parametrize(
    ("subscription", "version"),
    [(SUBSCRIPTION, BrokerVersion(3, 10)), (CLASSIC, BrokerVersion(3, 8))],
    ids=["quorum", "classic"],
)
def test_a_broker_that_can_do_it_is_accepted(
    subscription: Subscription, version: BrokerVersion
) -> None:
    subscription.check_broker(version)


def test_exchanges_that_are_a_name_are_refused() -> None:
    with pytest.raises(ConfigurationError, match="exchanges is 'master'"):
        Subscription("q", exchanges="master")  # type: ignore[arg-type]


@pytest.mark.parametrize("queue_type", ["quorum", "classic"])
def test_a_failed_queue_with_a_limit_refuses_and_drops_nothing(queue_type: QueueType) -> None:
    limited = Subscription("ucenter@user", queue_type=queue_type, max_failed=1000)
    failed = next(
        queue for queue in limited.topology().queues if queue.name == limited.failed_queue
    )

    assert failed.arguments["x-max-length"] == 1000
    assert failed.arguments["x-overflow"] == "reject-publish"


@pytest.mark.parametrize("number", [0, -1, True, 1.5, "5"])
def test_a_limit_that_is_none_is_refused(number: int) -> None:
    with pytest.raises(ConfigurationError, match="max_failed is"):
        Subscription("ucenter@user", max_failed=number)


def test_a_limit_of_a_shared_failed_queue_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="reject-publish"):
        Subscription("ucenter@user", queue_type="classic", retry_via="republish", max_failed=5)


def test_bindings_of_others_are_compared_whatever_their_arguments_hold() -> None:
    values: list[object] = [["a"], {"b": [1]}, 1, True, "1", None, 1.5]
    found = {Binding("e", "q", "", arguments=(("x", value), ("n", 1))) for value in values}
    assert len(found) == len(values)
    assert [one.arguments[1][1] for one in sorted(found)] != []
    assert Binding("e", "q", "", arguments=(("n", 1), ("x", ["a"]))) in found
