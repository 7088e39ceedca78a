"""The ladder, walked as a broker would walk it: topic patterns, TTLs and dead-lettering."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from redrive.errors import ConfigurationError
from redrive.topology import delay_route
from redrive.topology.ladder import (
    Ladder,
    ladder_there,
    levels_of,
    others_on_ladder,
    with_ladder,
    without_ladder,
)
from redrive.topology.model import Binding, Queue, Subscription, Topology
from redrive.topology.names import ExchangeFamily
from redrive.topology.policy import RetryPolicy

SECOND = timedelta(seconds=1)
LONGEST = 2**28 - 1
NOW = datetime(2024, 5, 17, 8, 30, tzinfo=UTC)


def matches(pattern: str, key: str) -> bool:
    """Whether a topic exchange routes `key` by `pattern`, in which `#` stands only at the end."""
    words, wanted = key.split("."), pattern.split(".")
    if wanted[-1] == "#":
        wanted = wanted[:-1]
        words = words[: len(wanted)] if len(words) >= len(wanted) else words
    return len(words) == len(wanted) and all(
        word in ("*", found) for word, found in zip(wanted, words, strict=True)
    )


def walk(topology: Topology, exchange: str, key: str) -> Iterator[Queue | str]:
    """The queues that a message passes through, and at last the exchange that has no binding for it
    here."""
    queues = {queue.name: queue for queue in topology.queues}
    while True:
        ways = [
            binding
            for binding in topology.bindings
            if binding.source == exchange and matches(binding.routing_key, key)
        ]
        if not ways:
            yield exchange
            return
        assert len(ways) == 1, ways
        if ways[0].to == "exchange":
            exchange = ways[0].destination
        else:
            queue = queues[ways[0].destination]
            yield queue
            exchange = str(queue.arguments["x-dead-letter-exchange"])


@given(
    st.one_of(st.integers(1, 300), st.integers(1, LONGEST)),
    st.sampled_from(["user.create", "a", "", "x" * 197]),
)
def test_a_message_waits_in_the_queues_of_its_bits_and_ends_at_the_delivering_exchange(
    ticks: int, key: str
) -> None:
    ladder = Ladder()
    exchange, routing_key = ladder.way(ticks * SECOND, "p", key)
    *passed, end = walk(ladder.topology(ladder.levels_for(ticks * SECOND)), exchange, routing_key)
    times = [int(queue.arguments["x-message-ttl"]) for queue in passed if isinstance(queue, Queue)]
    assert end == "master.deliver"
    assert sum(times) == ticks * 1000
    assert times == sorted(times, reverse=True)
    assert delay_route.destination_of(routing_key, "p") == key


def test_no_delay_goes_to_the_delivering_exchange_at_once() -> None:
    assert Ladder().way(timedelta(0), "r", "q")[0] == "master.deliver"


@pytest.mark.parametrize(
    ("delay", "ticks"),
    [
        (timedelta(microseconds=1), 1),
        (SECOND, 1),
        (SECOND + timedelta(microseconds=1), 2),
        (timedelta(days=3106), 268_358_400),
    ],
)
def test_a_delay_is_never_shortened_and_at_most_one_tick_longer(
    delay: timedelta, ticks: int
) -> None:
    assert delay_route.ticks_in(delay, SECOND) == ticks


@pytest.mark.parametrize("tick", [SECOND, timedelta(milliseconds=50)])
def test_a_delay_beyond_the_ladder_is_refused_with_its_end(tick: timedelta) -> None:
    longest = delay_route.longest_delay(tick)
    assert Ladder(ExchangeFamily(tick=tick)).levels_for(longest) == 28
    with pytest.raises(ConfigurationError, match=f"ends at {longest}"):
        Ladder(ExchangeFamily(tick=tick)).way(longest + tick, "p", "user.create")


def test_a_destination_of_198_bytes_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="198 bytes; delayed messages have room for 197"):
        Ladder().way(SECOND, "p", "x" * 198)


def test_a_ladder_has_only_the_levels_that_are_needed() -> None:
    ladder = Ladder()
    assert [queue.name for queue in ladder.topology(ladder.levels_for(5 * SECOND)).queues] == [
        "master.unrouted",
        "master.delay.0",
        "master.delay.1",
        "master.delay.2",
    ]


def test_a_ladder_with_another_tick_has_levels_of_its_own_and_delivers_by_the_same_exchange() -> (
    None
):
    ladder = Ladder(ExchangeFamily("shop", tick=timedelta(milliseconds=50)))
    (level,) = [queue for queue in ladder.topology(1).queues if queue.name != "shop.unrouted"]
    assert (
        level.name,
        level.arguments["x-message-ttl"],
        level.arguments["x-dead-letter-exchange"],
    ) == (
        "shop.delay-50ms.0",
        50,
        "shop.deliver",
    )


def test_each_exchange_of_a_ladder_parks_what_it_cannot_route() -> None:
    for exchange in Ladder().topology(28).exchanges[1:]:
        assert exchange.arguments == {"alternate-exchange": "master.unrouted"}


def test_a_level_moves_messages_with_confirms() -> None:
    assert Ladder().topology(1).queues[-1] == Queue(
        "master.delay.0",
        {
            "x-queue-type": "quorum",
            "x-message-ttl": 1000,
            "x-dead-letter-exchange": "master.deliver",
            "x-dead-letter-strategy": "at-least-once",
            "x-overflow": "reject-publish",
        },
    )


def test_a_family_whose_name_leaves_no_room_for_its_levels_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="exchange name"):
        Ladder(ExchangeFamily("x" * 246, tick=timedelta(days=1)))


@pytest.mark.parametrize(
    "tick", [timedelta(0), timedelta(microseconds=1500), timedelta(days=2), 0.0015, True], ids=repr
)
def test_a_tick_that_is_none_is_refused(tick: timedelta) -> None:
    with pytest.raises(ConfigurationError, match="the tick is"):
        ExchangeFamily(tick=tick)


def test_a_subscription_declares_the_levels_that_its_policy_uses() -> None:
    patient = Subscription("q", ["a.*"], retry=RetryPolicy(backoff=[SECOND, 60 * SECOND]))
    assert levels_of(patient) == 6
    names = [queue.name for queue in with_ladder(patient).queues]
    assert names[:2] == ["master.unrouted", "master.delay.0"]
    assert names[-3:] == ["q", "q@retry", "q@failed"]
    assert len(with_ladder(patient).exchanges) == len(
        {exchange.name for exchange in with_ladder(patient).exchanges}
    )


def test_a_subscription_with_one_delay_declares_no_level() -> None:
    subscription = Subscription("q", ["a.*"])
    assert (levels_of(subscription), with_ladder(subscription)) == (0, subscription.topology())


@given(st.text(max_size=80), st.sampled_from(["r", "p"]))
def test_whatever_a_routing_key_is_reading_a_destination_from_it_does_not_raise(
    key: str, kind: str
) -> None:
    assert delay_route.destination_of(key, kind) is None  # type: ignore[arg-type]


def test_a_key_of_the_other_kind_is_no_destination() -> None:
    assert delay_route.destination_of(delay_route.delivery_key(5, "p", "q"), "r") is None


@pytest.mark.parametrize(
    ("delay", "deliver_at", "wait"),
    [
        (None, None, timedelta(0)),
        (SECOND, None, SECOND),
        (None, NOW + SECOND, SECOND),
        (None, NOW - SECOND, timedelta(0)),
    ],
)
def test_a_message_waits_for_a_delay_or_until_a_time(
    delay: timedelta | None, deliver_at: datetime | None, wait: timedelta
) -> None:
    assert delay_route.wait_until(delay, deliver_at, NOW) == wait


@pytest.mark.parametrize(
    ("delay", "deliver_at", "problem"),
    [
        (SECOND, NOW, "both delay and deliver_at"),
        (-SECOND, None, "the delay is"),
        (-5, None, "the delay is -5"),
        (True, None, "the delay is True"),
        (None, datetime(2024, 5, 17), "no time zone"),
        (None, "tomorrow", "no time zone"),
    ],
)
def test_a_time_that_cannot_be_waited_for_is_refused(
    delay: timedelta, deliver_at: datetime, problem: str
) -> None:
    with pytest.raises(ConfigurationError, match=problem):
        delay_route.wait_until(delay, deliver_at, NOW)


def test_what_is_in_a_level_waits_for_the_rest_of_it_and_for_all_lower_ones() -> None:
    assert [Ladder().due_within(number) for number in (0, 1, 5)] == [
        SECOND,
        3 * SECOND,
        63 * SECOND,
    ]


OWN = Subscription("shop@orders", ["order.*"], retry=RetryPolicy(backoff=timedelta(seconds=3)))
OTHER = Subscription("other@orders", ["order.*"])
FAMILY = OWN.exchanges


def test_a_ladder_that_only_its_own_subscriptions_are_bound_to_has_no_others() -> None:
    topology = with_ladder(OWN)
    assert (
        others_on_ladder(topology, FAMILY, [*topology.bindings, Binding("master", "x", "#")]) == []
    )


@pytest.mark.parametrize(
    ("other", "told"),
    [
        (OTHER.topology(), ["other@orders"]),
        (
            Ladder(ExchangeFamily(tick=timedelta(milliseconds=50))).topology(1),
            ["master.delay-50ms.0"],
        ),
    ],
    ids=["another subscription", "a ladder with another tick"],
)
def test_who_else_is_bound_to_a_ladder_is_told(other: Topology, told: list[str]) -> None:
    topology = with_ladder(OWN)
    assert others_on_ladder(topology, FAMILY, [*topology.bindings, *other.bindings]) == told


def test_a_topology_without_its_ladder_keeps_the_subscription() -> None:
    left = without_ladder(with_ladder(OWN), FAMILY)
    assert left.queues == OWN.topology().queues
    assert [exchange.name for exchange in left.exchanges] == [
        "master",
        "master.retry",
        "master.failed",
    ]
    assert set(left.bindings) == set(OWN.topology().bindings)


def test_a_ladder_is_as_high_as_it_stands_on_the_broker() -> None:
    assert ladder_there(FAMILY, Ladder().topology(5).bindings) == Ladder().topology(5)
    assert ladder_there(FAMILY, OWN.topology().bindings) == Topology((), (), ())


@pytest.mark.parametrize(
    ("pattern", "words"),
    [
        (delay_route.delivery_pattern("r", "shop@orders"), "delayed retries of shop@orders"),
        (delay_route.delivery_pattern("p", "order.#"), "delayed messages with order.#"),
        ("*.*.1.#", "messages that wait at this level"),
        ("0.#", "messages that skip this level"),
        ("order.*", None),
        (delay_route.delivery_pattern("r", "x").replace("r.x", "q.x"), None),
    ],
)
def test_a_binding_of_the_ladder_is_told_in_words(pattern: str, words: str | None) -> None:
    assert delay_route.matches_of(pattern) == words
