"""A wire without a socket: a broker's side of channels, played by a test step by step.

What redrive writes is read byte for byte. The broker answers only when a test has it do so, and so
each state between a question and its answer can be held. What no client may do to a broker (settle
a delivery twice, or on another channel; publish on a channel that is gone) is an AssertionError.
"""

import itertools
import struct
import threading
from collections import deque
from collections.abc import Callable, Iterable
from typing import NamedTuple

from redrive.amqp.field_table import Table
from redrive.amqp.frames import ChannelEvents, Received, Returned
from redrive.amqp.properties import Properties
from redrive.errors import BrokerUnavailable, RedriveError
from redrive.pubsub.lifecycle import Listener
from redrive.pubsub.wire_protocol import Channel, Done, Wire
from redrive.pubsub.work import WorkItem
from redrive.topology.broker_version import BrokerVersion

VERSION = BrokerVersion(4, 0, 5)
FRAME_MAX = 131_072
LOST = BrokerUnavailable("the fake broker", "the connection was lost")

_METHOD, _HEADER, _BODY = 1, 2, 3
_PUBLISH, _ACK, _REJECT, _NACK = 40, 80, 90, 120


class Published(NamedTuple):
    """A message that a client has published, and its number on its channel, from 1."""

    tag: int
    exchange: str
    routing_key: str
    properties: bytes
    body: bytes


class Settling(NamedTuple):
    """How a client has settled deliveries: `ack`, `reject` or `nack`, and the tags it was for."""

    how: str
    tags: tuple[int, ...]
    requeue: bool = False


class FakeChannel:
    """A channel, as its client uses it and as its broker sees it."""

    def __init__(self, wire: "FakeWire", number: int, events: ChannelEvents) -> None:
        self._wire = wire
        self._number = number
        self.events = events
        self._is_open = True
        self.confirms = False
        self.published: list[Published] = []
        self.unconfirmed: dict[int, Published] = {}
        self.consumers: dict[str, str] = {}
        """The queue of each consumer that the client has begun."""
        self.prefetch = 0
        self.priorities: list[int | None] = []
        self.timeouts: list[int | None] = []
        self.hung: list[int | None] = []
        self.down: list[str | None] = []
        self.unsettled: dict[int, Received] = {}
        self.settled: list[Settling] = []
        self.closed_by_client = False
        self._incoming: Published | None = None
        self._missing = 0
        self._delivered = 0

    # --- the client's side ------------------------------------------------------------------------

    @property
    def number(self) -> int:
        """Its number, for frames."""
        return self._number

    @property
    def is_open(self) -> bool:
        """Whether it is."""
        return self._is_open

    def confirm(self, done: Done) -> None:
        """Has publishes confirmed."""

        def confirming() -> None:
            self.confirms = True
            done()

        self._ask(confirming)

    def limit(self, prefetch: int, done: Done | None = None) -> None:
        """Sets the prefetch of later consumers."""
        assert self._is_open
        self.prefetch = prefetch
        self._ask(done or _nothing)

    def consume(
        self,
        queue: str,
        done: Done | None = None,
        *,
        priority: int | None = None,
        offset: int | str | None = None,
        timeout: int | None = None,
        hung: int | None = None,
        down: str | None = None,
    ) -> str:
        """Begins a consumer."""
        assert self._is_open
        tag = f"consumer-{len(self.priorities) + 1}"
        self.consumers[tag] = queue
        self.priorities.append(priority)
        self.timeouts.append(timeout)
        self.hung.append(hung)
        self.down.append(down)
        self._ask(done or _nothing)
        return tag

    def count_consumers(self, queue: str, counted: Callable[[int], None]) -> None:
        """Asks how many consumers a queue has: as many as `workers` says."""
        self._ask(lambda: counted(self._wire.workers))

    def cancel(self, tag: str, done: Done) -> None:
        """Ends a consumer; deliveries may come until the broker answers."""

        def cancelled() -> None:
            self.consumers.pop(tag, None)
            done()

        self._ask(cancelled)

    def close(self, done: Done) -> None:
        """Ends the channel."""

        def closed() -> None:
            self.closed_by_client = True
            self.go()
            done()

        self._ask(closed)

    def _ask(self, answer: Done) -> None:
        assert self._is_open, "a channel that is closed was asked for something"
        self._wire.asked.append((self, answer))

    # --- the broker's side ------------------------------------------------------------------------

    @property
    def bodies(self) -> list[bytes]:
        """The bodies that were published, in their order."""
        return [message.body for message in self.published]

    def deliver(
        self,
        body: bytes = b"{}",
        *,
        exchange: str = "master",
        routing_key: str = "user.create",
        properties: bytes = b"\0\0",
        redelivered: bool = False,
    ) -> int:
        """Delivers a message; returns its delivery tag."""
        assert self.consumers, "there is no consumer"
        assert not self.prefetch or len(self.unsettled) < self.prefetch, "the prefetch is full"
        self._delivered += 1
        received = Received(self._delivered, redelivered, exchange, routing_key, properties, body)
        self.unsettled[self._delivered] = received
        self.events.delivered(received)
        return received.delivery_tag

    def deliver_entry(self, body: bytes) -> int:
        """Delivers the next entry of a stream, with its offset; returns its delivery tag."""
        offset = Table.of({"x-stream-offset": self._delivered})
        return self.deliver(body, properties=Properties(headers=offset).encode())

    def ack(self, tag: int, *, multiple: bool = False) -> None:
        """Confirms a publish, or all up to it."""
        self._confirm(tag, multiple, True)

    def nack(self, tag: int, *, multiple: bool = False) -> None:
        """Refuses a publish, or all up to it."""
        self._confirm(tag, multiple, False)

    def _confirm(self, tag: int, multiple: bool, ack: bool) -> None:
        tags = [one for one in self.unconfirmed if one <= tag] if multiple else [tag]
        for one in tags:
            del self.unconfirmed[one]
        self.events.confirmed(tag, multiple, ack)
        self._wire.acted()

    def return_(self, tag: int, reply_text: str = "NO_ROUTE") -> None:
        """Returns a mandatory message, as a broker does before it confirms it."""
        message = self.unconfirmed[tag]
        self.events.returned(Returned(reply_text, *message[1:]))

    def close_by_broker(self, code: int = 404, text: str = "NOT_FOUND - no exchange") -> None:
        """Closes the channel, as for what a client may not do."""
        self.go()
        self.events.closed(code, text)
        self._wire.acted()

    def cancel_by_broker(self) -> None:
        """Ends the consumers, as when their queue is deleted."""
        self.consumers.clear()
        self.events.cancelled()

    def go(self) -> None:
        """Ends; nothing that was asked for on it is answered any more."""
        if self._is_open:
            self._is_open = False
            self._wire.forget(self)
            self._wire.on_gone(self)

    # --- what was written -------------------------------------------------------------------------

    def take(self, kind: int, payload: bytes) -> None:
        """Takes a frame."""
        assert self._is_open, "something was written on a channel that is gone"
        if kind == _METHOD:
            assert self._incoming is None, "a method inside a message"
            self._take_method(payload)
        elif kind == _HEADER:
            assert self._incoming is not None
            class_id, _, self._missing = struct.unpack_from(">HHQ", payload)
            assert class_id == 60
            self._incoming = self._incoming._replace(properties=payload[12:])
            self._complete_message()
        else:
            assert kind == _BODY
            assert self._incoming is not None
            assert 0 < len(payload) <= self._missing
            self._missing -= len(payload)
            self._incoming = self._incoming._replace(body=self._incoming.body + payload)
            self._complete_message()

    def _take_method(self, payload: bytes) -> None:
        class_id, method = struct.unpack_from(">HH", payload)
        assert class_id == 60
        if method == _PUBLISH:
            exchange, end = _short(payload, 6)
            routing_key, end = _short(payload, end)
            assert payload[end] == 1, "a publish that is not mandatory"
            self._incoming = Published(len(self.published) + 1, exchange, routing_key, b"", b"")
            return
        tag, bits = struct.unpack_from(">QB", payload, 4)
        if method == _ACK:
            self._settle("ack", tag, bool(bits & 1), False)
        elif method == _REJECT:
            self._settle("reject", tag, False, bool(bits & 1))
        else:
            assert method == _NACK
            self._settle("nack", tag, bool(bits & 1), bool(bits & 2))

    def _settle(self, how: str, tag: int, multiple: bool, requeue: bool) -> None:
        assert tag in self.unsettled or (multiple and not tag), (
            f"{how} of delivery {tag}, which is settled already or never was"
        )
        # All, for 0.
        tags = [one for one in self.unsettled if one <= (tag or one)] if multiple else [tag]
        if not tags:
            return
        for one in tags:
            received = self.unsettled.pop(one)
            self._wire.on_settled(received, how, requeue)
        self.settled.append(Settling(how, tuple(tags), requeue))

    def _complete_message(self) -> None:
        if self._incoming is not None and not self._missing:
            assert self.confirms, "something was published before the broker confirms"
            self.published.append(self._incoming)
            self.unconfirmed[self._incoming.tag] = self._incoming
            self._incoming = None


class FakeWire:
    """A connection, as its client uses it and as its broker sees it.

    Args:
        version: the broker's version.
        frame_max: the largest frame, in bytes.
        acted: called when the broker has said something of what was published.
    """

    def __init__(
        self,
        version: BrokerVersion = VERSION,
        frame_max: int = FRAME_MAX,
        acted: Callable[[], None] | None = None,
    ) -> None:
        self._version = version
        self._frame_max = frame_max
        self._is_open = True
        self.workers = 1
        """How many consumers the queue has, when a client asks."""
        self.acted = acted or _nothing
        self.channels: list[FakeChannel] = []
        self.asked: deque[tuple[FakeChannel | None, Done]] = deque()
        """What the client has asked for and the broker has not answered."""
        self.on_settled: Callable[[Received, str, bool], None] = _settled
        """Called with each delivery that is settled, how, and whether it goes back."""
        self.on_gone: Callable[[FakeChannel], None] = _gone
        """Called with each channel that ends; what is unsettled on it goes back."""
        self._blocked: Callable[[str], None] = _blocked
        self._unblocked: Done = _nothing

    @property
    def version(self) -> BrokerVersion:
        """The broker's version."""
        return self._version

    @property
    def frame_max(self) -> int:
        """The negotiated largest frame, in bytes."""
        return self._frame_max

    @property
    def is_open(self) -> bool:
        """Whether it is."""
        return self._is_open

    def write(self, data: bytes) -> None:
        """Takes whole frames; drops them once the connection is gone."""
        if not self._is_open:
            return
        position = 0
        while position < len(data):
            kind, number, length = struct.unpack_from(">BHI", data, position)
            assert length + 8 <= self._frame_max, "a frame larger than was negotiated"
            end = position + 7 + length
            assert data[end] == 0xCE, "a frame without its end mark"
            self._channel(number).take(kind, data[position + 7 : end])
            position = end + 1

    def _channel(self, number: int) -> FakeChannel:
        assert 0 < number <= len(self.channels), f"something was written on channel {number}"
        return self.channels[number - 1]

    def open_channel(self, events: ChannelEvents, opened: Callable[[Channel], None]) -> None:
        """Opens a channel."""

        def is_open() -> None:
            channel = FakeChannel(self, len(self.channels) + 1, events)
            self.channels.append(channel)
            opened(channel)

        self.asked.append((None, is_open))

    def on_blocked(self, blocked: Callable[[str], None], unblocked: Done) -> None:
        """Notes whom to call."""
        self._blocked, self._unblocked = blocked, unblocked

    # --- the broker's side ------------------------------------------------------------------------

    @property
    def channel(self) -> FakeChannel:
        """The channel that was opened last."""
        return self.channels[-1]

    def answer(self) -> None:
        """Answers the first thing that was asked for."""
        _, answer = self.asked.popleft()
        answer()

    def answer_all(self) -> None:
        """Answers until nothing is asked for any more."""
        while self.asked:
            self.answer()

    def block(self, reason: str = "low on memory") -> None:
        """Takes no messages for now."""
        self._blocked(reason)

    def unblock(self) -> None:
        """Takes messages again."""
        self._unblocked()

    def lose(self) -> None:
        """Ends, and all channels with it; nothing that was asked for is answered any more."""
        self._is_open = False
        for channel in self.channels:
            channel.go()
        self.asked.clear()

    def forget(self, channel: FakeChannel) -> None:
        """Answers nothing that a channel that is gone has asked for."""
        self.asked = deque(asked for asked in self.asked if asked[0] is not channel)


class FakeLink:
    """What keeps a connection for a listener; a test connects it, loses it, and lets time pass."""

    address = "amqp://guest@fake:5672/"

    def __init__(self, listener: Listener) -> None:
        self._listener = listener
        self.wire: FakeWire | None = None
        self.calls: deque[Callable[[], None]] = deque()
        self.now = 0.0
        self._timers: list[tuple[float, int, Callable[[], None]]] = []
        self._order = itertools.count()
        self.started = False
        self.reconnects: list[str] = []
        self.aborted = False
        self.ended = False

    def start(self) -> None:
        """Begins to connect."""
        self.started = True

    def on_io_thread(self) -> bool:
        """Tells that nobody waits for it."""
        return False

    def call(self, function: Callable[[], None]) -> None:
        """Keeps what is to run until `run`."""
        if not self.ended:
            self.calls.append(function)

    def call_later(self, seconds: float, function: Callable[[], None]) -> None:
        """Keeps what is to run until enough time has passed."""
        self._timers.append((self.now + seconds, next(self._order), function))

    def reconnect(self, reason: str) -> None:
        """Loses the connection, as one that is closed to start over."""
        self.reconnects.append(reason)
        self.lose()

    def close(self) -> None:
        """Ends the link; the second call does nothing."""
        if not self.ended:
            self.ended = True
            if self.wire is not None:
                self.wire.lose()
            self.calls.clear()
            self._timers.clear()
            self._listener.ended()

    def abort(self) -> None:
        """Ends the link as a crash would."""
        self.aborted = True
        self.close()

    # --- the test's side --------------------------------------------------------------------------

    def connect(self, wire: FakeWire | None = None) -> FakeWire:
        """Gives the listener a connection on which nothing is answered yet."""
        self.wire = wire or FakeWire()
        self._listener.connected(self.wire)
        return self.wire

    def lose(self, error: RedriveError = LOST) -> None:
        """The connection is lost."""
        wire, self.wire = self.wire, None
        if wire is not None:
            wire.lose()
            self._listener.disconnected(error)

    def give_up(self, error: RedriveError = LOST) -> None:
        """There is no connection to be had."""
        self._listener.gave_up(error)
        self.close()

    @property
    def waits(self) -> bool:
        """Whether something is to run once time has passed."""
        return bool(self._timers)

    def run(self) -> None:
        """Runs what was to run on the connection's thread."""
        while self.calls:
            self.calls.popleft()()

    def sleep(self, seconds: float) -> None:
        """Lets time pass, and runs what has become due meanwhile, in its order."""
        until = self.now + seconds
        while due := sorted(timer for timer in self._timers if timer[0] <= until)[:1]:
            self._timers.remove(due[0])
            self.now = max(self.now, due[0][0])
            due[0][2]()
            self.run()
        self.now = until


class FakeWorkers:
    """Keeps items until a test has them begun."""

    def __init__(self) -> None:
        self.waiting: deque[WorkItem] = deque()
        self.overdue: list[tuple[WorkItem, str]] = []
        self.stopped = False

    def put(self, item: WorkItem) -> None:
        """Keeps an item."""
        self.waiting.append(item)

    def drop_waiting(self) -> list[WorkItem]:
        """Takes back what was not begun."""
        dropped = list(self.waiting)
        self.waiting.clear()
        return dropped

    def abandon_overdue(self, seconds: float, every: float) -> list[tuple[WorkItem, str]]:
        """Takes what the test says is overdue."""
        overdue, self.overdue = self.overdue, []
        return overdue

    def stop(self) -> None:
        """No item comes any more."""
        self.stopped = True


def bodies_of(messages: Iterable[Received | Published]) -> list[bytes]:
    """The bodies of messages, in their order."""
    return [message.body for message in messages]


def _short(data: bytes, position: int) -> tuple[str, int]:
    end = position + 1 + data[position]
    return data[position + 1 : end].decode("utf-8", "surrogateescape"), end


def _nothing() -> None:
    """Nobody waits for the answer."""


def _settled(_: Received, __: str, ___: bool) -> None:
    """Nobody counts what is settled."""


def _gone(_: FakeChannel) -> None:
    """Nobody counts what goes back."""


def _blocked(_: str) -> None:
    """Nobody listens."""


class EndListener:
    """A listener that notes only that its link has ended."""

    def __init__(self) -> None:
        self.has_ended = threading.Event()

    def connected(self, connection: Wire) -> None:
        pass

    def disconnected(self, error: RedriveError) -> None:
        pass

    def gave_up(self, error: RedriveError) -> None:
        pass

    def ended(self) -> None:
        self.has_ended.set()
