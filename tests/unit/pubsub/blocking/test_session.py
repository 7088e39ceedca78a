"""The steps of a command share connections, and none that is lost, in use or of another process."""

from collections.abc import Iterator
from typing import Any, cast

import pytest
from pika.exceptions import AMQPConnectionError

from redrive.pubsub.blocking import session as module
from redrive.pubsub.blocking.session import Session
from waiting import wait_until


class Connection:
    """A connection that the broker may have closed."""

    def __init__(self) -> None:
        self.is_open = True
        self.is_lost = False

    def process_data_events(self, _: float) -> None:
        if self.is_lost:
            self.is_open = False
            raise AMQPConnectionError

    def close(self) -> None:
        self.is_open = False


NEW: Any = Connection


@pytest.fixture
def session() -> Iterator[Session]:
    """A session that ends with the test."""
    with Session.opened():
        assert Session.current is not None
        yield Session.current


def lent(session: Session, key: str = "guest") -> Connection:
    """Use a connection and give it back."""
    with session.connection(key, NEW) as connection:
        return cast("Connection", connection)


def test_the_next_step_gets_the_connection_of_the_one_before(session: Session) -> None:
    assert lent(session) is lent(session)


def test_another_user_gets_another_one(session: Session) -> None:
    assert lent(session, "guest") is not lent(session, "admin")


def test_two_at_once_get_one_each(session: Session) -> None:
    with session.connection("guest", NEW) as one:
        assert id(lent(session)) != id(one)


def test_one_that_the_broker_has_closed_is_not_lent_again(session: Session) -> None:
    lost = lent(session)
    lost.is_lost = True
    assert lent(session) is not lost


def test_one_that_an_error_was_met_on_is_closed(session: Session) -> None:
    with (
        pytest.raises(ValueError, match="refused"),
        session.connection("guest", NEW) as failed,
    ):
        raise ValueError("refused")
    assert not failed.is_open
    assert id(lent(session)) != id(failed)


def test_one_that_nobody_uses_is_closed_after_a_while(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_IDLE_SECONDS", 0.01)
    idle = lent(session)
    wait_until(lambda: not idle.is_open, "it is closed")
    assert lent(session) is not idle


def test_all_are_closed_at_the_end() -> None:
    with Session.opened():
        assert Session.current is not None
        kept = [lent(Session.current), lent(Session.current, "admin")]
        assert [one.is_open for one in kept] == [True, True]
    assert [one.is_open for one in kept] == [False, False]


def test_a_child_process_leaves_the_connections_of_its_parent_alone(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    parents = lent(session)
    monkeypatch.setattr(session, "_process", -1)
    childs = lent(session)
    assert childs is not parents
    assert not childs.is_open
    assert parents.is_open
