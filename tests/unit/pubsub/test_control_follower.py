"""An engine follows who has paused its subscription, on the connection that it has."""

import json
from datetime import UTC, datetime, timedelta

import pytest

from redrive.amqp.field_table import Table
from redrive.amqp.properties import Properties
from redrive.pubsub.control_follower import Controls
from redrive.topology.broker_version import BrokerVersion
from redrive.topology.control import Action, Control
from unit.pubsub.fake_wire import FakeChannel, FakeWire, Settling
from unit.pubsub.running_engine import BROADCAST, ORDERED, ORDERS, RunningEngine

COUNTS_RETURNS, COUNTS_NONE = BrokerVersion(4, 0, 5), BrokerVersion(4, 3, 6)


class Followed(RunningEngine):
    """A running engine that follows the control stream on its own connection."""

    def __init__(self, *arguments: object, **options: object) -> None:
        super().__init__(*arguments, **options)  # type: ignore[arg-type]
        self._offset = -1
        controls = Controls(self.link.call_later)
        self.engine.use(
            self.link,
            self.workers,
            self.engine._moves,
            controls=controls,
            owns_controls=True,
        )

    @property
    def stream(self) -> FakeChannel:
        """The channel that reads the stream."""
        assert self.link.wire is not None
        return next(
            one for one in self.link.wire.channels if "master.control" in one.consumers.values()
        )

    @property
    def consuming(self) -> FakeChannel:
        consumer = self.engine._consumer
        assert consumer is not None
        assert isinstance(consumer._channel, FakeChannel)
        return consumer._channel

    def connect_and_know(self, version: BrokerVersion = COUNTS_NONE) -> FakeWire:
        """A connection, and nothing more in the stream."""
        wire = self.connect(version)
        self.settle_down()
        return wire

    def settle_down(self) -> None:
        self.link.sleep(0.1)
        self.run()
        self.run()

    def write(self, action: Action, body: bytes | None = None, **values: object) -> None:
        """Appends an entry to the stream."""
        self._offset += 1
        control = Control(self.queue, action, datetime.now(UTC), **values)  # type: ignore[arg-type]
        self.stream.deliver(
            control.encode() if body is None else body,
            properties=Properties(
                headers=Table.of({"x-stream-offset": self._offset}), user_id="ops"
            ).encode(),
        )
        self.run()

    @property
    def queue(self) -> str:
        return self.engine._subscription.queue


@pytest.fixture
def running() -> Followed:
    followed = Followed()
    followed.connect_and_know()
    return followed


def test_nothing_is_taken_until_the_stream_is_read() -> None:
    running = Followed()
    running.connect(COUNTS_NONE)
    assert not running.consuming.consumers
    running.settle_down()
    assert running.consuming.consumers


@pytest.mark.parametrize("answered", range(4))
def test_messages_are_taken_however_late_the_broker_opens_the_channel_for_them(
    answered: int,
) -> None:
    running = Followed()
    wire = running.link.connect(FakeWire(COUNTS_NONE))
    for _ in range(answered):
        wire.answer()
    running.link.sleep(5)  # the stream counts as read
    running.link.run()
    running.settle_down()
    assert "orders" in [queue for one in wire.channels for queue in one.consumers.values()]


def test_a_worker_that_starts_keeps_to_a_pause_and_takes_nothing_at_all() -> None:
    running = Followed()
    running.connect(COUNTS_NONE)
    running.write("pause", reason="a migration")
    running.settle_down()
    assert not running.consuming.consumers
    assert running.engine.consuming  # ready
    assert running.engine.paused is not None
    assert running.engine.paused.by == "ops"
    running.write("resume")
    assert running.consuming.consumers


def test_what_runs_is_finished_and_what_was_not_begun_goes_back(running: Followed) -> None:
    running.deliver(b"runs")
    for body in (b"1", b"2"):
        running.deliver(body)
    item = running.begin()
    running.write("pause")
    assert not running.workers.waiting
    assert running.consuming.settled == [
        Settling("nack", (2,), True),
        Settling("nack", (3,), True),
    ]
    assert not running.consuming.consumers
    running.end(item)
    assert running.consuming.settled[-1] == Settling("ack", (1,))


def test_where_a_return_is_counted_the_rest_goes_to_the_end_of_its_queue_with_its_counts() -> None:
    running = Followed()
    running.connect_and_know(COUNTS_RETURNS)
    running.deliver(b"runs")
    running.deliver(b"1")
    running.begin()
    running.write("pause")
    (moved,) = running.publishing.published
    assert (moved.exchange, moved.routing_key, moved.body) == ("", "orders", b"1")


def test_a_message_that_comes_after_the_pause_is_not_begun(running: Followed) -> None:
    assert running.link.wire is not None
    running.deliver()
    running.handle()
    control = Control("orders", "pause", datetime.now(UTC))
    running.stream.deliver_entry(control.encode())
    running.consuming.deliver(b"late")  # before the broker has answered the cancel
    running.run()
    assert not running.workers.waiting
    assert running.consuming.settled[-1].how == "nack"


def test_a_pause_of_another_queue_or_an_unreadable_entry_changes_nothing(
    running: Followed, caplog: pytest.LogCaptureFixture
) -> None:
    running.write("pause", body=Control("others", "pause", datetime.now(UTC)).encode())
    running.write("pause", body=b"\xff")
    running.write("pause", body=json.dumps({"format": 2}).encode())
    assert running.engine.paused is None
    assert caplog.text.count("can't be read") == 2


def test_a_pause_ends_by_itself(running: Followed) -> None:
    running.write("pause", until=datetime.now(UTC) + timedelta(milliseconds=1))
    running.link.sleep(60)
    running.run()
    assert running.engine.paused is None
    assert running.consuming.consumers


def test_a_pause_outlives_a_connection_and_old_entries_are_not_read_again(
    running: Followed,
) -> None:
    running.write("pause")
    running.link.lose()
    running.connect(COUNTS_NONE)
    running.run()
    assert not running.consuming.consumers
    running._offset -= 1
    running.write("resume")  # at an offset that was read before
    assert not running.consuming.consumers
    running.write("resume")
    assert running.consuming.consumers


def test_who_may_not_read_the_stream_says_so_once_and_goes_on(
    caplog: pytest.LogCaptureFixture,
) -> None:
    running = Followed()
    running.connect(COUNTS_NONE)
    for _ in range(3):
        running.stream.close_by_broker(403, "ACCESS_REFUSED - read access refused")
        running.run()
        running.link.sleep(60)
        running.run()
    assert running.consuming.consumers
    assert caplog.text.count("pauses and rates are not followed") == 1


def test_a_stream_that_does_not_answer_holds_nothing_up() -> None:
    running = Followed()
    wire = running.link.connect(FakeWire(COUNTS_NONE))
    while len(wire.channels) < 2:
        wire.answer()
    running.link.sleep(3)
    running.run()
    assert running.consuming.consumers


def test_what_an_ordered_or_a_broadcast_queue_has_in_hand_stays_there() -> None:
    for subscription in (ORDERED, BROADCAST):
        running = Followed(subscription, prefetch=1, concurrency=1)
        running.connect_and_know()
        running.write("pause")
        running.deliver()
        assert not running.workers.waiting
        assert running.consuming.settled == []
        running.write("resume")
        assert len(running.workers.waiting) == 1


def test_a_paused_worker_stops(running: Followed) -> None:
    running.deliver()
    running.write("pause")
    running.stop()
    running.run()
    assert running.ends == 1


def test_two_subscribers_of_a_family_follow_one_stream() -> None:
    running = Followed(ORDERS)
    running.connect_and_know()
    controls = running.engine._controls
    assert controls is not None
    first = controls.follow(ORDERS.exchanges)
    assert controls.follow(ORDERS.exchanges) is first


def test_what_may_have_killed_a_worker_goes_back_too_when_its_turn_ends_in_a_pause() -> None:
    running = Followed()
    running.connect_and_know(COUNTS_NONE)
    running.deliver(b"suspect", crashes=1)
    running.write("pause")
    for _ in range(5):
        running.run()
    while running.workers.waiting:
        running.handle()
        running.run()
    assert not running.consuming.unsettled
    assert not running.consuming.consumers
