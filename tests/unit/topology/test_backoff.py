from collections.abc import Callable
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from redrive.errors import ConfigurationError
from redrive.topology.backoff import Backoff, Delays, Exponential, Linear, backoff_of
from redrive.topology.model import Subscription
from redrive.topology.policy import (
    NO_RETRY,
    THE_USUAL,
    ErrorRule,
    RetryPolicy,
    most_retries_of,
)

SECOND = timedelta(seconds=1)


def waits(
    policy: RetryPolicy, count: int, error: type[BaseException] | None = None, chance: float = 0.0
) -> list[float]:
    rule = rule_of(policy, error)
    return [policy.delay_of(rule, retry, chance).total_seconds() for retry in range(1, count + 1)]


def rule_of(policy: RetryPolicy, error: type[BaseException] | None) -> ErrorRule:
    return THE_USUAL if error is None else next(policy.rules_for(error), THE_USUAL)


def test_a_policy_without_a_backoff_waits_the_same_each_time() -> None:
    assert waits(RetryPolicy(), 3) == [30, 30, 30]


def test_the_n_th_retry_waits_the_n_th_delay_and_those_after_the_last_as_long_as_it() -> None:
    assert waits(RetryPolicy(backoff=[SECOND, 5 * SECOND]), 4) == [1, 5, 5, 5]


def test_an_exponential_backoff_doubles_up_to_its_cap() -> None:
    assert waits(RetryPolicy(backoff=Exponential(SECOND, cap=10 * SECOND)), 6) == [
        1,
        2,
        4,
        8,
        10,
        10,
    ]


def test_an_exponential_backoff_of_a_thousandth_retry_is_capped() -> None:
    assert Exponential(SECOND, factor=1e300).delay(5000, 0.0) == timedelta(hours=1)


@given(st.integers(1, 2000), st.floats(0, 1), st.floats(1, 10), st.floats(0, 1))
def test_jitter_is_taken_off_the_capped_delay(
    retry: int, jitter: float, factor: float, chance: float
) -> None:
    without = Exponential(SECOND, factor=factor).delay(retry, chance)
    delay = Exponential(SECOND, factor=factor, jitter=jitter).delay(retry, chance)
    assert without * (1 - jitter) - timedelta(microseconds=1) <= delay <= without


def test_the_levels_of_rocketmq_are_sixteen_retries_from_ten_seconds_to_two_hours() -> None:
    policy = RetryPolicy.rocketmq()
    minutes = [60.0 * number for number in range(1, 11)]
    assert policy.max_retries == 16
    assert waits(policy, 16) == [10, 30, *minutes, 1200, 1800, 3600, 7200]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("10s 30x", "delay level 2, '30x', can't be read"),
        ("1.5s", "delay level 1, '1.5s', can't be read"),
        ("", "an empty list"),
        ("0s", "delay 1 of the backoff is 0:00:00"),
        ("1m 30s", "delay 2 of the backoff, 0:00:30, is shorter than the one before it, 0:01:00"),
        (16, "the delay levels are 16"),
    ],
)
def test_levels_that_cannot_be_read_are_refused_with_the_part_that_is_wrong(
    text: str, problem: str
) -> None:
    with pytest.raises(ConfigurationError, match=problem):
        RetryPolicy.levels(text)


@pytest.mark.parametrize(
    "backoff",
    [
        [],
        [timedelta(0)],
        [-SECOND],
        [2 * SECOND, SECOND],
        [None],
        timedelta(0),
        True,
        "soon",
        {SECOND},
    ],
    ids=repr,
)
def test_a_backoff_that_is_none_is_refused(backoff: timedelta) -> None:
    with pytest.raises(ConfigurationError, match=r"backoff|duration"):
        RetryPolicy(backoff=backoff)


@pytest.mark.parametrize(
    "arguments",
    [
        {"first": timedelta(0)},
        {"first": None},
        {"first": SECOND, "factor": 0.5},
        {"first": SECOND, "factor": float("nan")},
        {"first": SECOND, "factor": "2"},
        {"first": SECOND, "cap": timedelta(milliseconds=1)},
        {"first": SECOND, "jitter": 1.1},
        {"first": SECOND, "jitter": True},
    ],
    ids=repr,
)
def test_an_exponential_backoff_that_cannot_be_is_refused(arguments: dict[str, timedelta]) -> None:
    with pytest.raises(ConfigurationError, match="backoff"):
        Exponential(**arguments)  # type: ignore[arg-type]


def test_a_backoff_stands_for_itself() -> None:
    backoff = Exponential(SECOND)
    assert backoff_of(backoff) is backoff


class Refused(ConnectionError):
    """More specific than its base."""


RULES: dict[type[BaseException], ErrorRule] = {
    ConnectionError: ErrorRule(max_retries=10, backoff=SECOND),
    Refused: ErrorRule(backoff=[2 * SECOND]),
    ValueError: NO_RETRY,
}


@pytest.mark.parametrize(
    ("error", "max_retries", "delay"),
    [
        (None, 3, 30),
        (KeyError, 3, 30),
        (ConnectionError, 10, 1),
        (ConnectionResetError, 10, 1),
        (Refused, 3, 2),
        (ValueError, 0, 30),
        (UnicodeDecodeError, 0, 30),
    ],
)
def test_the_most_specific_rule_counts_for_an_error(
    error: type[BaseException] | None, max_retries: int, delay: float
) -> None:
    policy = RetryPolicy(errors=RULES)
    retries = policy.max_retries_of(rule_of(policy, error))
    assert (retries, waits(policy, 1, error)) == (max_retries, [delay])


def test_the_most_retries_are_those_of_the_most_patient_rule() -> None:
    assert (most_retries_of(RetryPolicy()), most_retries_of(RetryPolicy(errors=RULES))) == (3, 10)


@pytest.mark.parametrize(
    ("policy", "longest"),
    [
        (RetryPolicy(), timedelta(0)),
        (RetryPolicy(backoff=timedelta(seconds=30)), timedelta(0)),
        (RetryPolicy(backoff=[SECOND, 60 * SECOND]), 60 * SECOND),
        (RetryPolicy(backoff=Exponential(SECOND)), 4 * SECOND),
        (RetryPolicy(20, backoff=Exponential(SECOND)), timedelta(hours=1)),
        (RetryPolicy(1, backoff=[SECOND, 60 * SECOND]), SECOND),
        (
            RetryPolicy(1, backoff=Exponential(SECOND), errors={OSError: ErrorRule(5)}),
            16 * SECOND,
        ),
        (RetryPolicy(errors=RULES), 2 * SECOND),
    ],
)
def test_only_what_the_retry_queue_cannot_do_is_for_the_ladder(
    policy: RetryPolicy, longest: timedelta
) -> None:
    assert Subscription("shop@orders", retry=policy).longest_on_the_ladder == longest


@pytest.mark.parametrize(
    "errors",
    [
        "ValueError",
        [ValueError],
        {"ValueError": NO_RETRY},
        {int: NO_RETRY},
        {ValueError: 0},
        {ValueError: None},
    ],
    ids=repr,
)
def test_rules_that_are_none_are_refused(errors: dict[type[BaseException], ErrorRule]) -> None:
    with pytest.raises(ConfigurationError, match="Give"):
        RetryPolicy(errors=errors)


@pytest.mark.parametrize("max_age", [timedelta(0), -SECOND, -1, True], ids=repr)
def test_an_age_that_is_none_is_refused(max_age: timedelta) -> None:
    with pytest.raises(ConfigurationError, match="max_age"):
        RetryPolicy(max_age=max_age)


@pytest.mark.parametrize("number", [-1, True, 1.5], ids=repr)
def test_a_budget_of_a_rule_that_is_none_is_refused(number: int) -> None:
    with pytest.raises(ConfigurationError, match="max_retries of an error rule"):
        ErrorRule(max_retries=number)


def test_delays_are_a_value() -> None:
    assert Delays([SECOND]) == Delays((SECOND,))


def test_a_linear_backoff_waits_n_times_as_long_up_to_its_cap() -> None:
    assert waits(RetryPolicy(backoff=Linear(SECOND, 3.5)), 5) == [1, 2, 3, 3.5, 3.5]
    assert Linear(SECOND).longest(10**9) == timedelta(hours=1)


def test_a_linear_backoff_whose_cap_is_shorter_than_its_first_delay_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="is shorter than its first delay"):
        Linear(2 * SECOND, SECOND)


@pytest.mark.parametrize(
    "made",
    [
        lambda jitter: Delays("10s", jitter),
        lambda jitter: Delays(["1s", "10s"], jitter),
        lambda jitter: Linear("5s", "10s", jitter),
        lambda jitter: Exponential("5s", 2, "10s", jitter),
    ],
)
def test_each_backoff_takes_a_random_share_off(made: Callable[[float], Backoff]) -> None:
    policy = RetryPolicy(2, backoff=made(0.5))
    assert waits(policy, 2, chance=0.0)[1] == 10
    assert waits(policy, 2, chance=1.0)[1] == 5
    assert policy.span[0] * 2 == policy.span[1]
    assert made(0.5).longest(2) == 10 * SECOND
    with pytest.raises(ConfigurationError, match="jitter"):
        made(1.5)


def test_jitter_of_a_linear_backoff_takes_the_delay_ladder_where_the_broker_holds_back() -> None:
    plain, jittered = (
        Subscription(
            "q", retry=RetryPolicy(3, backoff=Linear("1s", "3s", jitter)), retry_via="broker"
        )
        for jitter in (0.0, 0.1)
    )
    assert plain.longest_on_the_ladder == timedelta(0)
    assert jittered.longest_on_the_ladder == 3 * SECOND
    assert jittered.held_back_for == (30 * SECOND, 30 * SECOND)
