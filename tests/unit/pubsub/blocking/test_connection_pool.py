"""The steps of a command share connections, and none that is lost, in use or of another process."""

from collections.abc import Iterator
from typing import Any, cast

import pytest
from pika.exceptions import AMQPConnectionError

from redrive.pubsub.blocking import connection_pool as module
from redrive.pubsub.blocking.connection_pool import ConnectionPool
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
def pool() -> Iterator[ConnectionPool]:
    """A pool that ends with the test."""
    with ConnectionPool.opened():
        assert ConnectionPool.current is not None
        yield ConnectionPool.current


def lent(pool: ConnectionPool, key: str = "guest") -> Connection:
    """Use a connection and give it back."""
    with pool.connection(key, NEW) as connection:
        return cast("Connection", connection)


def test_the_next_step_gets_the_connection_of_the_one_before(pool: ConnectionPool) -> None:
    assert lent(pool) is lent(pool)


def test_another_user_gets_another_one(pool: ConnectionPool) -> None:
    assert lent(pool, "guest") is not lent(pool, "admin")


def test_two_at_once_get_one_each(pool: ConnectionPool) -> None:
    with pool.connection("guest", NEW) as one:
        assert id(lent(pool)) != id(one)


def test_one_that_the_broker_has_closed_is_not_lent_again(pool: ConnectionPool) -> None:
    lost = lent(pool)
    lost.is_lost = True
    assert lent(pool) is not lost


def test_one_that_an_error_was_met_on_is_closed(pool: ConnectionPool) -> None:
    with (
        pytest.raises(ValueError, match="refused"),
        pool.connection("guest", NEW) as failed,
    ):
        raise ValueError("refused")
    assert not failed.is_open
    assert id(lent(pool)) != id(failed)


def test_one_that_nobody_uses_is_closed_after_a_while(
    pool: ConnectionPool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_IDLE_SECONDS", 0.01)
    idle = lent(pool)
    wait_until(lambda: not idle.is_open, "it is closed")
    assert lent(pool) is not idle


def test_all_are_closed_at_the_end() -> None:
    with ConnectionPool.opened():
        assert ConnectionPool.current is not None
        kept = [lent(ConnectionPool.current), lent(ConnectionPool.current, "admin")]
        assert [one.is_open for one in kept] == [True, True]
    assert [one.is_open for one in kept] == [False, False]


def test_a_child_process_leaves_the_connections_of_its_parent_alone(
    pool: ConnectionPool, monkeypatch: pytest.MonkeyPatch
) -> None:
    parents = lent(pool)
    monkeypatch.setattr(pool, "_process", -1)
    childs = lent(pool)
    assert childs is not parents
    assert not childs.is_open
    assert parents.is_open
