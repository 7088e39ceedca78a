"""Rates, as people write them."""

import pytest

from redrive.errors import ConfigurationError
from redrive.topology.rates import format_rate, rate_of


@pytest.mark.parametrize(
    ("text", "rate", "told"),
    [("200/s", 200, "200/s"), ("30/m", 0.5, "30/m"), ("7/h", 7 / 3600, "7/h"), (2.5, 2.5, "2.5/s")],
)
def test_a_rate_is_for_a_second_a_minute_or_an_hour(
    text: str | float, rate: float, told: str
) -> None:
    assert rate_of(text) == pytest.approx(rate)
    assert format_rate(rate) == told


@pytest.mark.parametrize("text", ["", "0/s", "-1", "5/d", "fast", 0, -1, True, float("inf"), None])
def test_what_is_no_rate_is_refused(text: object) -> None:
    with pytest.raises(ConfigurationError):
        rate_of(text)  # type: ignore[arg-type]
