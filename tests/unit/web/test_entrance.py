"""The link lets in once; a session is known until the end."""

from redrive.web.entrance import Entrance


def test_a_link_is_exchanged_for_a_session_once() -> None:
    entrance = Entrance()
    token = entrance.new_link()
    session = entrance.exchange(token)
    assert session is not None
    assert entrance.knows(session)
    assert entrance.exchange(token) is None


def test_without_a_link_nobody_is_let_in() -> None:
    entrance = Entrance()
    assert entrance.exchange("") is None
    assert not entrance.knows("")
    assert not entrance.knows(None)


def test_a_new_link_ends_no_session() -> None:
    entrance = Entrance()
    session = entrance.exchange(entrance.new_link())
    entrance.new_link()
    assert entrance.knows(session)


def test_a_token_is_no_session_and_a_session_no_token() -> None:
    entrance = Entrance()
    token = entrance.new_link()
    assert not entrance.knows(token)
    session = entrance.exchange(token)
    assert session is not None
    assert entrance.exchange(session) is None


def test_two_consoles_on_one_host_have_cookies_of_their_own() -> None:
    assert Entrance().cookie != Entrance().cookie
