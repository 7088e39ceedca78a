"""What a mistake in the code gets: an error of its own, in a line or two, that says what was found
and what to do."""

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pika
import pytest

from contract.plain import plain_channel
from contract.support import Service, assert_it_helps
from redrive import (
    ConfigurationError,
    Message,
    Publisher,
    RetryPolicy,
    Subscriber,
    TopologyMismatch,
    run,
)

URL = "amqp://guest:guest@localhost/"


async def an_async_handler(message: Message) -> None:
    """What Subscriber does not run."""


def a_handler_of_two(order: dict[str, object], more: object) -> None:
    """Wants the body twice."""


def a_handler_of_none() -> None:
    """Wants nothing."""


class Opaque:
    """Nothing that pydantic knows how to make."""


def a_handler_of_what_cannot_be(message: Opaque) -> None:
    """Wants what no body can be read as."""


@pytest.mark.parametrize(
    ("handler", "found"),
    [
        (an_async_handler, "is async"),
        (a_handler_of_two, "takes 2 arguments"),
        (a_handler_of_none, "takes 0 arguments"),
        (
            a_handler_of_what_cannot_be,
            "can't be read as: Unable to generate pydantic-core schema for <class",
        ),
    ],
)
def test_a_handler_that_cannot_be_is_refused_when_it_is_given(
    handler: Callable[..., Any], found: str
) -> None:
    with pytest.raises(ConfigurationError) as told:
        Subscriber(URL, "shop@orders").handler(handler)

    assert_it_helps(told.value, handler.__name__, found)


def test_a_second_handler_is_refused() -> None:
    subscriber = Subscriber(URL, "shop@orders")
    subscriber.handler(lambda message: None)
    with pytest.raises(ConfigurationError) as told:
        subscriber.handler(lambda message: None)

    assert_it_helps(told.value, "'shop@orders' has the handlers", "says which a message is for")


@pytest.mark.parametrize("start", [Subscriber.run, Subscriber.start, run])
def test_a_subscriber_without_a_handler_does_not_start(start: Callable[[Subscriber], None]) -> None:
    with pytest.raises(ConfigurationError) as told:
        start(Subscriber(URL, "shop@orders"))

    assert_it_helps(told.value, "'shop@orders' has no handler", "@subscriber.handler")


def test_running_nothing_is_refused() -> None:
    with pytest.raises(ConfigurationError) as told:
        run()

    assert_it_helps(told.value, "there is no subscriber to run")


@pytest.mark.parametrize(
    ("queue", "options", "found"),
    [
        ("shop@orders@retry", {}, "ends in '@retry'"),
        ("shop@orders@failed", {}, "ends in '@failed'"),
        ("", {}, "the queue name is ''"),
        ("q" * 249, {}, "249 bytes; at most 248"),
        ("ü" * 125, {}, "250 bytes; at most 248"),
        ("amq.orders", {}, "begins with 'amq.'"),
        ("shop\norders", {}, "control character"),
        ("shop@orders", {"routing_keys": ["x" * 256]}, "256 bytes; at most 255"),
        ("shop@orders", {"routing_keys": "order.*"}, "is the string 'order.*'"),
        ("shop@orders", {"exchange": ""}, "exchange name is ''"),
        ("shop@orders", {"queue_type": "stream"}, "queue_type is 'stream'"),
        ("shop@orders", {"concurrency": 0}, "concurrency is 0"),
        ("shop@orders", {"prefetch": 70000}, "prefetch is 70000"),
        ("shop@orders", {"concurrency": 5, "prefetch": 4}, "prefetch is 4 with a concurrency of 5"),
        ("shop@orders", {"handler_timeout": -1}, "-1"),
        ("shop@orders", {"retry": 3}, "retry is 3"),
    ],
)
def test_a_subscription_that_cannot_be_is_refused_when_it_is_made(
    queue: str, options: dict[str, Any], found: str
) -> None:
    with pytest.raises(ConfigurationError) as told:
        Subscriber(URL, queue, **options)

    assert_it_helps(told.value, found)


@pytest.mark.parametrize(
    ("values", "found"),
    [
        ({"max_retries": -1}, "max_retries is -1"),
        ({"max_retries": 1.5}, "max_retries is 1.5"),
        ({"max_crashes": 0}, "max_crashes is 0"),
        ({"delay": timedelta(0)}, "the retry delay is 0:00:00"),
        ({"delay": timedelta(days=50)}, "between 1 millisecond and 49 days"),
        ({"delay": True}, "the retry delay is True"),
        ({"delay": "30"}, "has no unit after 30"),
    ],
)
def test_a_retry_policy_that_cannot_be_is_refused_when_it_is_made(
    values: dict[str, Any], found: str
) -> None:
    with pytest.raises(ConfigurationError) as told:
        RetryPolicy(**values)

    assert_it_helps(told.value, found)


@pytest.mark.parametrize(
    ("body", "routing_key", "options", "found"),
    [
        (object(), "order.paid", {}, "the body, a object, can't be converted to JSON"),
        ("socks", "x" * 256, {}, "256 bytes; at most 255"),
        ("socks", "ü" * 128, {}, "256 bytes; at most 255"),
        ("socks", 7, {}, "the routing key is a int"),
        ("socks", "order.\ud800", {}, "not valid Unicode"),
        ("socks", "order.paid", {"headers": {"what": object()}}, "a header holds a object"),
        ("socks", "order.paid", {"headers": {"what": 2**64}}, "more than 64 bits"),
        ("socks", "order.paid", {"headers": {"x" * 256: 1}}, "over 255 bytes"),
        ("socks", "order.paid", {"headers": {7: 1}}, "header"),
        ("socks", "order.paid", {"headers": "what"}, "headers"),
        ("socks", "order.paid", {"message_id": "x" * 256}, "message_id is 256 bytes"),
        ("socks", "order.paid", {"message_id": 7}, "message_id"),
        ("socks", "order.paid", {"timeout": -1}, "-1"),
    ],
)
def test_a_message_that_cannot_be_is_refused_before_it_is_sent(
    rabbitmq_url: str, body: object, routing_key: str, options: dict[str, Any], found: str
) -> None:
    with Publisher(rabbitmq_url) as publisher:
        with pytest.raises(ConfigurationError) as told:
            publisher.publish(body, routing_key, **options)
        publisher.publish("socks", "order.paid")

    assert_it_helps(told.value, found)


@pytest.mark.parametrize(
    ("queue", "arguments"),
    [
        ("shop@orders", {"x-queue-type": "classic"}),
        ("shop@orders@retry", {"x-queue-type": "quorum", "x-message-ttl": 30000}),
        ("shop@orders@failed", {"x-queue-type": "quorum"}),
    ],
)
def test_a_queue_that_is_there_with_other_arguments_is_named_with_both_values(
    rabbitmq_url: str, queue: str, arguments: dict[str, Any]
) -> None:
    with plain_channel(rabbitmq_url) as channel:
        channel.queue_declare(queue, durable=True, arguments=arguments)
    with pytest.raises(TopologyMismatch) as told:
        Service(rabbitmq_url).declare()

    # Which of several differences is named is the broker's choice.
    error = told.value
    assert (error.kind, error.name) == ("queue", queue)
    assert error.argument.startswith("x-")
    assert error.wanted != error.found
    assert_it_helps(
        error,
        f"queue '{queue}'",
        f"{error.argument}={error.wanted}",
        f"{error.argument}={error.found}",
    )


@pytest.mark.versions("how the broker refuses a declaration")
def test_no_queue_is_made_beside_a_main_queue_with_other_arguments(rabbitmq_url: str) -> None:
    with plain_channel(rabbitmq_url) as channel:
        channel.queue_declare("shop@orders", durable=True)
    with pytest.raises(TopologyMismatch):
        Service(rabbitmq_url).declare()

    for queue in ("shop@orders@retry", "shop@orders@failed"):
        with (
            plain_channel(rabbitmq_url) as channel,
            pytest.raises(pika.exceptions.ChannelClosedByBroker, match="NOT_FOUND"),
        ):
            channel.queue_declare(queue, passive=True)


def test_another_delay_than_the_one_on_the_broker_is_told_with_both(rabbitmq_url: str) -> None:
    service = Service(rabbitmq_url)
    service.declare()
    slower = replace(service, retry=RetryPolicy(delay=timedelta(seconds=30)))
    with pytest.raises(TopologyMismatch) as told:
        slower.declare()

    assert (told.value.argument, told.value.wanted, told.value.found) == (
        "x-message-ttl",
        "30000",
        "50",
    )


def test_an_exchange_of_another_type_is_named(rabbitmq_url: str) -> None:
    with plain_channel(rabbitmq_url) as channel:
        channel.exchange_declare("master", "direct", durable=True)
    with pytest.raises(TopologyMismatch) as told:
        Service(rabbitmq_url).declare()

    assert_it_helps(told.value, "exchange 'master'", "topic", "direct")
