"""Who tries passwords waits, and nobody is locked out."""

import pytest

from redrive.web.auth.login_page import LoginThrottle


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The seconds that have passed."""
    seconds = [1000.0]
    monkeypatch.setattr("redrive.web.auth.login_page.time.monotonic", lambda: seconds[0])
    return seconds


def test_a_few_slips_cost_nothing(clock: list[float]) -> None:
    pace = LoginThrottle()
    for _ in range(4):
        pace.failed("10.0.0.1", "alice")
    assert pace.wait("10.0.0.1", "alice") == 0


def test_who_goes_on_waits_longer_and_longer_and_never_more_than_half_a_minute(
    clock: list[float],
) -> None:
    pace = LoginThrottle()
    waits = []
    for _ in range(14):
        pace.failed("10.0.0.1", "alice")
        waits.append(pace.wait("10.0.0.1", "alice"))
        clock[0] += waits[-1]
    assert waits[4:] == sorted(waits[4:])
    assert waits[4] == 1
    assert max(waits) == 30


def test_the_user_is_not_locked_out_elsewhere(clock: list[float]) -> None:
    pace = LoginThrottle()
    for _ in range(20):
        pace.failed("10.0.0.66", "alice")
    assert pace.wait("10.0.0.66", "alice") > 0
    assert pace.wait("10.0.0.1", "alice") == 0


def test_who_tries_many_users_from_one_address_waits_with_all(clock: list[float]) -> None:
    pace = LoginThrottle()
    for number in range(30):
        pace.failed("10.0.0.66", f"user-{number}")
    assert pace.wait("10.0.0.66", "another") > 0


def test_a_success_forgets_the_slips_of_that_user_alone(clock: list[float]) -> None:
    pace = LoginThrottle()
    for _ in range(6):
        pace.failed("10.0.0.1", "alice")
        pace.failed("10.0.0.1", "bob")
    pace.succeeded("10.0.0.1", "alice")
    assert pace.wait("10.0.0.1", "alice") == 0
    assert pace.wait("10.0.0.1", "bob") > 0
