import pytest
from hypothesis import given
from hypothesis import strategies as st

from redrive.pubsub.transfer.rate import RateLimit


class Clock:
    """A time that a test sets."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def test_without_a_rate_nothing_waits() -> None:
    rate_limit = RateLimit(None)
    for _ in range(10):
        rate_limit.sent(1)
        assert rate_limit.pause() == 0


@given(st.floats(0.1, 10_000), st.integers(1, 300))
def test_no_more_are_sent_than_the_rate_says(rate: float, count: int) -> None:
    clock = Clock()
    rate_limit = RateLimit(rate, clock)
    for _ in range(count):
        clock.now += rate_limit.pause()
        rate_limit.sent(1)
    assert count <= rate * (clock.now - 100.0) * 1.001 + 1.001


def test_what_was_not_sent_in_time_is_not_made_up_for() -> None:
    clock = Clock()
    rate_limit = RateLimit(10, clock)
    rate_limit.pause()
    rate_limit.sent(1)
    clock.now += 3600
    assert rate_limit.pause() == 0
    rate_limit.sent(1)
    assert rate_limit.pause() == pytest.approx(0.1)


def test_a_slow_rate_goes_in_small_batches() -> None:
    assert [RateLimit(rate).batch for rate in (0.5, 50, 100_000)] == [1, 5, 100]
