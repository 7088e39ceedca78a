"""What a console may be told."""

import pytest

from redrive.errors import ConfigurationError
from redrive.web.console_settings import ConsoleSettings, ListenPlace, Permit, permits_of


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("127.0.0.1:8015", "http://127.0.0.1:8015"),
        ("localhost:0", "http://localhost:0"),
        ("[::1]:65535", "http://[::1]:65535"),
    ],
)
def test_it_listens_on_the_loopback(text: str, address: str) -> None:
    place = ListenPlace.of(text)
    assert place.address(place.port) == address


@pytest.mark.parametrize(
    "text", ["0.0.0.0:8015", "[::]:8015", ":8015", "192.168.1.2:8015", "broker.example:8015"]
)
def test_without_a_login_nobody_else_can_reach_it(text: str) -> None:
    with pytest.raises(ConfigurationError, match="has no login"):
        ListenPlace.of(text)


@pytest.mark.parametrize("text", ["", "8015", "127.0.0.1", "127.0.0.1:x", "127.0.0.1:65536"])
def test_what_is_no_place_is_refused(text: str) -> None:
    with pytest.raises(ConfigurationError, match="no host and port"):
        ListenPlace.of(text)


def test_it_is_asked_for_by_the_names_of_this_machine_with_its_port() -> None:
    hosts = ListenPlace.of("127.0.0.1:0").hosts(8015)
    assert hosts == {"127.0.0.1:8015", "localhost:8015", "[::1]:8015"}


def test_it_only_reads_unless_it_is_told_otherwise() -> None:
    assert not ConsoleSettings(url="amqp://localhost/").may_requeue
    assert permits_of(()) == frozenset()


@pytest.mark.parametrize("words", [["requeue,edit"], ["requeue", "edit"], ["edit, requeue,"]])
def test_permits_have_commas_between_them(words: list[str]) -> None:
    settings = ConsoleSettings(url="amqp://localhost/", permits=permits_of(words))
    assert settings.permits == {Permit.REQUEUE, Permit.EDIT}
    assert settings.may_edit


@pytest.mark.parametrize("words", [["all"], ["requeue;edit"], ["edit"]])
def test_what_can_not_be_permitted_is_said(words: list[str]) -> None:
    with pytest.raises(ConfigurationError):
        permits_of(words)
