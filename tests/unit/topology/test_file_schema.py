import re
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from redrive.topology import file_schema
from redrive.topology.backoff import Delays, Exponential, Linear
from redrive.topology.file_schema import InvalidSpec, Problem, union_of
from redrive.topology.model import Subscription
from redrive.topology.names import ExchangeFamily
from redrive.topology.policy import RetryPolicy
from redrive.topology.tags import TagFilter


def built(value: object) -> tuple[Subscription, ...]:
    return file_schema.parse(value).built()


def one(settings: object, **defaults: object) -> Subscription:
    (subscription,) = built({"defaults": defaults, "subscriptions": {"shop@orders": settings}})
    return subscription


def problem_of(value: object) -> Problem:
    with pytest.raises(InvalidSpec) as caught:
        file_schema.parse(value)
    problem = caught.value.problems[0]
    assert problem.remedy
    return problem


def test_a_subscription_that_says_nothing_is_the_usual_one() -> None:
    assert one({}) == Subscription("shop@orders")


def test_everything_that_a_file_can_say_reaches_the_subscription() -> None:
    assert one(
        {
            "routing_keys": ["order.*", "#"],
            "exchange": {"main": "shop", "retry_suffix": "@retry", "failed_suffix": "@failed"},
            "queue_type": "classic",
            "retry_via": "dead-letter",
            "retry": {
                "delay": "1m30s",
                "max_retries": 7,
                "max_crashes": 2,
                "backoff": ["10s", "1m"],
                "max_age": "1d",
            },
        }
    ) == Subscription(
        "shop@orders",
        ("order.*", "#"),
        ExchangeFamily("shop", "@retry", "@failed"),
        RetryPolicy(
            7,
            timedelta(seconds=90),
            2,
            Delays((timedelta(seconds=10), timedelta(minutes=1))),
            max_age=timedelta(days=1),
        ),
        "classic",
    )


def test_a_name_alone_is_an_exchange_family() -> None:
    assert one({"exchange": "shop"}).exchanges == ExchangeFamily("shop")


def test_defaults_hold_where_a_subscription_says_nothing() -> None:
    subscription = one({}, exchange="shop", queue_type="classic", retry={"delay": "5m"})
    assert (subscription.exchanges.main, subscription.queue_type, subscription.retry.delay) == (
        "shop",
        "classic",
        timedelta(minutes=5),
    )


def test_a_subscription_overrules_each_default_by_itself() -> None:
    retry = one({"retry": {"max_retries": 9}}, retry={"delay": "5m", "max_retries": 1}).retry
    assert (retry.max_retries, retry.delay) == (9, timedelta(minutes=5))


def test_delays_that_grow_are_a_mapping() -> None:
    retry = one(
        {"retry": {"backoff": {"first": "1s", "factor": 3, "cap": "5m", "jitter": 1}}}
    ).retry
    assert retry.backoff == Exponential(timedelta(seconds=1), 3, timedelta(minutes=5), 1)


def test_tags_are_an_expression() -> None:
    assert one({"tags": "vip || eu"}).tags == TagFilter("vip || eu")


def test_the_tick_belongs_to_the_exchange_family() -> None:
    assert one({"exchange": {"tick": "50ms"}}).exchanges.tick == timedelta(milliseconds=50)


def test_a_duration_in_python_is_taken_as_it_is() -> None:
    assert one({"retry": {"delay": timedelta(seconds=3)}}).retry.delay == timedelta(seconds=3)


@pytest.mark.parametrize(
    ("value", "location", "problem"),
    [
        (None, (), "an empty value is not a mapping"),
        ({}, ("subscriptions",), "'subscriptions' is missing"),
        ({"subscriptions": {}, "more": 1}, ("more",), "'more' is not a known key"),
        (
            {"subscriptions": {}, "defaults": {"routing_keys": []}},
            ("defaults", "routing_keys"),
            "'routing_keys' is not a known key",
        ),
        (
            {"subscriptions": {"a": {"typo": 1}}},
            ("subscriptions", "a", "typo"),
            "'typo' is not a known key",
        ),
        (
            {"subscriptions": {"a": {"retry": {"typo": 1}}}},
            ("subscriptions", "a", "retry", "typo"),
            "'typo' is not a known key",
        ),
        (
            {"subscriptions": {"a": {"exchange": {"typo": 1}}}},
            ("subscriptions", "a", "exchange", "typo"),
            "'typo' is not a known key",
        ),
        (
            {"subscriptions": {"a": {"retry": {"delay": 30}}}},
            ("subscriptions", "a", "retry", "delay"),
            "the duration is 30",
        ),
        (
            {"subscriptions": {"a": {"retry": {"delay": "3x"}}}},
            ("subscriptions", "a", "retry", "delay"),
            "the unknown unit 'x'",
        ),
        (
            {"subscriptions": {"a": {"retry": {"delay": "99d"}}}},
            ("subscriptions", "a", "retry", "delay"),
            "the retry delay is 99 days",
        ),
        (
            {"subscriptions": {"a": {"retry": {"max_retries": -1}}}},
            ("subscriptions", "a", "retry", "max_retries"),
            "-1 is invalid",
        ),
        (
            {"subscriptions": {"a": {"retry": {"max_retries": True}}}},
            ("subscriptions", "a", "retry", "max_retries"),
            "True is invalid",
        ),
        (
            {"subscriptions": {"a": {"retry": {"backoff": "3s"}}}},
            ("subscriptions", "a", "retry", "backoff"),
            "'3s' is not a list",
        ),
        (
            {"subscriptions": {"a": {"retry": {"backoff": ["1"]}}}},
            ("subscriptions", "a", "retry", "backoff", 0),
            "has no unit",
        ),
        (
            {"subscriptions": {"a": {"retry": {"backoff": {"x": 1}}}}},
            ("subscriptions", "a", "retry", "backoff", "first"),
            "is missing",
        ),
        (
            {"subscriptions": {"a": {"retry_via": "republish"}}},
            ("subscriptions", "a"),
            "has retry_via='republish' and queue_type='quorum'",
        ),
        (
            {"subscriptions": {"a": {"tags": "vip &&"}}},
            ("subscriptions", "a", "tags"),
            "can't be read at character 7",
        ),
        ({"subscriptions": {"a@failed": {}}}, ("subscriptions", "a@failed"), "ends in '@failed'"),
        ({"subscriptions": {1: {}}}, ("subscriptions", 1), "1 is not a text"),
        ({"subscriptions": {"a": None}}, ("subscriptions", "a"), "an empty value is not a mapping"),
        (
            {"subscriptions": {"a": {"routing_keys": "x"}}},
            ("subscriptions", "a", "routing_keys"),
            "'x' is not a list",
        ),
        (
            {"subscriptions": {"a": {"routing_keys": [None]}}},
            ("subscriptions", "a", "routing_keys", 0),
            "an empty value is not a text",
        ),
        (
            {"subscriptions": {"a": {"routing_keys": ["k" * 256]}}},
            ("subscriptions", "a", "routing_keys", 0),
            "at most 255 fit",
        ),
        (
            {"subscriptions": {"a": {"queue_type": "stream"}}},
            ("subscriptions", "a", "queue_type"),
            "'stream' is invalid",
        ),
        (
            {"subscriptions": {"a": {"exchange": ""}}},
            ("subscriptions", "a"),
            "the exchange name is ''",
        ),
        (
            {"subscriptions": {"master.delay.0": {"retry": {"backoff": ["3s"]}}}},
            ("subscriptions", "master.delay.0"),
            "the delay ladder",
        ),
        (
            {"subscriptions": {"master.unrouted": {}}},
            ("subscriptions", "master.unrouted"),
            "the delay ladder of exchange 'master'",
        ),
        (
            {
                "subscriptions": {
                    "a": {"exchange": {"tick": "50ms"}},
                    "master.delay-50ms.27": {"exchange": "shop"},
                }
            },
            ("subscriptions", "master.delay-50ms.27"),
            "the delay ladder of exchange 'master'",
        ),
        (
            {"subscriptions": {"a@migrating": {}, "a": {}}},
            ("subscriptions", "a@migrating"),
            "'a' uses it while",
        ),
        (
            {"subscriptions": {"a": {}, "a@retry@migrating": {}}},
            ("subscriptions", "a@retry@migrating"),
            "is reserved: 'a@retry'",
        ),
        (
            {"subscriptions": {"a": {}, "b": {"exchange": "master.deliver"}}},
            ("subscriptions", "b"),
            "the exchange name 'master.deliver'",
        ),
        (
            {"subscriptions": {"a": {}, "b": {"exchange": "master.unrouted"}}},
            ("subscriptions", "b"),
            "the exchange name 'master.unrouted'",
        ),
    ],
)
def test_a_mistake_has_its_place_and_its_words(
    value: object, location: tuple[object, ...], problem: str
) -> None:
    found = problem_of(value)
    assert found.location == location
    assert problem in found.problem


def test_every_mistake_is_found() -> None:
    with pytest.raises(InvalidSpec) as caught:
        file_schema.parse({"subscriptions": {"a": {"typo": 1}, "b": {"retry": {"delay": "1"}}}})
    assert len(caught.value.problems) == 2
    assert str(caught.value).startswith("subscriptions.a.typo: 'typo' is not a known key")


def test_a_key_that_is_not_known_comes_with_those_that_are() -> None:
    assert (
        "max_retries, delay, max_crashes"
        in problem_of({"subscriptions": {"a": {"retry": {"typo": 1}}}}).remedy
    )


def test_the_schema_has_every_key_with_a_description_and_forbids_others() -> None:
    schema: Any = file_schema.schema()
    assert schema["additionalProperties"] is False
    subscription = schema["$defs"]["SubscriptionSpec"]
    assert set(subscription["properties"]) == {
        "delay_by",
        "exchange",
        "failed_queues",
        "max_failed",
        "ordered",
        "queue_type",
        "retry",
        "retry_via",
        "routing_keys",
        "tags",
        "when_given_up",
        "where",
    }
    assert all(
        "description" in described or "$ref" in described
        for described in subscription["properties"].values()
    )
    assert schema["$defs"]["RetrySpec"]["properties"]["delay"]["default"] == "30s"


def test_the_schema_has_a_title_for_people() -> None:
    assert file_schema.schema()["title"] == "redrive topology"


def test_the_manual_has_every_key_of_a_subscription() -> None:
    manual = (Path(__file__).resolve().parents[3] / "docs/topology.md").read_text()
    told = {
        key
        for line in manual.splitlines()
        if line.startswith("| `")
        for key in re.findall(r"`([a-z_.]+)`", line.split("|")[1])
    }
    schema: Any = file_schema.schema()
    keys = {key for key in schema["$defs"]["SubscriptionSpec"]["properties"] if key != "retry"}
    assert keys | {f"retry.{key}" for key in schema["$defs"]["RetrySpec"]["properties"]} <= told


def test_what_several_subscriptions_share_is_there_once() -> None:
    topology = union_of([Subscription("a").topology(), Subscription("b").topology()])
    assert [exchange.name for exchange in topology.exchanges] == [
        "master",
        "master.retry",
        "master.failed",
        "master.deliver",
    ]
    assert len(topology.queues) == 6


@pytest.mark.parametrize(
    "names",
    [["a@migrating", "b"], ["master.delay.28"], ["master.deliver"], ["a", "a.retry", "b" * 248]],
)
def test_a_name_that_only_looks_like_one_of_ours_may_be(names: list[str]) -> None:
    assert [
        subscription.queue
        for subscription in built({"subscriptions": {name: {} for name in names}})
    ] == names


def test_a_backoff_may_grow_linearly_as_the_broker_lets_it_grow() -> None:
    growing = {"growth": "linear", "first": "10s", "cap": "1m"}
    subscription = one({"retry_via": "broker", "retry": {"backoff": growing}})
    assert subscription.retry.backoff == Linear("10s", "1m")
    assert subscription.retry_via == "broker"


def test_a_factor_of_a_backoff_that_grows_linearly_is_a_mistake() -> None:
    growing = {"growth": "linear", "first": "10s", "factor": 3}
    found = problem_of({"subscriptions": {"shop@orders": {"retry": {"backoff": growing}}}})
    assert "grows linearly and has a factor" in found.problem
