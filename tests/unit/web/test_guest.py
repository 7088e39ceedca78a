"""Who has come in to a console, and is forgotten once they are gone."""

import pytest

from redrive.web import guest as guest_module
from redrive.web.console_settings import ConsoleSettings
from redrive.web.desk import Desk
from redrive.web.guest import Guests

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
