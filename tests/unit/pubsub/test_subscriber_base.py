"""What a subscriber refuses when it is made, and what it is told of."""

from datetime import timedelta
from typing import ClassVar, Literal

import pytest

from redrive.errors import ConfigurationError
from redrive.pubsub.lifecycle import BrokerAccess
from redrive.pubsub.message import Message
from redrive.pubsub.service_connection import Address
from redrive.pubsub.subscriber_base import PREFETCH_PER_HANDLER, SubscriberBase
from redrive.pubsub.tls import ContextSource
from redrive.pubsub.url import Credentials
from redrive.pubsub.work import ConsumeOptions
from redrive.topology.policy import RetryPolicy


class Subscriber(SubscriberBase):
    """A subscriber that never connects."""

    _handlers_are_async: ClassVar[Literal[False]] = False

    def _make_connector(
        self,
        url: Address,
        name: str,
        credentials: Credentials | None,
        ssl_context: ContextSource | None,
    ) -> None:
        self._access = BrokerAccess(url, name, credentials, ssl_context)

    @property
    def access(self) -> BrokerAccess:
        """Where it would connect to."""
        return self._access

    def _does_nothing(self, *_: object, **__: object) -> None: ...

    declare = start = run = stop = abort = wait = _does_nothing

    @property
    def options(self) -> ConsumeOptions:
        """What it makes of its arguments."""
        return self._options


def made(**arguments: object) -> Subscriber:
    """A subscriber with these arguments."""
    return Subscriber("amqp://localhost/", "orders", ["order.*"], **arguments)  # type: ignore[arg-type]


async def wanted(_: Message) -> bool:
    return True


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ({"concurrency": 0}, "concurrency is 0"),
        ({"concurrency": True}, "concurrency is True"),
        ({"concurrency": 1001}, "concurrency is 1001"),
        ({"prefetch": 65536}, "prefetch is 65536"),
        ({"concurrency": 5, "prefetch": 4}, "prefetch is 4 with a concurrency of 5"),
        ({"ordered": True, "concurrency": 2}, "concurrency of 2"),
        ({"ordered": True, "prefetch": 2}, "prefetch of 2"),
        ({"order_by": "id"}, "order_by is 'id'"),
        ({"when_given_up": "park"}, "is not ordered"),
        ({"order_by": "$.id", "when_given_up": "stop"}, "when_given_up is 'stop'"),
        ({"where": "vip"}, "the filter 'vip' can't be read"),
        ({"where": 3}, "where is 3"),
        ({"where": wanted}, "which is async"),
        ({"grace": -1}, "-1"),
        ({"patience": float("inf")}, "inf"),
    ],
)
def test_an_argument_that_is_invalid_is_named(arguments: dict[str, object], problem: str) -> None:
    with pytest.raises(ConfigurationError) as refused:
        made(**arguments)
    assert problem in str(refused.value)


def test_the_prefetch_is_thirty_for_each_handler_and_one_where_order_counts() -> None:
    assert made(concurrency=3).options.prefetch == 3 * PREFETCH_PER_HANDLER
    assert made(ordered=True).options.prefetch == 1


def test_with_a_key_to_order_by_several_are_in_hand_and_handled_at_a_time() -> None:
    ordered = made(order_by="$.id", concurrency=3)
    assert ordered.subscription.ordered
    assert ordered.options.prefetch == 3 * PREFETCH_PER_HANDLER


def test_retries_behind_which_messages_wait_for_long_are_warned_of(
    caplog: pytest.LogCaptureFixture,
) -> None:
    made(order_by="$.id", retry=RetryPolicy(max_retries=3, delay="10m"))
    assert "may stay unsettled for 30 min" in caplog.text


def test_times_are_seconds_or_timedeltas() -> None:
    options = made(
        grace=timedelta(minutes=1), patience=5, handler_timeout=timedelta(seconds=2)
    ).options
    assert (options.grace, options.patience, options.handler_timeout) == (
        60.0,
        timedelta(seconds=5),
        2.0,
    )


def test_each_broadcast_subscriber_has_a_queue_of_its_own() -> None:
    queues = {made(broadcast=True).subscription.queue for _ in range(2)}
    assert len(queues) == 2
    assert all(queue.startswith("orders@") for queue in queues)


def test_a_second_handler_is_refused() -> None:
    subscriber = made()
    subscriber.handler(lambda message: None)
    with pytest.raises(ConfigurationError, match="nothing says which"):
        subscriber.handler(lambda message: None)


def test_messages_that_would_stay_unsettled_for_long_are_warned_of(
    caplog: pytest.LogCaptureFixture,
) -> None:
    made(handler_timeout=10)
    assert caplog.messages == []
    made(handler_timeout=100)
    assert "may stay unsettled for 50 min" in caplog.text


def test_a_pattern_that_is_hardly_meant_is_warned_of(caplog: pytest.LogCaptureFixture) -> None:
    Subscriber("amqp://localhost/", "shop@orders", ["user.*", "#"])
    assert caplog.messages == []
    Subscriber("amqp://localhost/", "shop@orders", ["a.*b"])
    assert "the word '*b' matches only itself" in caplog.text
