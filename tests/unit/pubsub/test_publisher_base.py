"""What a publisher says of messages that no queue got, and what it refuses."""

import logging
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from deliveries import first_delivery
from redrive.errors import ConfigurationError, HandlerTimeout
from redrive.pubsub.blocking.publisher import Publisher
from redrive.pubsub.message import Message, begin_handling, end_handling
from redrive.pubsub.publisher_base import (
    MOST_UNROUTED_KEYS,
    Destination,
    UnroutedKeys,
    destination,
)
from redrive.topology.delay_route import destination_of
from redrive.topology.names import ExchangeFamily

SHOP = ExchangeFamily("shop")
PAST = datetime(2020, 1, 1, tzinfo=UTC)


def keys_told(caplog: pytest.LogCaptureFixture) -> list[str]:
    """The routing keys that the log names, in their order."""
    return [record.__dict__["redrive"]["routing_key"] for record in caplog.records]


def test_each_key_is_told_once(caplog: pytest.LogCaptureFixture) -> None:
    keys = UnroutedKeys("master")
    keys.tell(["user.create", "user.create"])
    keys.tell(["user.update", "user.create"])

    assert keys_told(caplog) == ["user.create", "user.update"]
    assert {record.levelno for record in caplog.records} == {logging.WARNING}


def test_where_each_message_has_a_key_of_its_own_the_log_is_not_flooded(
    caplog: pytest.LogCaptureFixture,
) -> None:
    keys = UnroutedKeys("master")
    for number in range(10 * MOST_UNROUTED_KEYS):
        keys.tell([f"user.{number}"])

    assert len(caplog.records) == MOST_UNROUTED_KEYS + 1
    assert caplog.messages[-1].startswith(
        f"there are {MOST_UNROUTED_KEYS} routing keys without a queue"
    )


def test_a_key_can_not_forge_a_line_of_the_log(caplog: pytest.LogCaptureFixture) -> None:
    UnroutedKeys("mas\nter").tell(["user\n2026-01-01 ERROR \x1b[2J\u202e\x9b\udc80"])

    (message,) = caplog.messages
    assert message.isprintable()


def test_a_log_handler_that_publishes_for_nobody_does_not_go_round_in_circles(
    caplog: pytest.LogCaptureFixture,
) -> None:
    keys = UnroutedKeys("master")

    class Publishes(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            keys.tell(["log.warning"])

    handler = Publishes()
    logging.getLogger("redrive").addHandler(handler)
    try:
        keys.tell(["user.create"])
    finally:
        logging.getLogger("redrive").removeHandler(handler)

    assert sorted(keys_told(caplog)) == ["log.warning", "user.create"]


class Attempt:
    timed_out_after: float | None = None


@pytest.mark.parametrize(
    "publish",
    [
        lambda publisher: publisher.publish({}, "user.create"),
        lambda publisher: publisher._outgoing(({}, "user.create"), lambda *_: None),
    ],
    ids=["publish", "publish_many"],
)
def test_a_handler_whose_time_is_up_can_publish_nothing(
    publish: Callable[[Publisher], object],
) -> None:
    attempt = Attempt()
    publisher = Publisher("amqp://localhost/")
    token = begin_handling(Message(first_delivery(), attempt=attempt), is_async=False)
    attempt.timed_out_after = 3.0
    try:
        with pytest.raises(HandlerTimeout, match="more than 3 s: what it publishes now is refused"):
            publish(publisher)
    finally:
        end_handling(token)


@pytest.mark.parametrize(
    "times", [{}, {"delay": 0}, {"deliver_at": PAST}], ids=["now", "delay", "time"]
)
def test_a_message_that_need_not_wait_goes_to_the_main_exchange(times: dict[str, Any]) -> None:
    assert destination(SHOP, "order.paid", **times) == Destination("shop", "order.paid")


def test_a_message_that_has_to_wait_enters_the_ladder_where_its_time_needs_it() -> None:
    by_delay = destination(SHOP, "order.paid", delay=3600)
    by_time = destination(SHOP, "order.paid", deliver_at=datetime.now(UTC) + timedelta(hours=1))
    for found in (by_delay, by_time):
        assert (found.exchange, found.levels) == ("shop.delay.11", 12)  # 2,048 to 4,095 seconds
        assert destination_of(found.routing_key, "p") == "order.paid"


def test_a_delay_and_a_time_together_are_refused() -> None:
    with pytest.raises(ConfigurationError, match="both delay and deliver_at"):
        destination(SHOP, "order.paid", timedelta(0), PAST)
