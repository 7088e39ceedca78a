"""Follow failures on a broker, and outcomes of requeued messages, as they happen: through copies,
without touching any failed queue.

Copies come from the history stream of the family if there is one, otherwise through a tap, a queue
of the feed's own. Streams keep no nested tables, so copies from a history lack `x-death`. Source:
measured on RabbitMQ 3.10.8, 4.0.5 and 4.3.6.
"""

import contextlib
import threading
import uuid
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

from redrive.amqp.frames import ChannelEvents, Received, Returned, ack_frame
from redrive.amqp.properties import Properties
from redrive.errors import BrokerUnavailable, ConfigurationError, PermissionDenied, RedriveError
from redrive.failures.message.failed_message import FailedMessage
from redrive.failures.queue.failed_source import FailedSource
from redrive.pubsub import broker_errors
from redrive.pubsub.blocking.connection import Connector, Link
from redrive.pubsub.blocking.declarer import Declarer, declaring
from redrive.pubsub.wire_protocol import Channel, Wire
from redrive.topology import history, outcome_events
from redrive.topology.model import Queue
from redrive.topology.names import MAX_QUEUE_NAME, ExchangeFamily
from redrive.topology.outcome_events import Outcomes, OutcomeTotals

_PREFETCH = 2000
_ACKED_TOGETHER = 100
_MOST_WAITING = 20_000
_MOST_WAITING_BYTES = 64 * 1024**2
_MOST_JOBS = 200
_FOR_EVER = timedelta(days=36500)
_AGAIN_AFTER = 30.0
"""Seconds until the next attempt to follow, if this user may not declare a tap or the family is not
declared."""
_LAST = "next"
_OFFSET = "x-stream-offset"


class Copy(NamedTuple):
    """A copy of a failure.

    Args:
        message: the message, as far as the copy contains it.
        at: when it arrived; if it was read late from the history, when it failed.
    """

    message: FailedMessage
    at: datetime


@dataclass(frozen=True, slots=True)
class FeedState:
    """The state of a feed.

    Args:
        source: where its copies come from: the name of a history, `a tap`, or empty.
        since: since when it has followed without a gap; None while it does not.
        away_since: since when the broker has been unreachable; None while it is reachable.
        problem: why it does not follow; empty while it does.
        missed: how many failures were dropped because it could not keep up.
    """

    source: str = ""
    since: datetime | None = None
    away_since: datetime | None = None
    problem: str = ""
    missed: int = 0

    @property
    def is_following(self) -> bool:
        """Whether new failures are seen."""
        return self.since is not None and self.away_since is None


class FailureFeed:
    """A follower of a family's failures and outcomes, on its own connection and thread, which
    reconnects to the broker when necessary."""

    def __init__(
        self,
        connector: Connector,
        exchanges: ExchangeFamily,
        *,
        offset: int | None = None,
    ) -> None:
        self._connector = connector
        self._exchanges = exchanges
        self._tap = history.tap_queue(str(uuid.uuid4()))
        self._history = ""
        self._may_read = True
        self._offset = offset
        self._lock = threading.Lock()
        self._waiting: list[Copy] = []
        self._bytes = 0
        self._outcomes: dict[str, OutcomeTotals] = {}
        self._tapped = False
        self._wanted: set[str] = set()
        self._bound: set[str] | None = None
        """The queues that it follows if the broker does not let it follow all."""
        self._state = FeedState()
        self._link = Link(connector, self, prepare=self._prepare, patience=_FOR_EVER)

    @property
    def state(self) -> FeedState:
        """The feed's state; safe to read from any thread."""
        return self._state

    def start(self) -> None:
        """Start following."""
        self._link.start()

    def close(self) -> None:
        """Stop following.

        Its queue is left to expire instead of being deleted, because a dead-lettering quorum queue
        keeps waiting for every queue that a message was routed to.
        """
        self._link.close()
        with contextlib.suppress(RedriveError), declaring(self._connector) as declarer:
            keys = self._bound or {history.ALL}
            for binding in (
                history.outcomes_into(self._tap, self._exchanges),
                *(history.failures_into(self._tap, self._exchanges, key) for key in keys),
            ):
                with contextlib.suppress(RedriveError):
                    declarer.unbind(binding)

    def take(self) -> tuple[list[Copy], int | None]:
        """Return the copies since the last call, and the history offset behind them."""
        with self._lock:
            taken, self._waiting, self._bytes = self._waiting, [], 0
            return taken, self._offset

    def want(self, queues: Iterable[str]) -> None:
        """Follow these main queues if the broker does not let this user follow all. Call it from
        any thread but the link's."""
        with self._lock:
            self._wanted |= set(queues)
            new = set() if self._bound is None else self._wanted - self._bound
        if new and self.state.is_following:
            with contextlib.suppress(RedriveError), declaring(self._connector) as declarer:
                self._bind_each(declarer, new)

    def _bind_each(self, declarer: Declarer, queues: Iterable[str]) -> None:
        """Bind the tap for the keys of these queues, except those that this user may not read."""
        for queue in sorted(queues):
            with contextlib.suppress(PermissionDenied):
                declarer.declare(history.failures_into(self._tap, self._exchanges, queue))
            with self._lock:
                self._bound = {*(self._bound or ()), queue}

    def outcome(self, job: str) -> OutcomeTotals | None:
        """Return the outcomes of a job reported while the feed ran; None if there were none."""
        with self._lock:
            return self._outcomes.get(job)

    # --- on a thread of the link ------------------------------------------------------------------

    def _prepare(self) -> None:
        with declaring(self._connector) as declarer:
            named = history.history_of(self._exchanges)
            try:
                is_there = declarer.exists(Queue(named))
            except PermissionDenied:
                is_there = False
            is_there = is_there and self._may_read
            if self._history and not is_there:
                self._offset, self._state = None, replace(self._state, since=None)
            self._history = named if is_there else ""
            self._tapped = self._declare_tap(declarer)

    def _declare_tap(self, declarer: Declarer) -> bool:
        """Declare the tap, which receives what the history does not have."""
        try:
            if not self._history and self._state.since and not declarer.exists(self._tap):
                # The tap expired or was deleted; failures since then were missed.
                self._state = replace(self._state, since=None)
            declarer.declare(self._tap)
            if not self._history:
                self._bind_failures(declarer)
        except BrokerUnavailable:
            raise
        except RedriveError as error:
            # The user may not declare it, or the family is not declared yet.
            if not self._history:
                self._state = replace(self._state, since=None, problem=_line(error))
            return False
        outcomes = history.outcomes_into(self._tap, self._exchanges)
        for what in (outcome_events.exchange_of(self._exchanges), outcomes):
            with contextlib.suppress(PermissionDenied, ConfigurationError):
                declarer.declare(what)  # without it, no outcomes are reported
        return True

    def _bind_failures(self, declarer: Declarer) -> None:
        """Bind the tap for the failures of all queues, or only of wanted queues if the user's topic
        permission covers only some."""
        try:
            declarer.declare(history.failures_into(self._tap, self._exchanges))
        except PermissionDenied:
            with self._lock:
                wanted, self._bound = set(self._wanted), set()
            self._bind_each(declarer, wanted)

    def connected(self, connection: Wire) -> None:
        """Start consuming."""
        self._state = replace(self._state, away_since=None)
        if self._tapped:
            self._consume(self._tap.name, connection)
        if self._history:
            if self._offset is None:
                # Failures between the last read and the end of the history are not read.
                self._state = replace(self._state, since=None)
            self._consume(
                self._history,
                connection,
                _LAST if self._offset is None else self._offset,
                self._follows,
            )
        elif self._tapped:
            self._follows()
        else:
            self._link.call_later(_AGAIN_AFTER, lambda: self._link.reconnect("follow failures"))

    def _follows(self) -> None:
        """Record that failures are seen from now on."""
        since = self._state.since or datetime.now(UTC)
        self._state = FeedState(self._history or "a tap", since, missed=self._state.missed)

    def disconnected(self, error: RedriveError) -> None:
        """Record that the broker is away. The link reconnects, and the tap survives for a
        minute."""
        away = self._state.away_since or datetime.now(UTC)
        self._state = replace(self._state, away_since=away, problem=_line(error))

    def gave_up(self, error: RedriveError) -> None:
        """Record that no more failures will be seen."""
        self._state = replace(self._state, since=None, problem=_line(error))

    def ended(self) -> None:
        """Do nothing when the I/O thread ends."""

    def _consume(
        self,
        queue: str,
        connection: Wire,
        offset: int | str | None = None,
        attached: Callable[[], None] | None = None,
    ) -> None:
        numbers: list[int] = []
        taken = Counter[str]()

        def opened(channel: Channel) -> None:
            numbers.append(channel.number)
            channel.limit(_PREFETCH)
            channel.consume(queue, offset=offset)
            if attached is not None:
                # A stream's offset is resolved after consuming was confirmed, but before the
                # channel answers anything else. Source: rabbit_stream_queue:consume.
                channel.limit(_PREFETCH, attached)

        def received(delivery: Received) -> None:
            self._received(delivery, is_history=offset is not None)
            taken[queue] += 1
            if taken[queue] % _ACKED_TOGETHER == 0 or offset is None:
                connection.write(ack_frame(numbers[0], delivery.delivery_tag, multiple=True))

        def refused(code: int, text: str) -> None:
            error = broker_errors.of_channel(code, text, f"follow {queue!r}")
            if queue == self._history and isinstance(error, PermissionDenied):
                self._may_read = False  # use a tap instead
            self._start_over(error)

        def cancelled() -> None:
            # The history was deleted, or its node was lost.
            self._start_over(broker_errors.of_cancelled_consumer(queue))

        events = ChannelEvents(received, _no_returns, _no_confirms, refused, cancelled)
        connection.open_channel(events, opened)

    def _start_over(self, error: RedriveError) -> None:
        self._state = replace(self._state, since=None, problem=_line(error))
        self._link.reconnect(_line(error))

    def _received(self, received: Received, *, is_history: bool) -> None:
        if received.exchange == outcome_events.exchange_of(self._exchanges).name:
            self._hear(Outcomes.decode(received.body))
            return
        properties = Properties.parse(received.properties)
        if is_history:
            offset = properties.headers.scalar(_OFFSET)
            if isinstance(offset, int):
                self._offset = offset + 1
        queue = received.routing_key
        if not queue or len(queue.encode("utf-8", "surrogateescape")) > MAX_QUEUE_NAME:
            return  # not the name of a queue
        now = datetime.now(UTC)
        message = FailedSource.with_key(queue).message_of(received)
        at = min(now, message.failed_at or now) if is_history else now
        size = len(received.body) + len(received.properties)
        with self._lock:
            if len(self._waiting) >= _MOST_WAITING or self._bytes + size > _MOST_WAITING_BYTES:
                self._state = replace(self._state, missed=self._state.missed + 1)
                return
            self._waiting.append(Copy(message, at))
            self._bytes += size

    def _hear(self, outcomes: Outcomes | None) -> None:
        if outcomes is None:
            return
        with self._lock:
            known = self._outcomes.pop(outcomes.job, OutcomeTotals())
            self._outcomes[outcomes.job] = known + OutcomeTotals(
                max(0, outcomes.handled - outcomes.handled_after_retry),
                outcomes.retrying + max(0, outcomes.failed - outcomes.failed_after_retry),
                outcomes.failed,
            )
            while len(self._outcomes) > _MOST_JOBS:
                self._outcomes.pop(next(iter(self._outcomes)))


def _line(error: RedriveError) -> str:
    return str(error).partition("\n")[0]


def _no_returns(_: Returned) -> None:
    """Do nothing: nothing is published on this channel."""


def _no_confirms(_: int, __: bool, ___: bool) -> None:
    """Do nothing: nothing is published on this channel."""
