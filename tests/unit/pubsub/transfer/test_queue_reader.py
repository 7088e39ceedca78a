"""Reading a queue, on a wire that a test plays."""

from collections.abc import Callable

import pytest

from redrive.pubsub.blocking.connection import Connector
from redrive.pubsub.transfer import queue_reader
from redrive.pubsub.transfer.queue_reader import QueueReader
from unit.pubsub.fake_wire import LOST, FakeLink, FakeWire

A_MINUTE = 60.0
FOR_EVER = 1e9


class Clock:
    """Time that passes when a test says so."""

    def __init__(self) -> None:
        self.now = 0.0

    def monotonic(self) -> float:
        """The seconds until now."""
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(queue_reader, "time", clock)
    monkeypatch.setattr(queue_reader, "Link", lambda _, listener: FakeLink(listener))
    return clock


def reading() -> tuple[QueueReader, FakeWire]:
    """Who reads a queue, and its connection."""
    reader = QueueReader(
        Connector("amqp://guest:guest@127.0.0.1:1/", "test"),
        "shop@orders@failed",
        prefetch=10,
        comes_back=True,
    )
    return reader, connected(reader)


def connected(reader: QueueReader) -> FakeWire:
    """A connection of a reader's on which it consumes."""
    wire = FakeWire()
    reader.connected(wire)
    wire.answer_all()
    return wire


def after(steps: list[Callable[[], None]], clock: Clock) -> Callable[[], bool]:
    """An answer to whether the queue is empty, which it is: each takes a minute, in which the next
    of the steps is done."""

    def empty() -> bool:
        clock.now += A_MINUTE
        if steps:
            steps.pop(0)()
        return True

    return empty


def test_a_queue_that_stays_empty_has_no_next_message(clock: Clock) -> None:
    reader, _ = reading()
    asked: list[Callable[[], None]] = [lambda: None, lambda: None, lambda: None]

    assert reader.next(FOR_EVER, empty=after(asked, clock)) is None
    assert len(asked) < 3


def test_what_comes_while_the_broker_is_asked_whether_the_queue_is_empty_is_taken(
    clock: Clock,
) -> None:
    reader, wire = reading()

    def come() -> None:
        wire.channel.deliver(b"late")

    taken = reader.next(FOR_EVER, empty=after([come], clock))

    assert taken is not None
    assert taken.received.body == b"late"


def test_a_queue_that_was_empty_before_the_connection_was_lost_may_have_messages_after(
    clock: Clock,
) -> None:
    reader, _ = reading()
    wires: list[FakeWire] = []

    def stay() -> None:
        pass

    def lose() -> None:
        reader.disconnected(LOST)
        wires.append(connected(reader))

    def come_back() -> None:
        wires[-1].channel.deliver(b"returned")

    taken = reader.next(FOR_EVER, empty=after([stay, lose, come_back], clock))

    assert taken is not None
    assert taken.received.body == b"returned"
