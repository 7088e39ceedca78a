"""Copies of failures: a stream that keeps them, and a queue of one follower's own."""

from datetime import timedelta

from redrive.topology.history import (
    failures_into,
    history_binding,
    history_of,
    history_queue,
    outcomes_into,
    tap_queue,
)
from redrive.topology.model import Binding
from redrive.topology.names import ExchangeFamily

FAMILY = ExchangeFamily("shop")


def test_a_history_is_a_stream_that_each_failure_is_copied_into() -> None:
    queue = history_queue(FAMILY, timedelta(days=3))

    assert queue.name == history_of(FAMILY) == "shop.failed.history"
    assert queue.type == "stream"
    assert queue.arguments["x-max-age"] == "259200s"
    assert history_binding(FAMILY) == Binding("shop.failed", "shop.failed.history", "#")


def test_a_history_keeps_failures_for_a_second_at_least() -> None:
    assert history_queue(FAMILY, timedelta(milliseconds=1)).arguments["x-max-age"] == "1s"


def test_a_tap_holds_up_nobody_and_goes_by_itself() -> None:
    tap = tap_queue("1")

    assert tap.name.endswith("tap-1")
    assert tap.arguments["x-overflow"] == "drop-head"
    assert tap.arguments["x-expires"] == 60_000


def test_a_tap_takes_outcomes_and_the_failures_of_all_queues_or_of_one() -> None:
    tap = tap_queue("1")

    assert outcomes_into(tap, FAMILY) == Binding("shop.events", tap.name, "#")
    assert failures_into(tap, FAMILY) == Binding("shop.failed", tap.name, "#")
    assert failures_into(tap, FAMILY, "crm@users") == Binding("shop.failed", tap.name, "crm@users")
