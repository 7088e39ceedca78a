"""A session is known until its end."""

from datetime import timedelta

import pytest

from redrive.web.auth.sessions import Sessions


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The seconds that have passed."""
    seconds = [1000.0]
    monkeypatch.setattr("redrive.web.auth.sessions.time.monotonic", lambda: seconds[0])
    return seconds


def test_a_session_is_of_who_began_it_and_another_token_is_none() -> None:
    sessions: Sessions[str] = Sessions()
    token = sessions.begin("alice")
    assert sessions.session_user(token) == "alice"
    for other in (None, "", "x", token[:-1]):
        assert sessions.session_user(other) is None


def test_a_session_ends_when_nobody_has_used_it_for_its_time(clock: list[float]) -> None:
    sessions: Sessions[str] = Sessions(timedelta(minutes=30))
    token = sessions.begin("alice")
    clock[0] += 1799
    assert sessions.session_user(token) == "alice"
    clock[0] += 1799
    assert sessions.session_user(token) == "alice"
    clock[0] += 1801
    assert sessions.session_user(token) is None


def test_a_page_that_asks_by_itself_keeps_no_session_alive(clock: list[float]) -> None:
    sessions: Sessions[str] = Sessions(timedelta(minutes=30))
    token = sessions.begin("alice")
    for _ in range(3):
        clock[0] += 900
        sessions.session_user(token, is_used=False)
    assert sessions.session_user(token) is None


def test_a_session_that_is_used_ends_after_twelve_hours(clock: list[float]) -> None:
    sessions: Sessions[str] = Sessions(timedelta(minutes=30))
    token = sessions.begin("alice")
    for _ in range(12 * 4):
        clock[0] += 900
        assert sessions.session_user(token) == "alice"
    clock[0] += 1
    assert sessions.session_user(token) is None


def test_a_session_without_a_time_ends_with_the_process_alone(clock: list[float]) -> None:
    sessions: Sessions[str] = Sessions()
    token = sessions.begin("")
    clock[0] += 10**7
    assert sessions.session_user(token) is not None


def test_one_session_or_all_of_somebody_are_ended() -> None:
    sessions: Sessions[str] = Sessions()
    first, second, other = (sessions.begin(name) for name in ("alice", "alice", "bob"))
    sessions.end(first)
    assert [sessions.session_user(token) for token in (first, second, other)] == [
        None,
        "alice",
        "bob",
    ]
    sessions.end_all("alice")
    assert sessions.session_users() == ["bob"]


def test_one_who_logs_in_again_and_again_has_no_more_than_twenty_sessions() -> None:
    sessions: Sessions[str] = Sessions()
    tokens = [sessions.begin("alice") for _ in range(25)]
    assert [sessions.session_user(token) for token in tokens[:5]] == [None] * 5
    assert len(sessions.session_users()) == 20
