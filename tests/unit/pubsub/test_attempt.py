"""What middleware and hooks see of an attempt."""

from collections.abc import Iterator
from datetime import timedelta

import pytest

from deliveries import FAMILY, first_delivery
from redrive import GiveUp, Message, Retry, RetryPolicy
from redrive.pubsub.attempt import Attempt, MiddlewareCall
from redrive.pubsub.verdict import Decider
from redrive.topology.broker_version import BrokerVersion
from redrive.topology.model import Subscription


@pytest.fixture
def attempt() -> Attempt:
    """A first attempt of a message that may be retried after half a minute."""
    delivery = first_delivery()
    policy = RetryPolicy(1, timedelta(seconds=30))
    subscription = Subscription("ucenter@user", ("user.*",), FAMILY, policy)
    decider = Decider(subscription, BrokerVersion(4, 3, 0), 131072)
    return Attempt(
        Message(delivery, policy.max_retries),
        lambda error: decider.failure(delivery, error) if error else decider.success(),
    )


def test_an_attempt_is_expected_to_succeed(attempt: Attempt) -> None:
    assert (attempt.outcome, attempt.gave_up, attempt.reason) == ("handled", False, None)
    assert str(attempt) == "handled"


def test_an_attempt_that_failed_says_when_the_next_one_is(attempt: Attempt) -> None:
    attempt.error = ValueError("no")
    assert (attempt.outcome, attempt.retry_in) == ("retrying", timedelta(seconds=30))
    assert str(attempt) == "retrying in 30 s"


def test_an_attempt_that_gives_up_says_why(attempt: Attempt) -> None:
    attempt.error = GiveUp("the customer is gone")
    assert (attempt.gave_up, attempt.retry_in) == (True, None)
    assert str(attempt) == "gave up: gave-up"


def test_a_delay_that_the_handler_chose_is_the_attempts(attempt: Attempt) -> None:
    attempt.error = Retry("later", after=timedelta(minutes=5))
    assert attempt.retry_in == timedelta(minutes=5)


def test_an_error_is_decided_once(attempt: Attempt) -> None:
    attempt.error = GiveUp("the customer is gone")
    assert attempt.verdict is attempt.verdict


def test_a_middleware_sees_the_error_and_what_comes_next(attempt: Attempt) -> None:
    seen: list[str] = []

    def middleware(attempt: Attempt) -> Iterator[None]:
        try:
            yield
        finally:
            seen.append(str(attempt))

    with pytest.raises(ValueError), MiddlewareCall(attempt, middleware):
        raise ValueError("no")
    assert seen == ["retrying in 30 s"]


def test_what_a_middleware_raises_is_the_error_for_those_outside(attempt: Attempt) -> None:
    seen: list[BaseException | None] = []

    def outside(attempt: Attempt) -> Iterator[None]:
        try:
            yield
        finally:
            seen.append(attempt.error)

    def commits(attempt: Attempt) -> Iterator[None]:
        yield
        raise ConnectionError("the database is gone")

    with (
        pytest.raises(ConnectionError),
        MiddlewareCall(attempt, outside),
        MiddlewareCall(attempt, commits),
    ):
        pass
    assert [repr(error) for error in seen] == ["ConnectionError('the database is gone')"]


def test_what_a_middleware_swallows_has_not_failed(attempt: Attempt) -> None:
    def swallows(attempt: Attempt) -> Iterator[None]:
        try:
            yield
        except ValueError:
            return

    def fails() -> None:
        raise ValueError("no")

    with MiddlewareCall(attempt, swallows):
        fails()
    assert attempt.outcome == "handled"
