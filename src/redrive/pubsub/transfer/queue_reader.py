"""Take messages from a queue, and return those that were not settled."""

import contextlib
import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from queue import Empty, SimpleQueue
from types import TracebackType
from typing import NamedTuple, Self, TypeVar

from redrive.amqp.frames import Received
from redrive.errors import BrokerUnavailable, RedriveError
from redrive.pubsub.blocking.connection import Connector, Link
from redrive.pubsub.blocking.declarer import Declarer, declaring
from redrive.pubsub.confirms import Outbox, Outgoing
from redrive.pubsub.consumer import Consumer
from redrive.pubsub.mailbox import Mailbox
from redrive.pubsub.transfer.delivery_limit import DeliveryLimitWatch, ReturnLimit
from redrive.pubsub.wire_protocol import Wire

T = TypeVar("T")
Leave = Callable[[Callable[[list[Consumer]], None]], None]

_END_TIMEOUT = 60.0
"""Seconds that a broker may take to end a consumer or a channel: thousands of acks may precede
that, and each costs it a search."""
_BACK_WITHIN = 5.0
"""Seconds after which returned messages that are not back must have been taken by somebody else."""
_BETWEEN_LOOKS = 0.005
_NO_MORE_FOR = 0.1


def return_in_order(
    connector: Connector,
    link: Link,
    queue: str,
    leave: Leave,
    ended: threading.Event,
    on_returned: Callable[[int], None] = lambda _: None,
    patience: float = _END_TIMEOUT,
) -> bool:
    """End consumers, oldest first, waiting each time until the messages that it held are back.

    A quorum queue puts returned messages behind those returned before, and ahead of those never
    taken. So its order is kept if all of it is held, or nothing. A broker reports a channel as
    closed a moment before its messages are back.
    """
    consumers: list[Consumer] = _answer(link, ended, leave, patience) or []
    with contextlib.ExitStack() as stack:
        declarer = None
        if len(consumers) > 1:
            with contextlib.suppress(RedriveError):
                declarer = stack.enter_context(declaring(connector))
        for consumer in consumers:
            before = _depth(declarer, queue)
            returned = _answer(link, ended, consumer.return_in_order, patience)
            if returned is None:
                return False
            if before is not None and returned:
                _wait_until_there_are(before + returned, declarer, queue)
            on_returned(returned)
    return bool(consumers)


def _answer(
    link: Link,
    ended: threading.Event,
    ask: Callable[[Callable[[T], None]], None],
    patience: float,
) -> T | None:
    """Run `ask` on the link's thread and return its answer; None if the thread has ended or takes
    too long."""
    answers: SimpleQueue[T] = SimpleQueue()
    link.call(lambda: ask(answers.put))
    deadline = time.monotonic() + patience
    while not ended.is_set() and time.monotonic() < deadline:
        with contextlib.suppress(Empty):
            return answers.get(timeout=_NO_MORE_FOR)
    return None


def _wait_until_there_are(count: int, declarer: Declarer | None, queue: str) -> None:
    deadline = time.monotonic() + _BACK_WITHIN
    while (
        (depth := _depth(declarer, queue)) is not None
        and depth < count
        and time.monotonic() < deadline
    ):
        time.sleep(_BETWEEN_LOOKS)


def _depth(declarer: Declarer | None, queue: str) -> int | None:
    """Return the number of ready messages, or None if it can't be found out."""
    with contextlib.suppress(RedriveError):
        depth = None if declarer is None else declarer.depth(queue)
        return None if depth is None else depth.messages
    return None


logger = logging.getLogger("redrive")

WINDOW = 5000
"""Messages that one consumer holds before the next one starts."""

_QUIET = 0.2
_SURELY_EMPTY = 2.0
"""Seconds for which a queue must be empty: after a consumer is lost, its messages return a moment
later."""
_SURELY_BACK = 8.0
"""Seconds that expected messages may take to come from a busy broker."""
_BATCH = 1000
AHEAD = 2 * WINDOW
"""Messages that may be unread before another window is opened, if not all may be needed."""
_FIRST_STEP = 100
_COUNTS_RETURNS = (b"x-delivery-count", b"x-acquired-count")
"""Headers of a quorum queue's messages that were delivered before. Source: measured on RabbitMQ
3.10.8 and 4.0.5; 4.3.6 has both."""
_SLOWEST = 4000
"""Messages per second that a quorum queue delivers or takes back on a busy machine."""
_MOST_BYTES_WAITING = 32 * 1024 * 1024
_BREATH = 0.01
_CLOSING_TIME = 10.0


def surely_back(count: int) -> float:
    """Return the seconds within which a broker is certain to deliver this many messages, or take
    them back."""
    return (_SURELY_BACK if count else _SURELY_EMPTY) + count / _SLOWEST


class Held(NamedTuple):
    """A delivery and its consumer."""

    consumer: Consumer
    received: Received


def was_returned(received: Received) -> bool:
    """Return whether a quorum queue has delivered this message before and got it back."""
    return received.redelivered and any(header in received.properties for header in _COUNTS_RETURNS)


class QueueReader:
    """A consumer of a queue for a caller's thread; use it as a context manager.

    If many messages have to be held, they are held in windows: a consumer that has received a
    window's worth is cancelled, keeps its messages, and is followed by the next. Acking one message
    of many on a channel costs the broker time in proportion to the messages before it: 50,000 on
    one channel took five times as long as in windows. Source: measured on RabbitMQ 4.3.6, one of
    seven acked.
    """

    def __init__(
        self,
        connector: Connector,
        queue: str,
        *,
        prefetch: int | None,
        most: int | None = None,
        expected: int = 0,
        whole: int | None = None,
        ahead: int | None = None,
        returning: Callable[[int], None] = lambda _: None,
        comes_back: bool,
        lost: Callable[[], None] | None = None,
        priority: int | None = None,
        limit: ReturnLimit | None = None,
        held_back: bool = False,
    ) -> None:
        self._held_back = held_back
        self._connector = connector
        self._queue = queue
        self._priority = priority
        self._prefetch = prefetch
        self._most = most
        self._expected = expected
        self._whole = whole
        self._ahead = ahead
        self._returning = returning
        self._returned_before = False
        self._deferred: Callable[[], None] | None = None
        self._taken = 0
        self.keeps_order = True
        """Whether more messages than wanted are held at the end if the queue's order requires
        it."""
        self._received_here = 0
        self._comes_back = comes_back
        self._on_lost = lost
        self._inbox: SimpleQueue[Held | None] = SimpleQueue()
        self._link = Link(connector, self)
        self._outbox = Outbox(resend=False)
        self._mailbox: Mailbox[list[tuple[Held, Outgoing]]] = Mailbox(
            self._link, self._enqueue, self._outbox.pump
        )
        self._ready: deque[Held] = deque()
        self._frame_max = 0
        self._connection: Wire | None = None
        self._consumer: Consumer | None = None
        self._consumers: dict[Consumer, None] = {}
        self._room = 0
        self._consumed = False
        self._connected = False
        self._closing = False
        self._is_settled = False
        self._to_flush: set[Consumer] = set()
        self._draining = False
        self._bytes_received = 0
        self._bytes_taken = 0
        self._losses = 0
        self._losses_seen = 0
        self._failure: RedriveError | None = None
        self._last_life = (
            None
            if limit is None
            else DeliveryLimitWatch(queue, limit, self._send_copy, self.gave_up)
        )
        self._ended = threading.Event()

    # --- on the caller's thread -------------------------------------------------------------------

    def next(
        self, timeout: float, *, empty: Callable[[], bool], stop: Callable[[], bool] = lambda: False
    ) -> Held | None:
        """Return the next message; None if the queue is empty, `stop` returns True, or another
        consumer has the queue's messages."""
        if self._ready:
            return self._ready.popleft()
        began = time.monotonic()
        empty_since: float | None = None
        losses = self._losses
        while not stop():
            taken = self._poll()
            if taken is not None:
                return taken
            # Only after a poll: a request to the broker may have taken a while, and messages may
            # have arrived in the meantime.
            now = time.monotonic()
            if losses != self._losses or not self._connected:
                losses, empty_since = self._losses, None
            if empty_since is not None and now - empty_since > self._surely_empty:
                return None
            if now - began > timeout:
                if not self._connected:
                    raise BrokerUnavailable(
                        self._link.address, f"it did not answer, or reconnect, within {timeout:g} s"
                    )
                logger.warning(
                    "queue %s has messages but delivers none: another consumer has exclusive use",
                    self._queue,
                )
                return None
            if not (self._connected and empty()):
                empty_since = None
            elif empty_since is None:
                empty_since = time.monotonic()
        return None

    def some(
        self, most: int, timeout: float, *, empty: Callable[[], bool], stop: Callable[[], bool]
    ) -> list[Held]:
        """Return the next message like `next`, plus those already received, up to `most`; empty if
        `next` returns None."""
        first = self.next(timeout, empty=empty, stop=stop)
        if first is None:
            return []
        ready = self._ready
        return [first, *(ready.popleft() for _ in range(min(most - 1, len(ready))))]

    def is_current(self, taken: Held) -> bool:
        """Return whether a message can still be settled, that is, its connection was not lost
        since."""
        return taken.consumer in self._consumers

    @property
    def consuming(self) -> bool:
        """Whether the broker would deliver messages now, if there were any."""
        consumer = self._consumer
        return consumer is not None and consumer.consuming

    @property
    def frame_max(self) -> int:
        """The connection's maximum frame size in bytes; 0 for no limit."""
        return self._frame_max

    @property
    def blocked(self) -> str | None:
        """Why the broker is blocking publishers now, or None if it is not."""
        return self._outbox.blocked

    @property
    def has_more(self) -> bool:
        """Whether the next message has already been received."""
        return bool(self._ready)

    @property
    def is_settled(self) -> bool:
        """Whether the broker has processed every ack. Known once the context is exited."""
        return self._is_settled

    @property
    def held(self) -> int:
        """The number of messages received on the current connection."""
        return self._received_here

    def publish(self, batch: list[tuple[Held, Outgoing]]) -> None:
        """Publish replacements for messages taken; if the connection of such a message is lost, its
        replacement is settled as failed."""
        self._mailbox.put(batch)

    def ack(self, taken: Held) -> None:
        """Take a message out of the queue; can be called from any thread."""
        self._link.call(lambda: self.settled(taken))

    def ack_all(self, batch: Sequence[Held]) -> None:
        """Take these messages out of the queue, waking the I/O thread only once; can be called from
        any thread."""

        def settle() -> None:
            for taken in batch:
                self.settled(taken)

        self._link.call(settle)

    def catch_up(self) -> bool:
        """Return whether the connection was lost since the last call; if so, call `lost`."""
        if self._losses_seen == self._losses:
            return False
        self._losses_seen = self._losses
        self._ready.clear()
        if self._on_lost is not None:
            self._on_lost()
        return True

    def drain(self) -> None:
        """Stop slowing down for unread messages, so that confirms get through."""
        self._draining = True

    def __enter__(self) -> Self:
        self._link.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            if self.keeps_order and (kind is None or kind is GeneratorExit):
                self._hold_what_the_order_needs()
        finally:
            self._return_all()

    def _return_all(self) -> None:
        left = self._received_here

        def told(returned: int) -> None:
            nonlocal left
            left -= returned
            self._returning(max(0, left))

        self._returning(left)
        self._wait_for_copies()
        limit = None if self._last_life is None else self._last_life.ask()
        self._is_settled = return_in_order(
            self._connector,
            self._link,
            self._queue,
            lambda left: self._begin_to_leave(left, limit),
            self._ended,
            told,
            # A broker that blocks this connection does not read its requests.
            _END_TIMEOUT if self.blocked is None else _CLOSING_TIME,
        )
        self._link.close()
        if not self._ended.wait(_CLOSING_TIME):
            self._link.abort()
            self._ended.wait(_CLOSING_TIME)
        if self._last_life is not None:
            self._last_life.close()

    def _wait_for_copies(self) -> None:
        """Wait until copies of messages that can't be returned are confirmed: the originals would
        be deleted."""
        deadline = time.monotonic() + _END_TIMEOUT
        while (
            self._last_life is not None
            and self._last_life.open
            and not self._ended.is_set()
            and time.monotonic() < deadline
        ):
            time.sleep(_BREATH)

    @property
    def _surely_empty(self) -> float:
        """Seconds for which a queue must be empty before it is certain that no message is in
        transit."""
        return surely_back(max(0, self._expected - self._received_here))

    @property
    def _left(self) -> int:
        """The number of messages still wanted."""
        return (self._most or 0) - self._received_here

    @property
    def _is_in_order(self) -> bool:
        """Whether the held messages can be returned without changing the queue's order.

        A quorum queue delivers returned messages before all others, and puts newly returned ones
        behind them. So either all messages that were ever returned are held, which is the case once
        a message comes that never was, or the rest has to be held as well. A classic queue returns
        each message to its place. Source: measured on 3.10.8, 4.0.5 and 4.3.6.
        """
        return (
            self._whole is None or not self._returned_before or self._received_here >= self._whole
        )

    def _hold_what_the_order_needs(self) -> None:
        """Hold more messages, discarding them here at once, until all can be returned in order."""
        received, since = -1, time.monotonic()
        while not self._is_in_order and self._connected and self._failure is None:
            if self._received_here != received:
                received, since = self._received_here, time.monotonic()
                self._link.call(self._take_more)
                self._returning(received)
            elif time.monotonic() - since > _SURELY_BACK:
                return  # another consumer has the rest
            self._poll()
            self._taken += len(self._ready)
            self._ready.clear()

    def _poll(self) -> Held | None:
        self._resume()
        try:
            taken = self._inbox.get(timeout=_QUIET)
        except Empty:
            return None
        while taken is not None:
            # Take all available messages at once: waking the other thread for each one costs more
            # than the message.
            self._bytes_taken += len(taken.received.body)
            self._taken += 1
            if self.is_current(taken):
                self._ready.append(taken)
            if len(self._ready) >= _BATCH or self._inbox.empty():
                return self._ready.popleft() if self._ready else None
            taken = self._inbox.get()
        if self._failure is not None:
            raise self._failure
        self.catch_up()
        return None

    # --- on the I/O thread ------------------------------------------------------------------------

    def _enqueue(self, batch: list[tuple[Held, Outgoing]]) -> None:
        current = [outgoing for taken, outgoing in batch if self.is_current(taken)]
        self._outbox.enqueue(current)
        if len(current) < len(batch):
            lost = BrokerUnavailable(
                self._link.address, "the connection was lost before it was sent"
            )
            for taken, outgoing in batch:
                if not self.is_current(taken):
                    outgoing.settled(outgoing, lost)

    def _send_copy(self, copy: Outgoing) -> None:
        self._outbox.enqueue([copy])
        self._outbox.pump()

    def settled(self, taken: Held) -> None:
        """Ack a message on the I/O thread; acks of one round are sent together."""
        if not self.is_current(taken):
            return
        taken.consumer.ack(taken.received.delivery_tag)
        if self._last_life is not None:
            self._last_life.settled((taken.consumer, taken.received.delivery_tag))
        if not self._to_flush:
            self._link.call(self._flush)
        self._to_flush.add(taken.consumer)

    def _flush(self) -> None:
        for consumer in self._to_flush:
            consumer.flush()
        self._to_flush.clear()

    def connected(self, connection: Wire) -> None:
        """Start consuming."""
        if self._closing:
            return
        self._frame_max = connection.frame_max
        self._connection = connection
        self._received_here = 0
        self._taken = 0
        self._deferred = None
        self._outbox.connected(connection)
        self._consume(connection)
        self._connected = True

    def _take_more(self) -> None:
        """Request more messages than were wanted; in steps, since a few may be enough."""
        self._ahead = None
        self._open_deferred()
        window, whole = self._consumer, self._whole
        if (
            self._closing
            or window is None
            or whole is None
            or self._left > 0
            or self._received_here >= whole
        ):
            return
        self._most = min(
            whole, self._received_here + min(WINDOW, max(_FIRST_STEP, self._received_here // 4))
        )
        self._follow(window)

    def _resume(self) -> None:
        """Open the deferred window, now that the caller has caught up."""
        if (
            self._deferred is not None
            and self._ahead is not None
            and self._received_here - self._taken < self._ahead
        ):
            self._link.call(self._open_deferred)

    def _open_deferred(self) -> None:
        deferred, self._deferred = self._deferred, None
        if deferred is not None and not self._closing:
            deferred()

    def _follow(self, window: Consumer) -> None:
        """Open the next window after this one."""
        connection = self._connection

        def next_window() -> None:
            if connection is not None and window in self._consumers and not self._closing:
                self._consume(connection)

        window.take_no_more()
        window.cancel(next_window)

    def _consume(self, connection: Wire) -> None:
        self._room = min(WINDOW, self._left)
        self._consumer = Consumer(
            connection,
            self._queue,
            self._room if self._prefetch is None else self._prefetch,
            received=lambda consumer, received: self._received(Held(consumer, received)),
            refused=self._refused,
            most=None if self._prefetch is None else self._most,
            priority=self._priority,
            held_back=self._held_back,
        )
        self._consumers[self._consumer] = None

    def _fill_window(self, window: Consumer) -> None:
        """Open the next window once this one has its share and the broker sends it no more.

        Not before: when a consumer is cancelled, a quorum queue puts the messages in transit to it
        behind all others. Source: measured on 4.3.6.
        """
        self._room -= 1
        if self._room > 0 or window.credit >= self._left:
            return
        window.take_no_more()
        if window.credit:
            return
        if self._ahead is not None and self._received_here - self._taken >= self._ahead:
            self._deferred = partial(self._follow, window)
        else:
            self._follow(window)

    def _received(self, taken: Held) -> None:
        self._consumed = True
        self._received_here += 1
        if self._prefetch is None:
            self._returned_before = was_returned(taken.received)
            self._fill_window(taken.consumer)
        if self._last_life is not None and not self._last_life.may_return(
            taken.received,
            lambda: self.settled(taken),
            (taken.consumer, taken.received.delivery_tag),
        ):
            return
        self._bytes_received += len(taken.received.body)
        self._inbox.put(taken)
        if self._bytes_received - self._bytes_taken > _MOST_BYTES_WAITING and not self._draining:
            # Pausing reads makes the broker wait through TCP flow control, so memory stays constant
            # if the caller is slow.
            time.sleep(_BREATH)

    def _refused(self, error: RedriveError) -> None:
        if self._closing:
            return
        if self._consumed and self._comes_back:
            self._link.reconnect(str(error).partition("\n")[0])
        else:
            self.gave_up(error)

    def disconnected(self, error: RedriveError) -> None:
        """Handle a lost connection; unsettled messages are in the queue again."""
        self._connected = False
        self._consumer = None
        self._consumers.clear()
        if self._last_life is not None:
            self._last_life.lost()
        self._outbox.disconnected(error)
        if self._comes_back and not self._closing:
            self._losses += 1
            self._inbox.put(None)
        else:
            self.gave_up(error)
            self._link.close()

    def gave_up(self, error: RedriveError) -> None:
        """Note that the link has failed for good."""
        self._failure = error
        self._inbox.put(None)

    def ended(self) -> None:
        """Note that the I/O thread has ended."""
        self._connected = False
        self._ended.set()

    def _begin_to_leave(self, left: Callable[[list[Consumer]], None], limit: int | None) -> None:
        """Stop all deliveries and call `left` once no more can come. Otherwise messages returned by
        one consumer would be sent to another."""
        self._closing = True
        self._draining = True
        consumers = list(self._consumers)
        delivering = set(consumers)

        def cancelled(consumer: Consumer) -> None:
            delivering.discard(consumer)
            if delivering:
                return
            if limit is None or self._last_life is None:
                left(consumers)
            else:
                self._last_life.replace_beyond(limit, lambda: left(consumers))

        for consumer in consumers:
            consumer.cancel(partial(cancelled, consumer))
        if not consumers:
            left([])
