"""Declaring on a broker that fails at it itself."""

from collections.abc import Iterator

import pytest
from pika import exceptions

from redrive import BrokerUnavailable, FailedQueue, Subscriber
from redrive.pubsub.blocking import declarer
from redrive.pubsub.blocking.connection import Connector
from redrive.testing import MemoryBroker
from redrive.topology.model import Binding, Exchange, Queue
from redrive.topology.names import ExchangeFamily

QUEUE = "shop@orders"
LEVEL = "master.delay.1"


def no_leader(queue: str) -> exceptions.ConnectionClosedByBroker:
    """What a broker says of a quorum queue that has no leader in time."""
    text = f"INTERNAL_ERROR - Cannot declare quorum queue '{queue}': cluster_not_formed"
    return exceptions.ConnectionClosedByBroker(541, text)


@pytest.fixture
def url() -> Iterator[str]:
    with MemoryBroker() as broker:
        yield broker.url


def broker_fails(
    monkeypatch: pytest.MonkeyPatch, times: int, error: exceptions.ConnectionClosedByBroker
) -> list[str]:
    """Has a broker close the connection as often as that over the queue that it names; returns
    each time that it is asked for it."""
    asked: list[str] = []
    declare = declarer.Declarer.declare

    def fails_first(self: declarer.Declarer, what: Exchange | Queue | Binding) -> None:
        if isinstance(what, Queue) and f"'{what.name}'" in error.reply_text:
            asked.append(what.name)
            if len(asked) <= times:
                self._connection.close()
                raise error
        declare(self, what)

    monkeypatch.setattr(declarer, "_BETWEEN_TRIES", 0.0)
    monkeypatch.setattr(declarer.Declarer, "declare", fails_first)
    return asked


def declare(url: str) -> None:
    """Declares a subscription."""
    Subscriber(url, QUEUE).declare()


def test_a_broker_that_fails_at_a_declaration_is_asked_again(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = broker_fails(monkeypatch, 2, no_leader(f"{QUEUE}@failed"))
    declare(url)
    assert len(asked) == 3
    assert FailedQueue(url, QUEUE).depth() == 0


def test_a_broker_that_fails_at_the_delay_ladder_is_asked_again(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = broker_fails(monkeypatch, 2, no_leader(LEVEL))
    connector = Connector(url, "test")
    declarer.declare_ladder(connector, ExchangeFamily(), levels=3)
    assert len(asked) == 3
    with declarer.declaring(connector) as declared:
        assert declared.exists(Queue(LEVEL))


def test_a_broker_that_fails_each_time_is_told_of(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = broker_fails(monkeypatch, 100, no_leader(f"{QUEUE}@failed"))
    with pytest.raises(BrokerUnavailable, match="cluster_not_formed"):
        declare(url)
    assert len(asked) == 5


def test_a_broker_that_closes_the_connection_for_another_reason_is_not_asked_again(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    forced = exceptions.ConnectionClosedByBroker(320, f"shutdown while '{QUEUE}' was declared")
    asked = broker_fails(monkeypatch, 1, forced)
    with pytest.raises(BrokerUnavailable, match="shutdown"):
        declare(url)
    assert len(asked) == 1
