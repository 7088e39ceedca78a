"""One run of a requeue: send failed messages back."""

import logging
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from redrive.errors import BrokerUnavailable, RedriveError
from redrive.failures.message.dialects.known import renewed
from redrive.failures.message.direction import Direction
from redrive.failures.message.edit import with_edited_body
from redrive.failures.message.failed_message import FailedMessage
from redrive.failures.message.route import Route, WayBack
from redrive.failures.queue.failed_source import FailedSource
from redrive.failures.store.removals import Removals, mark_of
from redrive.pubsub import logs, telemetry
from redrive.pubsub.blocking.connection import Connector
from redrive.pubsub.confirms import Outgoing
from redrive.pubsub.in_flight import ThreadInFlight
from redrive.pubsub.reports import FailedRequeue, RequeueProgress, RequeueReport
from redrive.pubsub.transfer.delivery_limit import ReturnLimit
from redrive.pubsub.transfer.pace import DepthProbe, Pace
from redrive.pubsub.transfer.queue_reader import AHEAD, Held, QueueReader
from redrive.pubsub.transfer.rate import RateLimit
from redrive.topology import rewrite
from redrive.topology.digest import digest_of
from redrive.topology.fast_requeue import BulkRequeue, Ordinary

logger = logging.getLogger("redrive")

Choose = Callable[[Sequence[FailedMessage]], Sequence[bool]]
Edit = Callable[[FailedMessage], bytes]
Progress = Callable[[RequeueProgress], None]


class Cancel(Protocol):
    """An event that somebody can set."""

    def is_set(self) -> bool:
        """Check whether the event is set."""


class Ledger(Protocol):
    """Records which messages are in flight, by their digests.

    After a run was killed, it tells which messages may exist twice.
    """

    def sending(self, digests: Sequence[str]) -> None:
        """Record messages that are about to be sent.

        Called on the thread of `run`; none of them is sent before it returns.
        """

    def settled(self, digests: Sequence[str]) -> None:
        """Record that messages are no longer in flight: confirmed in their queue, and acked."""


@dataclass(frozen=True, slots=True)
class RequeueOptions:
    """Options of a requeue.

    Args:
        direction: where to send the messages.
        rate: messages a second at most; None for no limit.
        edit: returns a new body for a message.
        ledger: records the messages in flight.
        most_redrives: number of earlier requeues from which a message stays; None for no limit.
        discards: whether to delete messages instead of sending them.
        pace_by_depth: send only while the destination queue has fewer ready messages than this;
            None for no limit.
    """

    direction: Direction = field(default_factory=Direction)
    rate: float | None = None
    edit: Edit | None = None
    ledger: Ledger | None = None
    most_redrives: int | None = None
    discards: bool = False
    pace_by_depth: int | None = None


class _Judged(NamedTuple):
    """A message taken from the queue, and the decision about it.

    `message` is None if nobody had to parse it, and `way` is None if it stays, as its `route` says.
    """

    taken: Held
    ordinary: Ordinary | None
    message: FailedMessage | None
    chosen: bool
    way: WayBack | None
    route: Route | None


_PREFETCH = 2000
_PROGRESS_EVERY = 0.1
_JUDGED_TOGETHER = 1000
_NOTED_TOGETHER = 500
"""Messages recorded in a ledger at a time: each time may cost a round trip to the broker."""


class Requeue:
    """Requeues those of the first `total` messages that `choose` selects.

    Call `run` once; it works on the caller's thread. Messages that are in `confirmed` are only
    acked, wherever they are found.
    """

    def __init__(
        self,
        connector: Connector,
        source: FailedSource,
        *,
        total: int,
        choose: Choose | None,
        manner: RequeueOptions,
        limit: int | None,
        job: str,
        on_progress: Progress | None,
        cancel: Cancel,
        timeout: float,
        empty: Callable[[], bool],
        returns: ReturnLimit | None = None,
        confirmed: frozenset[str] = frozenset(),
        removals: Removals | None = None,
    ) -> None:
        self._connector = connector
        self._source = source
        self._total = total
        self._choose = choose
        self._manner = manner
        # Messages of a subscription's failed queue all go the same way, and need not be parsed.
        to = manner.direction.to or (None if manner.direction.via else source.main)
        self._only_way = None if to is None else WayBack("", to)
        self._most_redrives = float("inf") if manner.most_redrives is None else manner.most_redrives
        self._rate_limit = RateLimit(manner.rate)
        self._probe = DepthProbe(connector)
        self._pace = Pace(manner.pace_by_depth, self._probe.depth, timeout)
        if manner.rate is None and manner.ledger is not None:
            self._rate_limit.batch = _NOTED_TOGETHER
        self._judged: deque[_Judged] = deque()
        self._limit = total if limit is None else min(limit, total)
        # Messages that are not chosen are held until the end, so that they keep their place.
        self._most = self._limit if choose is None else total
        self._prefetch = min(_PREFETCH, self._limit) if choose is None else None
        self._on_progress = on_progress
        self._cancel = cancel
        self._timeout = timeout
        self._empty = empty
        self._returns = returns
        self._report = RequeueReport(job)
        self._logs = logger.isEnabledFor(logging.DEBUG)
        self._in_flight = ThreadInFlight()
        self._lock = self._in_flight.lock
        self._told_at = 0.0
        self._looked_at = 0
        self._bulk: BulkRequeue | None = None
        self._bulk_frame_max = 0
        self._removals = removals if removals is not None and removals.are_noted else None
        self._going: list[int] = []
        self._batch: list[tuple[Held, Outgoing]] = []
        self._noted: list[str] = []
        self._under_way: set[str] = set()
        self._confirmed: set[str] = set()
        self._confirmed_before: set[str] = set(confirmed)
        self.acked_again = 0
        """Number of messages that were confirmed before, and had to be acked once more."""
        self._acked: list[str] = []

    @property
    def confirmed(self) -> frozenset[str]:
        """The digests of messages confirmed in their main queue, for messages with an id by
        redrive."""
        return frozenset(self._confirmed_before | self._confirmed)

    def run(self) -> RequeueReport:
        """Send the messages, and return when each of them is settled."""
        if self._limit <= 0:
            return self._report
        with closing(self._probe):
            if self._only_way is not None:
                # Report an unreadable depth before any message is taken.
                self._pace.has_room(self._only_way.routing_key, 0)
            return self._run()

    def _run(self) -> RequeueReport:
        with QueueReader(
            self._connector,
            self._source.queue,
            prefetch=self._prefetch,
            most=self._most,
            expected=self._most,
            whole=None if self._choose is None else self._total,
            ahead=AHEAD if self._limit < self._total else None,
            comes_back=True,
            lost=self._on_lost,
            limit=self._returns,
        ) as taking:
            again = True
            while again:
                try:
                    self._take(taking)
                finally:
                    self._send_batch(taking)
                    self._wait_for_the_rest(taking)
                # Messages in flight when the connection was lost are in the queue again, even if
                # all had been read.
                again = taking.catch_up() and not self._is_over()
            # Whoever cancels it wants it to end at once.
            taking.keeps_order = not self._is_over()
        self._report.cancelled = self._cancel.is_set()
        if self._can_hold_no_more():
            self._report.not_tried = self._limit - self._looked_at
        self._tell(always=True)
        return self._report

    def settle(self) -> None:
        """Tell the ledger which messages are settled, once it is certain that no ack was lost.

        Until then, any message may exist twice.
        """
        if self._manner.ledger is not None and self._acked:
            self._manner.ledger.settled(self._acked)

    def _take(self, taking: QueueReader) -> None:
        while (left := self._most - self._looked_at) > 0 and not self._is_over():
            room = self._room()
            if room <= 0:
                self._send_batch(taking)
                taking.drain()
                open_now = self._in_flight.count
                if not open_now:
                    return
                self._in_flight.wait_until_below(open_now, self._timeout, _PROGRESS_EVERY)
                continue
            pause = self._rate_limit.pause()
            if pause:
                self._send_batch(taking)
                time.sleep(min(pause, _PROGRESS_EVERY))
                continue
            some = self._next(taking, min(left, room, self._rate_limit.batch - len(self._batch)))
            if not some and self._judged:
                self._wait_for_room(taking)
                continue
            if not some:
                return
            self._look_at(taking, some)
            if len(self._batch) >= self._rate_limit.batch or not (self._judged or taking.has_more):
                self._send_batch(taking)

    def _next(self, taking: QueueReader, most: int) -> list[_Judged]:
        if not self._judged:
            # Judge messages that have arrived together: a query costs the database as much for a
            # thousand as for one.
            together = most if self._choose is None else _JUDGED_TOGETHER
            some = taking.some(together, self._timeout, empty=self._empty, stop=self._is_over)
            self._judged.extend(self._judge(taking, some))
        # Ask for the depth of all destinations before sending to any: a permission may be missing.
        self._see_depths()
        next_ones: list[_Judged] = []
        while self._judged and len(next_ones) < most and self._fits(self._judged[0], next_ones):
            next_ones.append(self._judged.popleft())
        return next_ones

    def _see_depths(self) -> None:
        if self._manner.pace_by_depth is not None and self._only_way is None:
            for queue in {one.way.routing_key for one in self._judged if one.chosen and one.way}:
                self._pace.has_room(queue, self._in_flight.count)

    def _fits(self, judged: _Judged, before: Sequence[_Judged]) -> bool:
        """Check whether a message's destination has room, and reserve a place in it."""
        if self._manner.pace_by_depth is None or not judged.chosen or judged.way is None:
            return True
        queue = judged.way.routing_key
        if not self._pace.has_room(queue, self._in_flight.count + len(before)):
            return False
        self._pace.sent(queue)
        return True

    def _wait_for_room(self, taking: QueueReader) -> None:
        """Wait a moment for the consumers of the next message's destination."""
        self._send_batch(taking)
        # The connection may have been lost during a long wait, and taken messages with it.
        if not taking.catch_up():
            time.sleep(_PROGRESS_EVERY)

    def _judge(self, taking: QueueReader, some: list[Held]) -> list[_Judged]:
        bulk = self._bulk_on(taking)
        is_bulk = self._manner.edit is None and self._only_way and self._source.main
        ordinary = [bulk.requeue(taken.received.properties) if is_bulk else None for taken in some]
        messages = [
            self._source.message_of(taken.received)
            if one is None or self._choose is not None
            else None
            for taken, one in zip(some, ordinary, strict=True)
        ]
        looked_at = [message for message in messages if message is not None]
        chosen = [True] * len(some) if self._choose is None or not some else self._choose(looked_at)
        # An ordinary message is not needed decoded any more, and thousands of them wait.
        left = [
            message if one is None else None
            for message, one in zip(messages, ordinary, strict=True)
        ]
        return [
            _Judged(*one, *self._way_of(one[2]))
            for one in zip(some, ordinary, left, chosen, strict=True)
        ]

    def _way_of(self, message: FailedMessage | None) -> tuple[WayBack | None, Route | None]:
        """Return where a message is sent, None if it stays; and its route, if it was needed."""
        if message is None:
            return self._only_way, None
        route = self._manner.direction.route_of(message)
        return (route.way if self._manner.direction.goes(route) else None), route

    def _is_over(self) -> bool:
        return (
            self._cancel.is_set()
            or self._in_flight.is_stalled(self._timeout)
            or self._can_hold_no_more()
        )

    def _can_hold_no_more(self) -> bool:
        """Check whether the messages that stay fill the prefetch: then no more are delivered."""
        return (
            self._prefetch is not None
            and len(self._report.failed) + self._report.skipped >= self._prefetch
        )

    def _room(self) -> int:
        """Return how many more messages may be sent."""
        with self._lock:  # a confirmed message leaves one count before it enters the other
            return self._limit - self._report.requeued - self._in_flight.count

    def _look_at(self, taking: QueueReader, some: Sequence[_Judged]) -> None:
        before = len(self._batch)
        try:
            for judged in some:
                self._look_at_one(taking, judged)
        finally:
            sent = len(self._batch) - before
            self._rate_limit.sent(sent)
            self._in_flight.add(sent)

    def _look_at_one(self, taking: QueueReader, judged: _Judged) -> None:
        taken, ordinary, message, chosen, way, route = judged
        if ordinary is not None:
            own_id, job, redrives = ordinary.failure_id, ordinary.job, ordinary.redrives
        else:
            assert message is not None
            own_id, job, redrives = message.own_failure_id, message.job, message.redrive_count
        # Identify it by its digest: its id is a header that another message may have, too.
        received = taken.received
        key = (
            None
            if own_id is None
            else digest_of(received.routing_key, received.properties, received.body)
        )
        if key is not None and key in self._confirmed_before:
            # It is confirmed in its main queue, and counted: only its ack was lost with the
            # connection.
            taking.ack(taken)
            self.acked_again += 1
            return
        self._looked_at += 1
        if (
            not chosen
            or redrives >= self._most_redrives
            or job == self._report.job
            or self._is_twice(key)
        ):
            self._report.skipped += 1
            self._report.too_often += chosen and redrives >= self._most_redrives
        elif self._manner.discards:
            self._goes(own_id, taken)
            self._discard(taking, taken, key)
        elif way is None:
            assert route is not None
            self._report.stays(route.verdict)
        else:
            self._batch.append((taken, self._outgoing(taking, judged, own_id, key)))

    def _is_twice(self, key: str | None) -> bool:
        return key is not None and (key in self._under_way or key in self._confirmed)

    def _bulk_on(self, taking: QueueReader) -> BulkRequeue:
        if self._bulk is None or self._bulk_frame_max != taking.frame_max:
            self._bulk, self._bulk_frame_max = (
                BulkRequeue(self._report.job, taking.frame_max),
                taking.frame_max,
            )
        return self._bulk

    def _content(self, taking: QueueReader, judged: _Judged) -> tuple[bytes, bytes]:
        """Return the properties and the body to send."""
        if judged.ordinary is not None:
            return judged.ordinary.properties, judged.taken.received.body
        assert judged.message is not None
        delivery = judged.message.delivery
        if self._manner.edit is not None:
            delivery = with_edited_body(delivery, self._manner.edit(judged.message))
        delivery = renewed(delivery)
        publish = rewrite.requeue(delivery, job=self._report.job, frame_max=taking.frame_max)
        return publish.properties.encode(), publish.body

    def _discard(self, taking: QueueReader, taken: Held, key: str | None) -> None:
        taking.ack(taken)
        if key is not None:
            self._confirmed.add(key)
        self._report.requeued += 1

    def _outgoing(
        self, taking: QueueReader, judged: _Judged, own_id: str | None, key: str | None
    ) -> Outgoing:
        taken, received = judged.taken, judged.taken.received
        assert judged.way is not None
        properties, body = self._content(taking, judged)
        if key is not None:
            self._under_way.add(key)
        noted: str | None = None
        if self._manner.ledger is not None:
            noted = key or digest_of(received.routing_key, received.properties, received.body)
            self._noted.append(noted)
        mark = self._goes(own_id, taken)

        def settled(outgoing: Outgoing, error: RedriveError | None) -> None:
            if error is not None and mark is not None and self._removals is not None:
                self._removals.stays(mark)
            self._settled(taking, taken, key, noted, outgoing, error)

        return Outgoing(*judged.way, properties, body, own_id or noted or "", settled)

    def _goes(self, own_id: str | None, taken: Held) -> int | None:
        """Queue a record that a message is about to go; return its mark."""
        if self._removals is None:
            return None
        mark = mark_of(own_id, taken.received.routing_key, taken.received.body)
        self._going.append(mark)
        return mark

    def _note_removals(self) -> None:
        if self._removals is not None:
            self._removals.flush()
            going, self._going = self._going, []
            self._removals.go(going)

    def _send_batch(self, taking: QueueReader) -> None:
        self._note_removals()
        if self._batch:
            if self._manner.ledger is not None:
                self._manner.ledger.sending(self._noted)
                self._noted = []
            taking.publish(self._batch)
            self._batch = []
        self._tell()

    def _settled(
        self,
        taking: QueueReader,
        taken: Held,
        key: str | None,
        noted: str | None,
        outgoing: Outgoing,
        error: RedriveError | None,
    ) -> None:
        """Handle a message that was confirmed or refused, or in flight when the connection was
        lost.

        Called on the I/O thread.
        """
        with self._lock:
            if outgoing.in_doubt:
                self._report.doubt(outgoing.message_id)
            if key is not None:
                self._under_way.discard(key)
            if noted is not None and error is None:
                self._acked.append(noted)
            if error is None:
                self._report.requeued += 1
                if key is not None:
                    self._confirmed.add(key)
                taking.settled(taken)
                if self._logs or telemetry.active is not None:
                    self._tell_of(taken)
            elif taking.is_current(taken):
                message = self._source.message_of(taken.received)
                self._report.failed.append(
                    FailedRequeue(message.failure_id, message.message_id, error)
                )
            self._in_flight.settle()

    def _tell_of(self, taken: Held) -> None:
        """Log and trace that a message is back in its main queue."""
        message = self._source.message_of(taken.received)
        (way, _), delivery = self._way_of(message), message.delivery
        if telemetry.active is not None:
            telemetry.active.redriven(message.queue, delivery)
        if self._logs:
            logger.debug(
                "message %s was sent to %s",
                delivery.properties.message_id,
                way,
                extra={logs.FIELDS: logs.requeued(message.queue, delivery, self._report.job)},
            )

    def _on_lost(self) -> None:
        """Reset the state after a reconnect: unsettled messages are delivered again, the oldest
        first."""
        with self._lock:
            # Keep only confirmed messages: those in flight are sent again.
            self._confirmed_before |= self._confirmed
            self._confirmed.clear()
            self._under_way.clear()
            self._judged.clear()
            self._looked_at = self._report.requeued
            self._report.skipped = self._report.too_often = 0
            self._report.no_way_back = self._report.contradicted = self._report.unchecked = 0
            self._report.failed.clear()

    def _wait_for_the_rest(self, taking: QueueReader) -> None:
        taking.drain()
        while not self._in_flight.wait_until_below(1, self._timeout, _PROGRESS_EVERY):
            self._tell()
            if self._in_flight.is_stalled(self._timeout):
                raise self._stalled(taking)

    def _stalled(self, taking: QueueReader) -> BrokerUnavailable:
        blocked = f"the broker takes no messages now ({taking.blocked})"
        with self._lock:
            return BrokerUnavailable(
                self._connector.url.address,
                f"{blocked if taking.blocked else 'no confirm came'} within {self._timeout:g} s; "
                f"{self._report.requeued} messages were requeued, {self._in_flight.count} may "
                "have been",
                "Messages that were not confirmed are still in the failed queue: run it again when "
                "the broker has recovered.",
            )

    def _tell(self, *, always: bool = False) -> None:
        now = time.monotonic()
        if self._on_progress is not None and (always or now - self._told_at >= _PROGRESS_EVERY):
            self._told_at = now
            self._on_progress(RequeueProgress(self._total, self._looked_at, self._report.requeued))
