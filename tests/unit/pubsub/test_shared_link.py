"""What subscribers that share a connection have of each other: the connection, and nothing else."""

import threading
import time
from collections.abc import Callable, Iterator
from datetime import timedelta

import pytest

from redrive.amqp.frames import ChannelEvents
from redrive.errors import BrokerUnavailable, PermissionDenied, RedriveError
from redrive.pubsub.lifecycle import CLOSING_TIME, LONGEST_DELAY, BrokerAccess, Listener
from redrive.pubsub.shared_link import LinkBranch, SharedLink
from redrive.pubsub.wire_protocol import Channel, Wire
from unit.pubsub.fake_wire import LOST, FakeChannel, FakeLink, FakeWire
from waiting import DEADLINE, wait_until

REFUSED = PermissionDenied("declaring queue 'orders'", "ACCESS_REFUSED")


class Share:
    """A subscriber that opens one channel on each connection, and notes what it is told."""

    def __init__(
        self,
        shared: SharedLink,
        prepare: Callable[[], None] | None = None,
        patience: timedelta = timedelta(0),
    ) -> None:
        self.told: list[str] = []
        self.failure: RedriveError | None = None
        self.wire: Wire | None = None
        self.branch = LinkBranch(shared, self, prepare=prepare, patience=patience)
        self.branch.start()

    @property
    def channel(self) -> Channel:
        """The channel that it opened last."""
        return self._channel

    def connected(self, connection: Wire) -> None:
        self.told.append("connected")
        self.wire = connection
        connection.on_blocked(
            lambda reason: self.told.append(f"blocked: {reason}"),
            lambda: self.told.append("unblocked"),
        )
        self.open_channel()

    def open_channel(self) -> None:
        """Opens one more."""
        assert self.wire is not None
        self.wire.open_channel(
            ChannelEvents(
                delivered=lambda received: self.told.append(f"got {received.body.decode()}"),
                confirmed=lambda *_: None,
                returned=lambda _: None,
                closed=self._closed,
                cancelled=lambda: self.told.append("cancelled"),
            ),
            self._opened,
        )

    def _opened(self, channel: Channel) -> None:
        self._channel = channel
        self.told.append("opened")

    def _closed(self, code: int, text: str) -> None:
        self.told.append(f"closed: {code}")
        self.branch.reconnect(text)

    def disconnected(self, error: RedriveError) -> None:
        self.told.append("disconnected")

    def gave_up(self, error: RedriveError) -> None:
        self.told.append("gave up")
        self.failure = error

    def ended(self) -> None:
        self.told.append("ended")


class Connection:
    """A shared link whose connection, and whose broker, a test plays."""

    def __init__(self) -> None:
        self.ends = 0
        self.shared = SharedLink(
            BrokerAccess("amqp://guest:guest@fake/", "shares"), self._keep, self._ended
        )

    def _keep(self, listener: Listener) -> FakeLink:
        self.link = FakeLink(listener)
        return self.link

    def _ended(self) -> None:
        self.ends += 1

    def connect(self) -> FakeWire:
        """A connection on which everything is answered."""
        wire = self.link.connect()
        wire.answer_all()
        return wire

    def until(self, done: Callable[[], object], what: str) -> None:
        """Runs what is to run on the connection's thread, and answers, until this is so."""

        def is_done() -> bool:
            self.link.run()
            if self.link.wire is not None:
                self.link.wire.answer_all()
            return bool(done())

        wait_until(is_done, what)

    def until_told(self, share: Share, *told: str) -> None:
        """Waits until a share has been told all of this, and nothing else."""
        self.until(lambda: len(share.told) >= len(told), f"it is told {told}")
        assert share.told == [*told]

    def sleep(self, seconds: float) -> None:
        """Lets time pass, and has what was asked for answered."""
        self.link.run()
        self.link.sleep(seconds)
        if self.link.wire is not None:
            self.link.wire.answer_all()


@pytest.fixture
def connection() -> Connection:
    return Connection()


@pytest.fixture
def shares(connection: Connection) -> tuple[Share, Share]:
    """Two on a connection that is open."""
    pair = Share(connection.shared), Share(connection.shared)
    connection.connect()
    for share in pair:
        assert share.told == ["connected", "opened"]
        share.told.clear()
    return pair


def fake(share: Share) -> FakeChannel:
    """The broker's side of a share's channel."""
    assert isinstance(share.channel, FakeChannel)
    return share.channel


# --- a channel that breaks ------------------------------------------------------------------------


def test_each_has_a_channel_of_its_own(shares: tuple[Share, Share]) -> None:
    one, other = shares
    assert one.channel.number != other.channel.number


def test_a_channel_that_breaks_hurts_its_own_subscriber_alone(
    connection: Connection, shares: tuple[Share, Share]
) -> None:
    one, other = shares
    fake(one).close_by_broker()
    connection.link.run()
    assert one.told == ["closed: 404", "disconnected"]
    connection.sleep(LONGEST_DELAY)
    assert one.told[2:] == ["connected", "opened"]
    assert one.channel.is_open
    assert (other.told, other.channel.is_open) == ([], True)
    assert connection.link.reconnects == []


def test_two_channels_that_break_start_their_subscriber_over_once(
    connection: Connection, shares: tuple[Share, Share]
) -> None:
    one, _ = shares
    first = fake(one)
    one.open_channel()
    connection.sleep(0)
    first.close_by_broker()
    fake(one).close_by_broker()
    connection.sleep(LONGEST_DELAY)
    assert (one.told.count("disconnected"), one.told.count("connected")) == (1, 1)


def test_a_channel_that_breaks_while_its_subscriber_closes_starts_nothing_over(
    connection: Connection, shares: tuple[Share, Share]
) -> None:
    one, _ = shares
    one.branch.close()
    one.branch.reconnect("its queue was deleted")
    connection.sleep(LONGEST_DELAY)
    assert one.told == ["ended"]


def test_deliveries_come_to_the_subscriber_of_their_channel(shares: tuple[Share, Share]) -> None:
    one, other = shares
    fake(one).consume("orders")
    fake(one).deliver(b"an order")
    assert (one.told, other.told) == (["got an order"], [])


def test_one_that_starts_over_closes_its_channel(
    connection: Connection, shares: tuple[Share, Share]
) -> None:
    one, other = shares
    before = fake(one)
    one.branch.reconnect("its queue was deleted")
    connection.sleep(LONGEST_DELAY)
    assert before.closed_by_client
    assert one.channel is not before
    assert other.channel.is_open


def test_nothing_comes_of_a_channel_that_was_left(
    connection: Connection, shares: tuple[Share, Share]
) -> None:
    one, _ = shares
    one.branch.reconnect("its queue was deleted")
    connection.link.run()
    fake(one).cancel_by_broker()
    fake(one).close_by_broker()
    assert one.told == ["disconnected"]


def test_a_channel_that_opens_after_it_was_left_is_closed(connection: Connection) -> None:
    one, other = Share(connection.shared), Share(connection.shared)
    wire = connection.link.connect()
    one.branch.abort()
    connection.link.run()
    wire.answer_all()
    assert [channel.is_open for channel in wire.channels] == [False, True]
    assert (one.told, other.told) == (["connected", "ended"], ["connected", "opened"])


def test_what_is_written_after_leaving_is_dropped(
    connection: Connection, shares: tuple[Share, Share]
) -> None:
    one, _ = shares
    before = one.wire
    assert before is not None
    one.branch.reconnect("its queue was deleted")
    connection.link.run()
    before.write(b"no frame, and the connection would say so")
    assert not before.is_open


def test_no_channel_is_opened_for_one_that_has_left(
    connection: Connection, shares: tuple[Share, Share]
) -> None:
    one, _ = shares
    one.branch.close()
    connection.sleep(0)
    one.open_channel()
    assert connection.link.wire is not None
    assert not connection.link.wire.asked


def test_one_that_is_leaving_hears_nothing_of_a_broker_that_takes_no_messages(
    connection: Connection, shares: tuple[Share, Share]
) -> None:
    one, other = shares
    one.branch.close()
    connection.link.run()
    assert connection.link.wire is not None
    connection.link.wire.block("low on memory")
    connection.link.wire.unblock()
    assert (one.told, other.told) == ([], ["blocked: low on memory", "unblocked"])


# --- the connection -------------------------------------------------------------------------------


def test_a_connection_that_is_lost_is_lost_to_all_and_comes_back_to_all(
    connection: Connection, shares: tuple[Share, Share]
) -> None:
    connection.link.lose()
    for share in shares:
        assert share.told == ["disconnected"]
    connection.connect()
    for share in shares:
        assert share.told == ["disconnected", "connected", "opened"]


def test_a_connection_that_comes_back_does_so_once_to_one_that_was_starting_over(
    connection: Connection, shares: tuple[Share, Share]
) -> None:
    one, _ = shares
    fake(one).close_by_broker()
    connection.link.run()
    connection.link.lose()
    connection.connect()
    connection.sleep(LONGEST_DELAY)
    assert one.told.count("connected") == 1


def test_a_connection_that_can_not_be_had_fails_all(connection: Connection) -> None:
    pair = Share(connection.shared), Share(connection.shared)
    connection.shared.gave_up(LOST)
    connection.link.close()
    for share in pair:
        assert (share.told, share.failure) == (["gave up", "ended"], LOST)
    assert connection.ends == 1


def test_all_hear_that_the_broker_takes_no_messages_and_that_it_does_again(
    connection: Connection, shares: tuple[Share, Share]
) -> None:
    assert connection.link.wire is not None
    connection.link.wire.block("low on memory")
    connection.link.wire.unblock()
    for share in shares:
        assert share.told == ["blocked: low on memory", "unblocked"]


def test_one_that_comes_later_hears_that_the_broker_takes_no_messages(
    connection: Connection, shares: tuple[Share, Share]
) -> None:
    one, _ = shares
    fake(one).close_by_broker()
    connection.link.run()
    assert connection.link.wire is not None
    connection.link.wire.block("low on memory")
    assert "blocked: low on memory" not in one.told
    connection.sleep(LONGEST_DELAY)
    assert one.told[2:] == ["connected", "blocked: low on memory", "opened"]


def test_a_new_connection_takes_messages_until_the_broker_says_otherwise(
    connection: Connection, shares: tuple[Share, Share]
) -> None:
    assert connection.link.wire is not None
    connection.link.wire.block("low on memory")
    connection.link.lose()
    connection.connect()
    for share in shares:
        assert share.told[1:] == ["disconnected", "connected", "opened"]


# --- leaving --------------------------------------------------------------------------------------


def test_one_that_closes_leaves_the_others_their_connection(
    connection: Connection, shares: tuple[Share, Share]
) -> None:
    one, other = shares
    one.branch.close()
    connection.link.run()
    assert one.told == []
    connection.sleep(0)
    assert (one.told, one.channel.is_open) == (["ended"], False)
    assert (other.told, other.channel.is_open) == ([], True)
    assert (connection.ends, connection.link.ended) == (0, False)


def test_the_connection_ends_in_order_with_the_last_one(
    connection: Connection, shares: tuple[Share, Share]
) -> None:
    for share in shares:
        share.branch.close()
        share.branch.close()
    connection.link.run()
    connection.sleep(0)
    assert [share.told for share in shares] == [["ended"], ["ended"]]
    assert (connection.ends, connection.link.ended, connection.link.aborted) == (1, True, False)


def test_a_broker_that_does_not_answer_is_left(
    connection: Connection, shares: tuple[Share, Share]
) -> None:
    one, _ = shares
    one.branch.close()
    connection.link.run()
    connection.link.sleep(CLOSING_TIME)
    assert one.told == ["ended"]


def test_a_connection_that_is_lost_while_one_closes_ends_that_one(
    connection: Connection, shares: tuple[Share, Share]
) -> None:
    one, other = shares
    one.branch.close()
    connection.link.run()
    connection.link.lose()
    connection.connect()
    assert one.told == ["disconnected", "ended"]
    assert other.told == ["disconnected", "connected", "opened"]


def test_one_that_aborts_leaves_the_others_their_connection(
    connection: Connection, shares: tuple[Share, Share]
) -> None:
    one, other = shares
    one.branch.abort()
    connection.sleep(0)
    assert (one.told, one.channel.is_open) == (["ended"], False)
    assert (other.told, other.channel.is_open, connection.ends) == ([], True, 0)


def test_the_connection_is_dropped_where_the_last_one_aborts(
    connection: Connection, shares: tuple[Share, Share]
) -> None:
    for share in shares:
        share.branch.abort()
    connection.link.run()
    assert (connection.ends, connection.link.aborted) == (1, True)


def test_nothing_runs_for_one_that_has_ended(
    connection: Connection, shares: tuple[Share, Share]
) -> None:
    one, _ = shares
    ran: list[str] = []
    one.branch.call_later(1, lambda: ran.append("later"))
    one.branch.abort()
    one.branch.call(lambda: ran.append("soon"))
    connection.sleep(1)
    assert ran == []


def test_the_connection_ends_in_order_though_another_had_aborted(
    connection: Connection, shares: tuple[Share, Share]
) -> None:
    one, other = shares
    one.branch.abort()
    connection.sleep(0)
    other.branch.close()
    connection.sleep(0)
    assert (connection.ends, connection.link.ended, connection.link.aborted) == (1, True, False)


def test_one_that_closes_can_be_aborted(
    connection: Connection, shares: tuple[Share, Share]
) -> None:
    one, other = shares
    other.branch.close()
    one.branch.close()
    connection.link.run()
    one.branch.abort()
    connection.link.run()
    assert (one.told, other.told) == (["ended"], [])


def test_one_that_closes_without_a_connection_ends_at_once(connection: Connection) -> None:
    one, other = Share(connection.shared), Share(connection.shared)
    one.branch.close()
    connection.link.run()
    connection.connect()
    assert (one.told, other.told) == (["ended"], ["connected", "opened"])


def test_one_that_closes_before_it_starts_over_ends_at_once(
    connection: Connection, shares: tuple[Share, Share]
) -> None:
    one, _ = shares
    one.branch.reconnect("its queue was deleted")
    one.branch.close()
    connection.sleep(LONGEST_DELAY)
    assert one.told == ["disconnected", "ended"]


# --- preparations ---------------------------------------------------------------------------------


class Gate:
    """A preparation that goes on when a test says so."""

    def __init__(self) -> None:
        self.begun = threading.Event()
        self.open = threading.Event()
        self.error: RedriveError | None = None
        self.times = 0

    def __call__(self) -> None:
        self.times += 1
        self.begun.set()
        assert self.open.wait(DEADLINE)
        if self.error is not None:
            raise self.error


@pytest.fixture
def gate() -> Iterator[Gate]:
    gate = Gate()
    yield gate
    gate.open.set()


def declaring() -> list[threading.Thread]:
    """The threads that prepare what is played here."""
    return [one for one in threading.enumerate() if one.name == "redrive-declare-shares"]


def nothing_to_do() -> None:
    """A preparation that is done at once."""


def test_a_refused_preparation_fails_its_own_subscriber_alone(connection: Connection) -> None:
    def refused() -> None:
        raise REFUSED

    one = Share(connection.shared, refused)
    other = Share(connection.shared, nothing_to_do)
    connection.connect()
    connection.until_told(one, "gave up", "ended")
    connection.until_told(other, "connected", "opened")
    assert (one.failure, other.failure, connection.ends) == (REFUSED, None, 0)


def test_a_preparation_that_fails_later_is_tried_again(connection: Connection) -> None:
    errors: list[RedriveError] = []

    def prepare() -> None:
        if errors:
            raise errors.pop()

    share = Share(connection.shared, prepare)
    connection.connect()
    connection.until_told(share, "connected", "opened")
    errors.append(REFUSED)
    connection.link.lose()
    connection.connect()
    connection.until(lambda: not errors and connection.link.waits, "it is to be tried again")
    assert share.told == ["connected", "opened", "disconnected"]
    connection.sleep(LONGEST_DELAY)
    connection.until_told(share, "connected", "opened", "disconnected", "connected", "opened")


def test_a_defect_in_a_preparation_is_told_to_whoever_waits(connection: Connection) -> None:
    def defect() -> None:
        raise ZeroDivisionError

    share = Share(connection.shared, defect)
    connection.connect()
    connection.until_told(share, "gave up", "ended")
    assert isinstance(share.failure, BrokerUnavailable)
    assert "ZeroDivisionError" in str(share.failure)


def test_preparations_run_one_after_the_other(connection: Connection) -> None:
    running: list[int] = []
    ran: list[tuple[int, int]] = []

    def preparation(number: int) -> Callable[[], None]:
        def prepare() -> None:
            running.append(number)
            time.sleep(0.02)
            ran.append((number, len(running)))
            running.remove(number)

        return prepare

    for number in range(5):
        Share(connection.shared, preparation(number))
    connection.connect()
    connection.until(lambda: not declaring(), "all are prepared")
    assert ran == [(number, 1) for number in range(5)]


def test_a_preparation_that_fails_for_a_while_is_tried_again_as_long_as_its_patience_has_it(
    connection: Connection,
) -> None:
    errors = [LOST, LOST, LOST]

    def prepare() -> None:
        if errors:
            raise errors.pop()

    patient = Share(connection.shared, prepare, timedelta(hours=1))
    connection.connect()
    connection.until(lambda: connection.link.waits, "it is to be tried again")
    hasty = Share(connection.shared, prepare)
    hasty.branch.up()
    connection.until_told(hasty, "gave up", "ended")
    assert (hasty.failure, patient.told) == (LOST, [])
    connection.sleep(LONGEST_DELAY)
    connection.until(lambda: connection.link.waits or patient.told, "it is tried again")
    connection.sleep(LONGEST_DELAY)
    connection.until_told(patient, "connected", "opened")


def test_the_connection_ends_where_the_only_preparation_is_refused(connection: Connection) -> None:
    def refused() -> None:
        raise REFUSED

    share = Share(connection.shared, refused)
    connection.connect()
    connection.until_told(share, "gave up", "ended")
    assert (connection.ends, connection.link.ended) == (1, True)


def test_one_that_starts_over_prepares_again(connection: Connection, gate: Gate) -> None:
    gate.open.set()
    share = Share(connection.shared, gate)
    connection.connect()
    connection.until_told(share, "connected", "opened")
    share.branch.reconnect("its queue was deleted")
    connection.sleep(LONGEST_DELAY)
    connection.until_told(share, "connected", "opened", "disconnected", "connected", "opened")
    assert gate.times == 2


@pytest.mark.parametrize("leave", [LinkBranch.close, LinkBranch.abort])
def test_one_that_leaves_before_its_turn_is_not_prepared(
    connection: Connection, gate: Gate, leave: Callable[[LinkBranch], None]
) -> None:
    ran = threading.Event()
    one, other = Share(connection.shared, gate), Share(connection.shared, ran.set)
    connection.connect()
    assert gate.begun.wait(DEADLINE)
    leave(other.branch)
    connection.link.run()
    gate.open.set()
    connection.until_told(other, "ended")
    connection.until(lambda: not declaring(), "what was to be prepared has ended")
    connection.until_told(one, "connected", "opened")
    assert not ran.is_set()


def test_a_preparation_that_ends_without_a_connection_is_made_again_with_the_next(
    connection: Connection, gate: Gate
) -> None:
    share = Share(connection.shared, gate)
    connection.connect()
    assert gate.begun.wait(DEADLINE)
    connection.link.lose()
    gate.open.set()
    connection.until(lambda: not declaring(), "what was to be prepared has ended")
    connection.link.run()
    assert share.told == []
    connection.connect()
    connection.until_told(share, "connected", "opened")
    assert gate.times == 2


def test_one_that_needs_none_does_not_wait_for_anothers(connection: Connection, gate: Gate) -> None:
    one, other = Share(connection.shared, gate), Share(connection.shared)
    connection.connect()
    assert (one.told, other.told) == ([], ["connected", "opened"])


def test_one_that_is_closed_while_it_prepares_ends_once_that_is_done(
    connection: Connection, gate: Gate
) -> None:
    share = Share(connection.shared, gate)
    connection.connect()
    assert gate.begun.wait(DEADLINE)
    share.branch.close()
    connection.link.run()
    assert share.told == []
    gate.open.set()
    connection.until_told(share, "ended")
    assert connection.ends == 1


def test_one_that_is_closed_while_it_prepares_for_too_long_ends_all_the_same(
    connection: Connection, gate: Gate
) -> None:
    one, other = Share(connection.shared, gate), Share(connection.shared)
    connection.connect()
    assert gate.begun.wait(DEADLINE)
    one.branch.close()
    connection.link.run()
    connection.sleep(CLOSING_TIME)
    assert one.told == ["ended"]
    gate.open.set()
    connection.until(lambda: not declaring(), "what was to be prepared has ended")
    assert (one.told, other.channel.is_open) == (["ended"], True)


def test_a_preparation_that_outlives_its_connection_is_not_begun_twice(
    connection: Connection, gate: Gate
) -> None:
    share = Share(connection.shared, gate)
    connection.connect()
    assert gate.begun.wait(DEADLINE)
    connection.link.lose()
    connection.connect()
    gate.open.set()
    connection.until_told(share, "connected", "opened")
    connection.until(lambda: not declaring(), "nothing more is prepared")
    assert (gate.times, share.told) == (1, ["connected", "opened"])
