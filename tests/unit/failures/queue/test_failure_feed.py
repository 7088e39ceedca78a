"""Since when a feed follows without a gap: never longer than it has."""

import contextlib
from collections.abc import Callable, Iterator
from datetime import datetime
from typing import Any

import pytest

from redrive.amqp.field_table import Table
from redrive.amqp.properties import Properties
from redrive.failures.queue import failure_feed
from redrive.failures.queue.failure_feed import FailureFeed
from redrive.pubsub.blocking.connection import Connector
from redrive.topology.history import history_of
from redrive.topology.model import Exchange, Queue
from redrive.topology.names import ExchangeFamily
from unit.pubsub.fake_wire import FakeLink, FakeWire

FAMILY = ExchangeFamily()
HISTORY = history_of(FAMILY)


class FakeDeclarer:
    """A broker's queues, as far as a feed asks for them."""

    def __init__(self, *queues: str) -> None:
        self.queues = set(queues)

    def exists(self, queue: Queue) -> bool:
        return queue.name in self.queues

    def declare(self, what: object) -> None:
        if isinstance(what, Queue):
            self.queues.add(what.name)
        else:
            assert not isinstance(what, Exchange) or what.name

    def unbind(self, _: object) -> None:
        """A binding goes."""


class DrivenFeed:
    """A feed on a fake wire."""

    def __init__(self, broker: FakeDeclarer, **options: Any) -> None:
        self.broker = broker
        self.feed = FailureFeed(Connector("amqp://fake", "test"), FAMILY, **options)
        self.link = FakeLink(self.feed)
        self.feed._link = self.link  # type: ignore[assignment]

    def connect(self) -> FakeWire:
        """Has it prepare and connect; the broker has answered nothing yet."""
        self.feed._prepare()
        return self.link.connect()

    @property
    def since(self) -> datetime | None:
        return self.feed.state.since


@pytest.fixture
def make(monkeypatch: pytest.MonkeyPatch) -> Callable[..., DrivenFeed]:
    def made(*queues: str, **options: Any) -> DrivenFeed:
        broker = FakeDeclarer(*queues)

        @contextlib.contextmanager
        def declaring(_: Connector) -> Iterator[FakeDeclarer]:
            yield broker

        monkeypatch.setattr(failure_feed, "declaring", declaring)
        return DrivenFeed(broker, **options)

    return made


def test_a_history_is_followed_once_the_broker_has_found_its_end(
    make: Callable[..., DrivenFeed],
) -> None:
    driven = make(HISTORY)
    wire = driven.connect()
    while wire.asked:
        assert not driven.feed.state.is_following
        wire.answer()
    assert driven.feed.state.is_following
    assert driven.feed.state.source == HISTORY


def test_a_history_that_gave_nothing_has_a_gap_where_the_connection_was_lost(
    make: Callable[..., DrivenFeed],
) -> None:
    driven = make(HISTORY)
    driven.connect().answer_all()
    before = driven.since
    driven.link.lose()
    driven.connect().answer_all()
    assert before is not None
    assert driven.since is not None
    assert driven.since > before


def test_a_history_that_gave_something_goes_on_without_a_gap(
    make: Callable[..., DrivenFeed],
) -> None:
    driven = make(HISTORY)
    wire = driven.connect()
    wire.answer_all()
    before = driven.since
    (channel,) = [one for one in wire.channels if HISTORY in one.consumers.values()]
    headers = Table.of({"x-stream-offset": 41})
    channel.deliver(
        exchange="master.failed",
        routing_key="shop@orders",
        properties=Properties(headers=headers).encode(),
    )
    driven.link.lose()
    driven.connect().answer_all()
    assert driven.since == before
    assert driven.feed.take()[1] == 42


def test_a_tap_waits_while_the_connection_is_lost(make: Callable[..., DrivenFeed]) -> None:
    driven = make()
    driven.connect().answer_all()
    before = driven.since
    driven.link.lose()
    driven.connect().answer_all()
    assert driven.since == before
    assert driven.feed.state.is_following


def test_a_tap_that_has_expired_meanwhile_leaves_a_gap(make: Callable[..., DrivenFeed]) -> None:
    driven = make()
    driven.connect().answer_all()
    before = driven.since
    driven.link.lose()
    driven.broker.queues.clear()
    driven.connect().answer_all()
    assert before is not None
    assert driven.since is not None
    assert driven.since > before
