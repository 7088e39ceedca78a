"""What a console may be told."""

import pytest

from redrive.errors import ConfigurationError
from redrive.web.console_settings import ConsoleSettings, Permit, permits_of


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
