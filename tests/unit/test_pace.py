import pytest
from hypothesis import given
from hypothesis import strategies as st

from redrive.pubsub.blocking.pace import Pace


class Clock:
    """A time that a test sets."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def test_without_a_rate_nothing_waits() -> None:
    pace = Pace(None)
    for _ in range(10):
        pace.sent(1)
        assert pace.pause() == 0


@given(st.floats(0.1, 10_000), st.integers(1, 300))
def test_no_more_are_sent_than_the_rate_says(rate: float, count: int) -> None:
    clock = Clock()
    pace = Pace(rate, clock)
    for _ in range(count):
        clock.now += pace.pause()
        pace.sent(1)
    assert count <= rate * (clock.now - 100.0) * 1.001 + 1.001


def test_what_was_not_sent_in_time_is_not_made_up_for() -> None:
    clock = Clock()
    pace = Pace(10, clock)
    pace.pause()
    pace.sent(1)
    clock.now += 3600
    assert pace.pause() == 0
    pace.sent(1)
    assert pace.pause() == pytest.approx(0.1)


def test_a_slow_rate_goes_in_small_batches() -> None:
    assert [Pace(rate).batch for rate in (0.5, 50, 100_000)] == [1, 5, 100]
