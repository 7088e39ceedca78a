from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from redrive.errors import ConfigurationError, GiveUp, InvalidMessage
from redrive.topology import names
from redrive.topology.backoff import Exponential, Linear
from redrive.topology.durations import Duration
from redrive.topology.model import Subscription
from redrive.topology.policy import DISCARD, NO_RETRY, THE_USUAL, ErrorRule, RetryPolicy


def test_a_message_is_tried_again_three_times_after_30_seconds_by_default() -> None:
    policy = RetryPolicy()
    assert (policy.max_retries, policy.delay, policy.max_crashes) == (3, timedelta(seconds=30), 5)


@given(st.integers(1, 2**32 - 1))
def test_the_delay_is_given_to_the_broker_in_milliseconds(milliseconds: int) -> None:
    retry = RetryPolicy(delay=timedelta(milliseconds=milliseconds))
    topology = Subscription("shop@orders", retry=retry).topology()
    (waiting,) = [one for one in topology.queues if one.name == "shop@orders@retry"]
    assert waiting.arguments["x-message-ttl"] == milliseconds


@pytest.mark.parametrize(
    "delay",
    [
        timedelta(0),
        timedelta(microseconds=999),
        timedelta(seconds=-1),
        timedelta(milliseconds=2**32),
        timedelta.max,
    ],
)
def test_a_delay_that_no_queue_can_have_is_refused(delay: timedelta) -> None:
    with pytest.raises(ConfigurationError, match="retry delay"):
        RetryPolicy(delay=delay)


@pytest.mark.parametrize("delay", [30, 30.0, "30s", timedelta(seconds=30)], ids=repr)
def test_a_delay_may_be_given_in_seconds_as_a_text_or_as_a_timedelta(delay: Duration) -> None:
    policy = RetryPolicy(
        delay=delay, backoff=[delay], max_age=delay, errors={ValueError: ErrorRule(backoff=delay)}
    )
    same = timedelta(seconds=30)
    assert (policy.delay, policy.max_age) == (same, same)
    (rule,) = policy.rules_for(ValueError)
    assert policy.delay_of(THE_USUAL, 1, 0) == policy.delay_of(rule, 1, 0) == same


@pytest.mark.parametrize("delay", [None, True, "30", "soon", b"30s", float("nan")], ids=repr)
def test_what_is_no_delay_is_refused(delay: Duration) -> None:
    with pytest.raises(ConfigurationError, match=r"duration|delay"):
        RetryPolicy(delay=delay)


@pytest.mark.parametrize("number", [-1, 1.0, "3", True], ids=repr)
def test_a_number_of_retries_that_is_none_is_refused(number: int) -> None:
    with pytest.raises(ConfigurationError, match="max_retries"):
        RetryPolicy(max_retries=number)


@pytest.mark.parametrize("number", [0, -1, 1.0, "3", None, True], ids=repr)
def test_a_number_of_crashes_that_is_none_is_refused(number: int) -> None:
    with pytest.raises(ConfigurationError, match="max_crashes"):
        RetryPolicy(max_crashes=number)


def test_no_retries_and_one_crash_are_the_least() -> None:
    policy = RetryPolicy(max_retries=0, max_crashes=1)
    assert (policy.max_retries, policy.max_crashes) == (0, 1)


def test_a_delay_finer_than_a_millisecond_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="retry delay"):
        RetryPolicy(delay=timedelta(microseconds=1999))


def test_a_list_of_delays_is_as_many_retries_unless_a_number_is_given() -> None:
    delays = [timedelta(seconds=number) for number in range(1, 6)]
    assert RetryPolicy(backoff=delays).max_retries == 5
    assert RetryPolicy(max_retries=2, backoff=delays).max_retries == 2
    assert RetryPolicy(backoff=Exponential(timedelta(seconds=1))).max_retries == 3


@pytest.mark.parametrize(
    "made",
    [RetryPolicy.rocketmq, lambda **rest: RetryPolicy.levels("1s 5s", **rest)],
    ids=["rocketmq", "levels"],
)
def test_the_levels_of_rocketmq_take_the_rest_of_a_policy(made: Callable[..., RetryPolicy]) -> None:
    policy = made(max_crashes=2, errors={KeyError: NO_RETRY}, max_age=timedelta(hours=1))
    assert (policy.max_crashes, policy.max_age) == (2, timedelta(hours=1))
    assert list(policy.rules_for(KeyError)) == [NO_RETRY]


def test_another_delay_leaves_the_numbers_of_retries_as_they_are() -> None:
    policy = RetryPolicy(
        5, 3600, 7, errors={ValueError: ErrorRule(2, [10, 20]), KeyError: NO_RETRY}, max_age=9000
    )
    changed = policy.with_delay(1)

    assert changed == RetryPolicy(
        5, 1, 7, errors={ValueError: ErrorRule(2), KeyError: NO_RETRY}, max_age=9000
    )


@pytest.mark.parametrize(
    ("policy", "text"),
    [
        (RetryPolicy(), "3 retries, given up 1m30s after the first failure"),
        (RetryPolicy(0), "no retry"),
        (RetryPolicy(1, "5s"), "1 retry, given up 5s after the first failure"),
        (
            RetryPolicy(backoff=["10s", "1m", "10m"]),
            "3 retries, given up 11m10s after the first failure",
        ),
        (
            RetryPolicy(6, backoff=Exponential("1s", cap="1m", jitter=0.3)),
            "6 retries, given up 44s100ms to 1m3s after the first failure",
        ),
        (
            RetryPolicy(max_age="1h"),
            "3 retries, given up 1m30s after the first failure, or once older than 1h",
        ),
        (
            RetryPolicy(errors={KeyError: NO_RETRY}),
            "3 retries, given up 1m30s after the first failure, unless its error has a rule",
        ),
    ],
)
def test_a_policy_says_how_long_it_lasts(policy: RetryPolicy, text: str) -> None:
    assert str(policy) == text
    assert repr(policy).endswith(f": {text}>")


@pytest.mark.parametrize(
    ("retries", "span"),
    [(10_001, timedelta(seconds=300_030)), (10**12, timedelta(seconds=30 * 10**12))],
)
def test_a_span_of_very_many_retries_is_made_at_once(retries: int, span: timedelta) -> None:
    assert RetryPolicy(retries).span == (span, span)


def test_a_span_that_no_timedelta_can_hold_is_the_longest_one() -> None:
    assert RetryPolicy(10**13).span == (timedelta.max, timedelta.max)


def test_what_a_policy_has_besides_is_in_its_repr() -> None:
    policy = RetryPolicy(max_crashes=2, errors={KeyError: NO_RETRY}, max_age="1h")
    assert "max_crashes=2, errors={KeyError: ErrorRule(" in repr(policy)
    assert "backoff=Linear(" in repr(RetryPolicy(backoff=Linear("1s")))


def is_throttled(error: BaseException) -> bool:
    return "429" in str(error)


def test_the_rules_of_the_most_specific_class_come_first_each_list_in_its_order() -> None:
    first, second = ErrorRule(1, when=is_throttled), ErrorRule(2)
    policy = RetryPolicy(errors={Exception: NO_RETRY, OSError: [first, second]})
    assert list(policy.rules_for(TimeoutError)) == [first, second, NO_RETRY]
    assert list(policy.rules_for(SystemExit)) == []


def test_rules_without_classes_are_for_any_exception() -> None:
    rule = ErrorRule(9, when=is_throttled)
    assert list(RetryPolicy(errors=[rule]).rules_for(SystemExit)) == [rule]


@pytest.mark.parametrize("final", [GiveUp, InvalidMessage])
def test_errors_that_are_final_have_only_rules_of_their_own_classes(final: type[Exception]) -> None:
    unreadable = ErrorRule(failed_queue="unreadable")
    policy = RetryPolicy(errors={Exception: DISCARD, final: unreadable})
    assert list(policy.rules_for(final)) == [unreadable]


@pytest.mark.parametrize(
    ("rules", "problem"),
    [
        ({KeyError: [NO_RETRY, ErrorRule(1, when=is_throttled)]}, "rule 2 for KeyError can never"),
        ([ErrorRule(1, when=is_throttled), ErrorRule(2, when=is_throttled)], "has the same `when`"),
        ({GiveUp: ErrorRule(3)}, "never retried"),
        ({InvalidMessage: ErrorRule(backoff="1s")}, "never retried"),
        ({KeyError: []}, "the rule for KeyError is"),
        ([KeyError], "the rule for BaseException is"),
        (5, "errors is 5"),
    ],
)
def test_a_rule_that_can_never_apply_is_refused(rules: Any, problem: str) -> None:
    with pytest.raises(ConfigurationError, match=problem):
        RetryPolicy(errors=rules)


@pytest.mark.parametrize(
    "given",
    [
        {"when": "429"},
        {"when": KeyError},
        {"discard": 1},
        {"failed_queue": "a.b"},
        {"failed_queue": "x" * 61},
        {"failed_queue": None},
        {"failed_queue": "invalid", "discard": True},
    ],
)
def test_an_error_rule_with_wrong_arguments_is_refused(given: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError):
        ErrorRule(**given)


def test_a_rule_shows_what_is_given() -> None:
    rule = ErrorRule(2, when=is_throttled, failed_queue="invalid")
    assert repr(rule) == "ErrorRule(max_retries=2, when='is_throttled', failed_queue='invalid')"
    assert repr(DISCARD) == "ErrorRule(max_retries=0, discard=True)"
    policy = RetryPolicy(errors={OSError: [rule, DISCARD], KeyError: NO_RETRY})
    assert f"OSError: [{rule!r}, {DISCARD!r}], KeyError: {NO_RETRY!r}" in repr(policy)


def test_each_failed_queue_that_a_rule_names_is_declared_once_with_its_binding() -> None:
    rules: dict[type[BaseException], ErrorRule | list[ErrorRule]] = {
        KeyError: says_invalid(),
        OSError: [ErrorRule(1, when=is_throttled), says_invalid()],
    }
    subscription = Subscription("q", retry=RetryPolicy(errors=rules), failed_queues=["other"])
    topology = subscription.topology()
    found = {queue.name for queue in topology.queues if "@failed" in queue.name}
    assert found == {"q@failed", "q@failed.other", "q@failed.invalid"}
    keys = {one.routing_key for one in topology.bindings if one.source == "master.failed"}
    assert keys == {"q", "q@failed.other", "q@failed.invalid"}
    assert names.failed_kinds("q") == "q@failed.*"


def says_invalid() -> ErrorRule:
    return ErrorRule(failed_queue="invalid")


def test_a_failed_queue_of_its_own_needs_room_in_a_name_and_no_parked_keys() -> None:
    with pytest.raises(ConfigurationError, match="queue name"):
        Subscription("q" * 248, failed_queues=["invalid"])
    with pytest.raises(ConfigurationError, match="parked together"):
        Subscription("q", ordered=True, when_given_up="park", failed_queues=["invalid"])
