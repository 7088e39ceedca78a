"""Who has come in to a console, and is forgotten once they are gone."""

import threading

import pytest

from effort import effort
from redrive.web.auth import session_users as guest_module
from redrive.web.auth.session_users import SessionUser, SessionUsers
from redrive.web.console_settings import ConsoleSettings
from redrive.web.context import ConsoleContext
from redrive.web.look_cache import RunningLook
from redrive.web.page_request import QueuePlace
from waiting import wait_until

SETTINGS = ConsoleSettings(url="amqp://shop:s3cret@localhost/")


@pytest.fixture
def session_users() -> SessionUsers:
    return SessionUsers(SETTINGS, ConsoleContext.of(SETTINGS))


def test_who_comes_twice_is_one(session_users: SessionUsers) -> None:
    assert session_users.named("ada") is session_users.named("ada")
    assert session_users.named("ada") is not session_users.named("grace")


def test_who_has_no_session_any_more_is_forgotten(
    session_users: SessionUsers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(guest_module, "_JUST_COME", -1.0)
    ada, grace = session_users.named("ada"), session_users.named("grace")

    session_users.forget_all_but([grace])

    assert session_users.named("ada") is not ada
    assert session_users.named("grace") is grace


def test_who_has_just_come_is_not(session_users: SessionUsers) -> None:
    ada = session_users.named("ada")

    session_users.forget_all_but([])

    assert session_users.named("ada") is ada


def test_whose_job_runs_is_not(
    session_users: SessionUsers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(guest_module, "_JUST_COME", -1.0)
    ada = session_users.named("ada")
    monkeypatch.setattr(type(ada.context.worker), "running", lambda _: ["a job"])

    session_users.forget_all_but([])

    assert session_users.named("ada") is ada


def closed(session_user: SessionUser) -> bool:
    """Whether a guest's desk has ended: it begins no job any more."""
    return session_user.context.worker._is_closed


def test_the_desk_that_is_idle_for_longest_is_closed_when_there_are_too_many(
    session_users: SessionUsers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(guest_module, "MOST_CONTEXTS", 2)
    ada, grace = session_users.named("ada"), session_users.named("grace")
    assert session_users.named("ada") is ada  # she has come again since

    session_users.named("joan")

    wait_until(lambda: closed(grace), "her desk is closed")
    assert not closed(ada)
    assert [context.session_user for context in session_users.contexts()] == ["", "ada", "joan"]


def test_thousands_of_names_are_no_more_desks_than_may_be(
    session_users: SessionUsers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(guest_module, "MOST_CONTEXTS", 5)
    names = [f"user-{number}" for number in range(effort(200, nightly=2000))]
    came = [session_users.named(name) for name in names]

    assert len(list(session_users.contexts())) == 1 + 5
    wait_until(lambda: all(map(closed, came[:-5])), "the others are closed")
    assert not any(map(closed, came[-5:]))


def test_a_desk_that_answers_somebody_is_not_closed(
    session_users: SessionUsers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(guest_module, "MOST_CONTEXTS", 1)
    with session_users.as_active(session_users.named("ada")) as ada:
        session_users.named("grace")
        session_users.named("joan")
        assert not ada.is_gone
    assert session_users.named("ada") is ada


@pytest.mark.parametrize("what", ["job", "look", "copy"])
def test_a_desk_at_which_something_goes_on_is_not_closed(
    session_users: SessionUsers, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    monkeypatch.setattr(guest_module, "MOST_CONTEXTS", 1)
    ada, place = session_users.named("ada"), QueuePlace("shop@orders")
    ended = threading.Event()
    if what == "job":
        monkeypatch.setattr(type(ada.context.worker), "running", lambda _: ["a job"])
    elif what == "look":
        ada.context.looks._looks[place] = RunningLook(place)
    else:
        ada.context.store.do("copying", lambda _: str(ended.wait(60)))
    try:
        session_users.named("grace")
        assert not ada.is_gone
    finally:
        ended.set()


def test_who_comes_back_to_a_desk_that_was_closed_has_another(
    session_users: SessionUsers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(guest_module, "MOST_CONTEXTS", 1)
    ada = session_users.named("ada")
    session_users.named("grace")
    assert ada.is_gone

    with session_users.as_active(ada) as again:
        assert not again.is_gone
        assert (again.name, again.context.settings) == ("ada", ada.context.settings)
        with session_users.as_active(ada) as same:
            assert same is again


def test_of_many_requests_at_once_none_is_answered_at_a_closed_desk(
    session_users: SessionUsers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(guest_module, "MOST_CONTEXTS", 3)
    found: list[bool] = []

    def ask(worker: int) -> None:
        for number in range(200):
            # As the gate does it: who it is, and a moment later what is asked.
            session_user = session_users.named(f"user-{(worker + number) % 10}")
            with session_users.as_active(session_user) as as_active:
                found.append(as_active.is_gone or closed(as_active))

    threads = [threading.Thread(target=ask, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 1600
    assert not any(found)
    assert len(list(session_users.contexts())) <= 1 + 8


def test_whoever_has_started_the_console_keeps_their_desk(
    session_users: SessionUsers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(guest_module, "MOST_CONTEXTS", 0)
    session_users.named("ada")
    session_users.named("grace")
    with session_users.as_active(session_users.own) as own:
        assert own is session_users.own
        assert not closed(own)
