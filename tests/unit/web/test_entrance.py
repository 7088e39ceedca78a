"""The link lets in once."""

from redrive.web.entrance import Entrance
from redrive.web.sessions import Sessions


def entrance() -> tuple[Entrance[str], Sessions[str]]:
    sessions: Sessions[str] = Sessions()
    return Entrance(sessions, "operator"), sessions


def test_a_link_is_exchanged_for_a_session_once() -> None:
    found, sessions = entrance()
    token = found.new_link()
    assert sessions.guest(found.exchange(token)) == "operator"
    assert found.exchange(token) is None


def test_without_a_link_nobody_is_let_in() -> None:
    found, _ = entrance()
    assert found.exchange("") is None


def test_a_new_link_ends_no_session() -> None:
    found, sessions = entrance()
    session = found.exchange(found.new_link())
    found.new_link()
    assert sessions.guest(session) == "operator"


def test_a_token_is_no_session_and_a_session_no_token() -> None:
    found, sessions = entrance()
    token = found.new_link()
    assert sessions.guest(token) is None
    session = found.exchange(token)
    assert session is not None
    assert found.exchange(session) is None
