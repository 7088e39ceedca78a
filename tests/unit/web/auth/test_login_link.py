"""The link lets in once."""

from redrive.web.auth.login_link import LoginLink
from redrive.web.auth.sessions import Sessions


def login_link() -> tuple[LoginLink[str], Sessions[str]]:
    sessions: Sessions[str] = Sessions()
    return LoginLink(sessions, "operator"), sessions


def test_a_link_is_exchanged_for_a_session_once() -> None:
    found, sessions = login_link()
    token = found.new_link()
    assert sessions.session_user(found.exchange(token)) == "operator"
    assert found.exchange(token) is None


def test_without_a_link_nobody_is_let_in() -> None:
    found, _ = login_link()
    assert found.exchange("") is None


def test_a_new_link_ends_no_session() -> None:
    found, sessions = login_link()
    session = found.exchange(found.new_link())
    found.new_link()
    assert sessions.session_user(session) == "operator"


def test_a_token_is_no_session_and_a_session_no_token() -> None:
    found, sessions = login_link()
    token = found.new_link()
    assert sessions.session_user(token) is None
    session = found.exchange(token)
    assert session is not None
    assert found.exchange(session) is None
