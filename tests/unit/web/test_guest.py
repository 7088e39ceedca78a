"""Who has come in to a console, and is forgotten once they are gone."""

import threading

import pytest

from effort import effort
from redrive.web import guest as guest_module
from redrive.web.asked import QueuePlace
from redrive.web.console_job import ConsoleJob
from redrive.web.console_settings import ConsoleSettings
from redrive.web.desk import Desk
from redrive.web.guest import Guest, Guests
from redrive.web.recollection import LookUnderWay
from waiting import wait_until

SETTINGS = ConsoleSettings(url="amqp://shop:s3cret@localhost/")


@pytest.fixture
def guests() -> Guests:
    return Guests(SETTINGS, Desk.of(SETTINGS))


def test_who_comes_twice_is_one(guests: Guests) -> None:
    assert guests.named("ada") is guests.named("ada")
    assert guests.named("ada") is not guests.named("grace")


def test_who_has_no_session_any_more_is_forgotten(
    guests: Guests, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(guest_module, "_JUST_COME", -1.0)
    ada, grace = guests.named("ada"), guests.named("grace")

    guests.forget_all_but([grace])

    assert guests.named("ada") is not ada
    assert guests.named("grace") is grace


def test_who_has_just_come_is_not(guests: Guests) -> None:
    ada = guests.named("ada")

    guests.forget_all_but([])

    assert guests.named("ada") is ada


def test_whose_job_runs_is_not(guests: Guests, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guest_module, "_JUST_COME", -1.0)
    ada = guests.named("ada")
    monkeypatch.setattr(type(ada.desk.worker), "running", lambda _: ["a job"])

    guests.forget_all_but([])

    assert guests.named("ada") is ada


def closed(guest: Guest) -> bool:
    """Whether a guest's desk has ended: it begins no job any more."""
    return guest.desk.worker._is_closed


def test_the_desk_that_is_idle_for_longest_is_closed_when_there_are_too_many(
    guests: Guests, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(guest_module, "MOST_DESKS", 2)
    ada, grace = guests.named("ada"), guests.named("grace")
    assert guests.named("ada") is ada  # she has come again since

    guests.named("joan")

    wait_until(lambda: closed(grace), "her desk is closed")
    assert not closed(ada)
    assert [desk.guest for desk in guests.desks()] == ["", "ada", "joan"]


def test_thousands_of_names_are_no_more_desks_than_may_be(
    guests: Guests, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(guest_module, "MOST_DESKS", 5)
    names = [f"user-{number}" for number in range(effort(200, nightly=2000))]
    came = [guests.named(name) for name in names]

    assert len(list(guests.desks())) == 1 + 5
    wait_until(lambda: all(map(closed, came[:-5])), "the others are closed")
    assert not any(map(closed, came[-5:]))


def test_a_desk_that_answers_somebody_is_not_closed(
    guests: Guests, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(guest_module, "MOST_DESKS", 1)
    with guests.seated(guests.named("ada")) as ada:
        guests.named("grace")
        guests.named("joan")
        assert not ada.is_gone
    assert guests.named("ada") is ada


@pytest.mark.parametrize("what", ["job", "look", "copy"])
def test_a_desk_at_which_something_goes_on_is_not_closed(
    guests: Guests, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    monkeypatch.setattr(guest_module, "MOST_DESKS", 1)
    ada, place = guests.named("ada"), QueuePlace("shop@orders")
    ended = threading.Event()
    if what == "job":
        ada.desk.worker._jobs["job-1"] = ConsoleJob("job-1", place)
    elif what == "look":
        ada.desk.recollection._looks[place] = LookUnderWay(place)
    else:
        ada.desk.store.do("copying", lambda _: str(ended.wait(60)))
    try:
        guests.named("grace")
        assert not ada.is_gone
    finally:
        ended.set()


def test_who_comes_back_to_a_desk_that_was_closed_has_another(
    guests: Guests, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(guest_module, "MOST_DESKS", 1)
    ada = guests.named("ada")
    guests.named("grace")
    assert ada.is_gone

    with guests.seated(ada) as again:
        assert not again.is_gone
        assert (again.name, again.desk.settings) == ("ada", ada.desk.settings)
        with guests.seated(ada) as same:
            assert same is again


def test_of_many_requests_at_once_none_is_answered_at_a_closed_desk(
    guests: Guests, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(guest_module, "MOST_DESKS", 3)
    found: list[bool] = []

    def ask(worker: int) -> None:
        for number in range(200):
            # As the gate does it: who it is, and a moment later what is asked.
            guest = guests.named(f"user-{(worker + number) % 10}")
            with guests.seated(guest) as seated:
                found.append(seated.is_gone or closed(seated))

    threads = [threading.Thread(target=ask, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 1600
    assert not any(found)
    assert len(list(guests.desks())) <= 1 + 8


def test_whoever_has_started_the_console_keeps_their_desk(
    guests: Guests, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(guest_module, "MOST_DESKS", 0)
    guests.named("ada")
    guests.named("grace")
    with guests.seated(guests.own) as own:
        assert own is guests.own
        assert not closed(own)
