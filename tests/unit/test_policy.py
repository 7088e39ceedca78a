from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from redrive.errors import ConfigurationError
from redrive.topology.policy import RetryPolicy


def test_a_message_is_tried_again_three_times_after_30_seconds_by_default() -> None:
    policy = RetryPolicy()
    assert (policy.max_retries, policy.delay_ms, policy.max_crashes) == (3, 30_000, 5)


@given(st.integers(1, 2**32 - 1))
def test_the_delay_is_given_to_the_broker_in_milliseconds(milliseconds: int) -> None:
    assert RetryPolicy(delay=timedelta(milliseconds=milliseconds)).delay_ms == milliseconds


@pytest.mark.parametrize(
    "delay", [timedelta(0), timedelta(microseconds=999), timedelta(seconds=-1), timedelta(milliseconds=2**32), timedelta.max]
)
def test_a_delay_that_no_queue_can_have_is_refused(delay: timedelta) -> None:
    with pytest.raises(ConfigurationError, match="retry delay"):
        RetryPolicy(delay=delay)


@pytest.mark.parametrize("delay", [30, 30.0, "30s", None], ids=repr)
def test_a_delay_without_a_unit_is_refused(delay: timedelta) -> None:
    with pytest.raises(ConfigurationError, match="Give a timedelta"):
        RetryPolicy(delay=delay)


@pytest.mark.parametrize("number", [-1, 1.0, "3", None, True], ids=repr)
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
