"""The delay of messages that the broker holds back, set by a policy."""

from datetime import timedelta

import pytest

from redrive import Linear, RetryPolicy
from redrive.errors import ConfigurationError
from redrive.topology.broker_import import file_of, recover
from redrive.topology.delay_policy import (
    DelayPolicy,
    Policy,
    PolicyChange,
    change_for,
    delay_of,
    queue_of,
)
from redrive.topology.diff import Due, Observed, Retired, compare
from redrive.topology.formats import definitions_of, json_of
from redrive.topology.migration import pauses
from redrive.topology.model import Subscription

QUEUE = "shop@orders"
ASKED = DelayPolicy(QUEUE, 30_000, 30_000)
OURS = Policy(
    "redrive.delay.shop@orders",
    "^shop@orders$",
    {"delayed-retry-min": 30_000, "delayed-retry-max": 30_000},
    0,
    "quorum_queues",
)
SUBSCRIPTION = Subscription(QUEUE, ["order.*"], retry_via="broker", delay_by="policy")


def other(priority: int = 3, **definition: object) -> Policy:
    """A policy that somebody else has set for all queues of the shop."""
    settings = {name.replace("_", "-"): value for name, value in definition.items()}
    return Policy("limits", "^shop@", settings, priority)


def observed(*policies: Policy, delay: int | None = None) -> Observed:
    """A broker on which the subscription is, with these policies."""
    topology = SUBSCRIPTION.topology()
    queues = {queue.name: dict(queue.arguments) for queue in topology.queues}
    if delay is not None:
        queues[QUEUE] |= {"x-delayed-retry-min": delay, "x-delayed-retry-max": delay}
    return Observed(
        {exchange.name: exchange.type for exchange in topology.exchanges},
        queues,
        frozenset(topology.bindings),
        policies,
    )


def test_where_there_is_no_policy_one_is_set() -> None:
    assert change_for(ASKED, []) == PolicyChange(OURS, None, None)


def test_where_the_policy_is_as_asked_nothing_is_due() -> None:
    assert change_for(ASKED, [OURS]) is None


def test_a_change_says_what_was_and_what_is_to_be() -> None:
    change = change_for(DelayPolicy(QUEUE, 30_000, 60_000), [OURS])

    assert str(change) == "policy redrive.delay.shop@orders: delayed-retry-max 30000 → 60000"


def test_a_pattern_that_is_another_is_a_change_too() -> None:
    change = change_for(ASKED, [Policy(OURS.name, "^shop", OURS.definition, 0, "quorum_queues")])

    assert str(change).endswith(": its pattern or what it applies to")


def test_what_another_policy_sets_goes_on() -> None:
    change = change_for(ASKED, [other(max_length=5)])

    assert change is not None
    assert change.policy.definition == {
        "max-length": 5,
        "delayed-retry-min": 30_000,
        "delayed-retry-max": 30_000,
    }
    assert change.policy.priority == 4
    assert str(change).endswith(", plus the settings of policy limits")
    assert change_for(ASKED, [other(max_length=5), change.policy]) is None


def test_another_policy_that_changes_later_is_followed() -> None:
    merged = ASKED.over(other(max_length=5))

    change = change_for(ASKED, [other(priority=7, max_length=9), merged])

    assert str(change) == (
        "policy redrive.delay.shop@orders: max-length 5 → 9, priority 4 → 8, plus the settings of "
        "policy limits"
    )


def test_of_other_policies_the_one_with_the_highest_priority_counts() -> None:
    low = Policy("low", "", {"max-length": 1}, -5)

    change = change_for(ASKED, [low, other(max_length=5)])

    assert change is not None
    assert change.merged == "limits"


def test_another_policy_that_sets_the_same_delay_is_enough() -> None:
    same = other(delayed_retry_min=30_000, delayed_retry_max=30_000, max_length=5)

    assert change_for(ASKED, [same]) is None


@pytest.mark.parametrize(
    "settings",
    [{"delayed-retry-min": 10}, {"delayed-retry-max": 10}, {"delayed-retry-type": "all"}],
    ids=str,
)
def test_another_policy_that_sets_another_delay_is_refused(settings: dict[str, object]) -> None:
    with pytest.raises(ConfigurationError, match="policy 'limits' sets delayed-retry"):
        change_for(ASKED, [Policy("limits", "^shop@", settings, 3), OURS])


def test_two_policies_of_one_priority_are_refused() -> None:
    with pytest.raises(ConfigurationError, match="'limits' and 'more' are for queue 'shop@orders'"):
        change_for(ASKED, [other(), Policy("more", "orders", {}, 3)])


def test_a_pattern_that_cannot_be_read_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="its pattern '\\(' is not valid in Python"):
        change_for(ASKED, [Policy("odd", "(", {})])


@pytest.mark.parametrize("kind", ["exchanges", "classic_queues", "streams"])
def test_policies_for_other_things_do_not_matter(kind: str) -> None:
    assert change_for(ASKED, [Policy("else", "", {}, 3, kind)]) == PolicyChange(OURS, None, None)


def test_a_queue_name_is_no_pattern() -> None:
    assert not DelayPolicy("shop.orders", 1, 1).over().covers("shop_orders")
    assert DelayPolicy("shop.orders (new)", 1, 1).over().covers("shop.orders (new)")


def test_a_policy_of_ours_is_known_by_its_name() -> None:
    assert queue_of(OURS) == QUEUE
    assert queue_of(other()) is None


@pytest.mark.parametrize(
    ("policies", "found"),
    [
        ([], None),
        ([OURS], ASKED),
        ([OURS, other(priority=-1)], ASKED),
        ([OURS, other(priority=0)], None),
        ([OURS, other(priority=1)], None),
        ([OURS, Policy("odd", "(", {}, 9)], ASKED),
    ],
    ids=["none", "ours", "a lesser one", "which one is not known", "another", "an odd one"],
)
def test_the_delay_that_holds_is_that_of_the_policy_that_holds(
    policies: list[Policy], found: DelayPolicy | None
) -> None:
    assert delay_of(QUEUE, policies) == found


def test_the_queue_itself_has_no_delay_that_could_hold_a_policy_back() -> None:
    (main,) = (queue for queue in SUBSCRIPTION.topology().queues if queue.name == QUEUE)

    assert main.arguments["x-delayed-retry-type"] == "failed"
    assert not {"x-delayed-retry-min", "x-delayed-retry-max"} & set(main.arguments)


def test_a_growing_delay_is_a_policy_too() -> None:
    growing = Subscription(
        QUEUE,
        retry=RetryPolicy(backoff=Linear("10s", cap="1m")),
        retry_via="broker",
        delay_by="policy",
    )

    assert growing.topology().delay_policies == (DelayPolicy(QUEUE, 10_000, 60_000),)


def test_only_the_broker_takes_a_delay_by_policy() -> None:
    with pytest.raises(ConfigurationError, match="retry_via='dead-letter'"):
        Subscription(QUEUE, delay_by="policy")


def test_a_policy_that_is_due_is_a_difference() -> None:
    due = Due(PolicyChange(OURS, None, None))

    assert compare(SUBSCRIPTION.topology(), observed()) == [due]
    assert str(due).startswith("due: policy redrive.delay.shop@orders: delayed-retry-max none →")
    assert compare(SUBSCRIPTION.topology(), observed(OURS)) == []


def test_a_policy_that_nothing_asks_for_any_longer_goes() -> None:
    by_argument = Subscription(QUEUE, ["order.*"], retry_via="broker")

    differences = compare(by_argument.topology(), observed(OURS, other(priority=-1), delay=30_000))

    assert differences == [Retired(OURS)]
    assert str(differences[0]) == "retired: policy redrive.delay.shop@orders"


def test_what_is_on_a_broker_is_written_down_as_it_is() -> None:
    recovered = recover(observed(OURS))

    assert recovered.subscriptions == (SUBSCRIPTION,)
    assert recovered.notes == ()
    assert "delay_by: policy" in file_of(recovered)


def test_a_queue_without_any_delay_is_not_written_down() -> None:
    assert "holds messages back from None" in recover(observed()).notes[0]


def test_policies_that_contradict_each_other_leave_a_note() -> None:
    same = {"delayed-retry-min": 30_000, "delayed-retry-max": 30_000}

    recovered = recover(observed(OURS, Policy("odd", "(", same)))

    assert recovered.subscriptions == ()
    assert "is not valid in Python" in recovered.notes[0]


def test_a_policy_is_told_to_programs_as_rabbitmq_has_it() -> None:
    assert json_of(OURS) == {
        "kind": "policy",
        "name": "redrive.delay.shop@orders",
        "pattern": "^shop@orders$",
        "apply-to": "quorum_queues",
        "priority": 0,
        "definition": {"delayed-retry-min": 30_000, "delayed-retry-max": 30_000},
    }


def test_a_migration_says_how_long_a_policy_has_messages_wait() -> None:
    by_argument = Subscription(QUEUE, ["order.*"], retry_via="broker")

    assert pauses(by_argument, observed(OURS))[0].endswith("holds back in shop@orders, up to 30 s")
    assert pauses(by_argument, observed())[0].endswith("holds back in shop@orders")


def test_rabbitmq_imports_the_policy() -> None:
    (policy,) = definitions_of(SUBSCRIPTION.topology(), "shop")["policies"]

    assert policy == {
        "vhost": "shop",
        "name": "redrive.delay.shop@orders",
        "pattern": "^shop@orders$",
        "apply-to": "quorum_queues",
        "priority": 0,
        "definition": {"delayed-retry-min": 30_000, "delayed-retry-max": 30_000},
    }


def test_a_delay_is_a_whole_number_of_milliseconds() -> None:
    short = Subscription(
        QUEUE,
        retry=RetryPolicy(delay=timedelta(milliseconds=1)),
        retry_via="broker",
        delay_by="policy",
    )

    assert short.topology().delay_policies == (DelayPolicy(QUEUE, 1, 1),)
