"""Orders that contradict themselves are refused before anything is asked of a broker."""

import pytest

from redrive.errors import ConfigurationError
from redrive.failures.queue.order import Order


@pytest.mark.parametrize(("most", "via"), [(0, False), (-1, False), (5, True)])
def test_a_pace_that_can_not_be_kept_is_refused(most: int, via: bool) -> None:
    with pytest.raises(ConfigurationError):
        _ = Order(pace_by_depth=most, via=via).direction


@pytest.mark.parametrize("rate", [0, -1, True, float("inf"), float("nan")])
def test_a_rate_at_which_nothing_can_be_sent_is_refused(rate: float) -> None:
    with pytest.raises(ConfigurationError, match="the rate"):
        Order(rate=rate)


def test_no_pace_goes_with_every_way() -> None:
    assert Order(via=True).direction.via
    assert not Order(pace_by_depth=1).direction.via
