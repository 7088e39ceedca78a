"""What is old failed before a moment."""

from datetime import UTC, datetime, timedelta

import pytest

from redrive.errors import ConfigurationError
from redrive.failures.store.filter import failed_before, moment_before

NOW = datetime(2026, 7, 1, tzinfo=UTC)


def test_a_duration_is_counted_back() -> None:
    assert moment_before("30d", NOW) == NOW - timedelta(days=30)
    assert failed_before(NOW).where == "failed_at < TIMESTAMPTZ '2026-07-01T00:00:00+00:00'"


@pytest.mark.parametrize("text", ["", "old", "30", "-1d", "9999999d"])
def test_what_is_no_duration_is_told(text: str) -> None:
    with pytest.raises(ConfigurationError):
        moment_before(text, NOW)
