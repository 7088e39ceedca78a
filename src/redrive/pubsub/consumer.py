"""Consumes a queue, and settles its messages in batches. Everything here runs on the connection's
thread."""

from collections.abc import Callable

from redrive.amqp.frames import (
    ChannelEvents,
    Received,
    Returned,
    ack_frame,
    reject_frame,
    return_all_frame,
    return_frame,
)
from redrive.errors import RedriveError
from redrive.pubsub import broker_errors
from redrive.pubsub.wire_protocol import Channel, Wire

MOST_PREFETCH = 65535
"""Largest prefetch in AMQP. A quorum queue treats "unlimited", which AMQP writes as 0, as 2,000.
Source: measured on RabbitMQ 3.10.8."""


class Consumer:
    """A channel that consumes one queue, for as long as its connection lives.

    Delivery tags belong to a channel: settling after the channel is gone does nothing, since the
    broker delivers the message again.
    """

    def __init__(
        self,
        connection: Wire,
        queue: str,
        prefetch: int,
        *,
        received: Callable[["Consumer", Received], None],
        refused: Callable[[RedriveError], None],
        most: int | None = None,
        priority: int | None = None,
        timeout: int | None = None,
        held_back: bool = False,
        begun: Callable[[], None] | None = None,
    ) -> None:
        self._connection = connection
        self._queue = queue
        self._prefetch = prefetch
        self._most = most
        self._priority = priority
        self._timeout = timeout
        self._held_back = held_back
        self._begun = begun
        self._received = received
        self._refused = refused
        self._channel: Channel | None = None
        self._tags: list[str] = []
        self._granted = 0
        self._cancelling: list[Callable[[], None]] = []
        self._ending = False
        self._paused = False
        self.hung: int | None = None
        """Number of hanging handlers to report to the broker the next time that consuming
        starts."""
        self.down: str | None = None
        """Name of what is down, to report in the same way."""
        self._number = 0
        self._last_tag = 0
        self._settled_up_to = 0
        self._acked = 0
        self._acks: set[int] = set()
        self._settled: set[int] = set()
        events = ChannelEvents(
            self._on_delivery, _no_returns, _no_confirms, self._closed, self._cancelled_by_broker
        )
        connection.open_channel(events, self._opened)

    @property
    def alive(self) -> bool:
        """Whether its deliveries can still be settled."""
        return self._channel is not None and self._channel.is_open

    @property
    def consuming(self) -> bool:
        """Whether the broker sends it new messages."""
        return self.alive and bool(self._tags)

    @property
    def is_paused(self) -> bool:
        """Whether it is paused. It may be before its channel is open."""
        return self._paused

    @property
    def prefetch(self) -> int:
        """How many deliveries it takes at a time."""
        return self._prefetch

    @property
    def credit(self) -> int:
        """How many more messages the broker may send before another ack."""
        return self._prefetch + self._acked - self._last_tag

    def take_no_more(self) -> None:
        """Hold back acks that would let the broker send more, until the consumer is cancelled."""
        if self._most is None:
            self._most = self._prefetch + self._acked

    def ack(self, delivery_tag: int) -> None:
        """Record an ack; `flush` sends it."""
        self._acks.add(delivery_tag)

    def reject(self, delivery_tag: int) -> None:
        """Reject without requeueing, at once."""
        if self.alive:
            self._settled.add(delivery_tag)
            self._connection.write(reject_frame(self._number, delivery_tag))

    def return_one(self, delivery_tag: int) -> None:
        """Reject with requeueing, at once: the message comes again before all others.

        A quorum queue counts this as a delivery; RabbitMQ 4.3 does not count a nack. Source:
        measured on 3.10.8, 4.0.5 and 4.3.6.
        """
        if self.alive:
            self._settled.add(delivery_tag)
            self._connection.write(reject_frame(self._number, delivery_tag, requeue=True))

    def return_uncounted(self, delivery_tag: int) -> None:
        """Return a delivery to its place in the queue by a nack, at once, which RabbitMQ 4.3 does
        not count. Pause first, or the message comes again at once."""
        if self.alive:
            self._settled.add(delivery_tag)
            self._connection.write(return_frame(self._number, delivery_tag))

    def flush(self) -> None:
        """Send the recorded acks; those without a gap before them as a single frame."""
        acks = self._sendable_acks()
        if not acks or not self.alive:
            return
        self._acks -= acks
        self._acked += len(acks)
        settled = self._settled
        last = 0
        tag = self._settled_up_to + 1
        while tag in acks or tag in settled:
            if tag in acks:
                last = tag
                acks.discard(tag)
            else:
                settled.discard(tag)
            tag += 1
        self._settled_up_to = tag - 1
        frames = [ack_frame(self._number, last, multiple=True)] if last else []
        for single in sorted(acks):
            frames.append(ack_frame(self._number, single))
            settled.add(single)
        self._connection.write(b"".join(frames))

    def _sendable_acks(self) -> set[int]:
        """Return the acks that may be sent now: each lets the broker send one more message, up to
        the limit."""
        if self._most is None or self._ending:
            return set(self._acks)
        wanted = max(0, self._most - self._prefetch - self._acked)
        return set(self._acks) if len(self._acks) <= wanted else set(sorted(self._acks)[:wanted])

    def consume_anew(self, prefetch: int) -> None:
        """Make room for `prefetch` deliveries in addition to the unsettled ones."""
        self._prefetch = prefetch
        was_paused, self._paused = self._paused, False
        if self._tags or (was_paused and self._cancelling):
            self._cancel(self._begin_again)
        elif was_paused:
            self._begin_again()

    def pause(self, paused: Callable[[], None]) -> None:
        """Stop deliveries until `consume_anew`; call `paused` when no more can come."""
        self._paused = True
        if not self.alive or (not self._tags and not self._cancelling):
            paused()
        else:
            self._cancel(paused)

    def cancel(self, cancelled: Callable[[], None] = lambda: None) -> None:
        """Stop deliveries for good; call `cancelled` when no more can come."""
        self._ending = True
        if not self.alive or (not self._tags and not self._cancelling):
            cancelled()
        else:
            self._cancel(cancelled)

    def _cancel(self, cancelled: Callable[[], None]) -> None:
        self._cancelling.append(cancelled)
        if self._channel is not None:
            tags, self._tags = self._tags, []
            for tag in tags:
                # Answers come in order: the last one means that all are cancelled.
                self._channel.cancel(tag, self._cancel_ok if tag == tags[-1] else _nothing)

    def _cancel_ok(self) -> None:
        waiting, self._cancelling = self._cancelling, []
        for cancelled in waiting:
            cancelled()

    def finish(self, done: Callable[[], None]) -> None:
        """End deliveries, send every ack, and call `done` once the broker's queue has them.

        The order matters. While a quorum queue is busy, a channel holds acks back, and loses them
        if it is closed then. Cancelling waits for the queue; acks sent after it are not held back.
        Source: rabbit_fifo_client of RabbitMQ 3.10 (`unsent_commands`); measured: acks lost by
        closing at once.
        """

        def cancelled() -> None:
            self.flush()
            self.when_answered(done)

        self.flush()
        self.cancel(cancelled)

    def settle_and_hold(self, done: Callable[[], None]) -> None:
        """Send every ack and call `done` once the broker's queue has them, like `finish`, but keep
        holding the rest.

        It waits for the queue by starting another consumer, since cancelling would lose the order
        of the messages held.
        """
        self.flush()
        if self._channel is None or not self.alive:
            done()
            return
        self._channel.limit(1)
        self._channel.consume(self._queue, lambda: self.when_answered(done))

    def when_answered(self, done: Callable[[], None]) -> None:
        """Call `done` once the broker has processed everything sent on this channel, which it does
        in order; deliveries that it sent before come before that."""
        if self._channel is None or not self.alive:
            done()
        else:
            self._channel.limit(1, done)

    def return_in_order(self, done: Callable[[int | None], None]) -> None:
        """End deliveries and close the channel, which returns unsettled messages in order.

        A quorum queue keeps the order when the channel of a cancelled consumer ends. Source:
        measured on 3.10.8, 4.0.5 and 4.3.6, with 200 to 50,000 messages; the order is lost if they
        are nacked (3.10) or the connection is dropped (4.3).
        """

        def taken_in() -> None:
            channel, self._channel = self._channel, None
            if channel is None or not channel.is_open:
                done(None)
            else:
                if self._held_back:
                    self._connection.write(return_all_frame(self._number))
                channel.close(lambda: done(self._last_tag - self._acked))

        self.finish(taken_in)

    def return_all(self) -> None:
        """Return everything unsettled to its place in the queue. Cancel first, or it comes again at
        once."""
        if self.alive:
            self._connection.write(return_all_frame(self._number))

    def return_all_but(self, kept: set[int]) -> None:
        """Return every unsettled delivery except `kept` to its place in the queue, by a nack, which
        is not counted. Cancel first, or they come again at once."""
        if not self.alive:
            return
        self.flush()
        tags = range(self._settled_up_to + 1, self._last_tag + 1)
        self._connection.write(
            b"".join(
                return_frame(self._number, tag)
                for tag in tags
                if tag not in self._settled and tag not in self._acks and tag not in kept
            )
        )

    def _opened(self, channel: Channel) -> None:
        self._channel = channel
        self._number = channel.number
        self._consume()

    def _consume(self) -> None:
        if self._channel is None or not self.alive or self._ending or self._paused:
            return
        grant = self._prefetch or MOST_PREFETCH
        self._granted += grant
        self._channel.limit(grant)
        self._tags.append(
            self._channel.consume(
                self._queue,
                self._begun,
                priority=self._priority,
                timeout=self._timeout,
                hung=self.hung,
                down=self.down,
            )
        )

    def _begin_again(self) -> None:
        if not self._tags:
            self._consume()

    def _on_delivery(self, received: Received) -> None:
        self._last_tag = received.delivery_tag
        self._received(self, received)
        if (
            not self._prefetch
            and self._last_tag - self._acked >= self._granted - MOST_PREFETCH // 2
        ):
            # Another consumer on the same channel makes more room, well before there is none left:
            # a busy quorum queue processes acks late, and delivers almost nothing meanwhile.
            # Source: measured on 4.3.6, ten messages a second.
            self._consume()

    def _cancelled_by_broker(self) -> None:
        self._tags.clear()
        self._refused(broker_errors.of_cancelled_consumer(self._queue))

    def _closed(self, code: int, text: str) -> None:
        self._channel = None
        self._refused(broker_errors.of_channel(code, text, f"consume queue {self._queue!r}"))


def _nothing() -> None:
    """Ignore that one of several consumers is cancelled."""


def _no_returns(_: Returned) -> None:
    """Ignore returns: nothing is published on a consuming channel."""


def _no_confirms(_: int, __: bool, ___: bool) -> None:
    """Ignore confirms: nothing is published on a consuming channel."""
