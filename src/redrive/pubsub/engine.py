"""A running subscriber: receives deliveries, has handlers run, and carries out verdicts.

Shared by both shells, which pass in what runs handlers and what keeps the connection.
"""

import contextlib
import logging
import os
import sys
import threading
import time
import traceback
import uuid
from collections.abc import Callable, Sequence
from datetime import timedelta
from math import inf
from typing import NoReturn, assert_never

from redrive.amqp.frames import Received
from redrive.amqp.properties import Malformed, Properties
from redrive.errors import (
    ConfigurationError,
    GiveUp,
    HandlerTimeout,
    InvalidMessage,
    PermissionDenied,
    PublishRefused,
    RedriveError,
    Retry,
    Unroutable,
)
from redrive.pubsub import late_attempts, logs, order_counts, stops, telemetry
from redrive.pubsub.body import beginning_of
from redrive.pubsub.breaker import Breaker
from redrive.pubsub.confirms import Outgoing
from redrive.pubsub.consumer import Consumer
from redrive.pubsub.consumer_count import ConsumerCount
from redrive.pubsub.control_follower import ControlFollower, Controls
from redrive.pubsub.handler import check_result
from redrive.pubsub.isolation import Isolation, of_this_process
from redrive.pubsub.lanes import BlockedKey, Key, Lanes
from redrive.pubsub.lifecycle import Link, reconnect_delay
from redrive.pubsub.mailbox import Mailbox
from redrive.pubsub.message import Message, current_handling
from redrive.pubsub.order_counts import OrderCounts
from redrive.pubsub.own_publisher import Moves
from redrive.pubsub.pacer import Pacer
from redrive.pubsub.parked_log import ParkedLog
from redrive.pubsub.redeclaration import Redeclarer
from redrive.pubsub.stops import Stop
from redrive.pubsub.verdict import Decider, OutageSeen, Verdict
from redrive.pubsub.wire_protocol import Wire
from redrive.pubsub.work import (
    ConsumeOptions,
    LossCounter,
    Workers,
    WorkItem,
    consumer_timeout,
)
from redrive.redaction import in_one_line, redact
from redrive.topology import headers
from redrive.topology.control import Control
from redrive.topology.decision import (
    Ack,
    AckIt,
    Discard,
    Drop,
    Handle,
    HoldThenReturn,
    MoveToFailed,
    NackIt,
    PublishThenAck,
    RejectIt,
    RetryByBroker,
    RetryByReject,
    RetryInPlace,
    ReturnIt,
    Settlement,
    Step,
    times_taken_back,
)
from redrive.topology.headers import Delivery
from redrive.topology.model import Subscription
from redrive.topology.names import parked_stream
from redrive.topology.parked_keys import ParkedKeys
from redrive.topology.rewrite import ErrorReport, Publish


def end_child(error: BaseException | None) -> NoReturn:
    """End this forked process as Python would after this exception, or none, so that the copy
    neither settles the message nor takes others.

    Exit handlers of the service do not run, as in a child of `multiprocessing`.
    """
    code = 0
    if isinstance(error, SystemExit):
        code = error.code if isinstance(error.code, int) else 0 if error.code is None else 1
        if not isinstance(error.code, int | None):
            print(error.code, file=sys.stderr)
    elif error is not None:
        traceback.print_exception(error)
        code = 1
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:
            stream.flush()
    os._exit(code & 0xFF)


logger = logging.getLogger("redrive")

_TRIES_ON_THE_LADDER = 5
"""How often a message is offered to a ladder that should exist; takes about ten seconds."""

_LONGEST_WAIT_FOR_OTHERS = 60
"""Seconds that other handlers have to end before a suspect message runs beside them."""

_HUNG_TOLD_WITHIN = 1.0
"""Seconds to wait before reporting the number of hanging handlers to the broker, since each report
means consuming anew."""

_PAUSED = "paused"
_ALL_BACK_WITHIN = 1.0
"""Seconds without a delivery after which whatever a consumer before this one held is back."""

_OVERDUE_CHECKS = 10
_LONGEST_CHECK = 1.0


class Engine:
    """One run of a subscriber, from start to end; `failure` says why it could not run."""

    def __init__(
        self,
        subscription: Subscription,
        options: ConsumeOptions,
        *,
        declare: Callable[[int, bool], object] | None,
        dropped: LossCounter,
        ended: Callable[[], object],
        note: Callable[[Delivery, Settlement], None],
        isolation: Isolation = of_this_process,
    ) -> None:
        self._subscription = subscription
        self._way_back = subscription.way_back
        self._options = options
        self._declare = declare
        self._dropped = dropped
        self._on_ended = ended
        self._note = note
        self._consumer: Consumer | None = None
        self._decider: Decider | None = None
        self._open: set[WorkItem] = set()
        self._unmoved: set[WorkItem] = set()
        self._narrow = True
        self._isolation = isolation
        self._paused_for = 0
        """The turn for which it is paused; 0 if it is not."""
        self._resumed_after = 0
        self._is_quiet = self._told = False
        """Whether no more deliveries can come, and whether the coordinator knows that nothing is in
        hand."""
        self._held: list[WorkItem] = []
        """Messages that arrived during a pause or are to be handled alone."""
        self._alone: WorkItem | None = None
        self._lanes: Lanes[WorkItem] | None = None
        """Messages that wait for their turn; None unless the subscription is ordered."""
        self._parked: ParkedKeys | None = None
        """The keys whose messages are set aside; None unless the subscription parks them."""
        self._reads_log = False
        self._stands_still = False
        self._process = os.getpid()
        self._counting = threading.Lock()
        self.late = 0
        """Handlers that are still running after their timeout."""
        self.is_stuck = False
        """Whether `late` has reached its limit, so that no more messages are taken."""
        self._hung_update_due = False
        self._is_shut = False
        """Whether nothing is to be taken now: see `_set_gate`."""
        self._is_resting = False
        """Whether it takes no message until the next turn, since turns are rare."""
        self._fleet_rate: float | None = None
        """Messages per second of all workers together, as somebody has asked for."""
        self._count: ConsumerCount | None = None
        self._controls: Controls | None = None
        self._owns_controls = False
        self._wire: Wire | None = None
        self._follower: ControlFollower | None = None
        self._waits_for_control = False
        """Whether it is not known yet whether somebody has paused it."""
        self.paused: Control | None = None
        """Who has paused it, and why; None if nobody has."""
        self._breaker = Breaker(subscription.queue, options.outages, options.concurrency)
        self._ever_consumed = False
        self._stop_requested = False
        self._stopping = False
        self._quiet = False
        self._leaving = self._aborted = False
        self._watching = False
        self._declared = False
        self.failure: RedriveError | None = None

    def use(
        self,
        link: Link,
        workers: Workers,
        moves: Moves,
        *,
        controls: Controls | None = None,
        owns_controls: bool = False,
    ) -> None:
        """Set the link, which has this engine as its listener, the workers, and the publisher of
        moves; and what follows pauses, which has this engine's connection or is told by others."""
        self._link = link
        self._controls = controls
        self._owns_controls = owns_controls
        self._workers = workers
        self._moves = moves
        self._pacer = Pacer(
            workers.put, self._options.concurrency, link.call_later, self._options.clock
        )
        self._pacer.limit(self._options.rate)
        self._redeclarer = Redeclarer(self._subscription, self._declare, link)
        self._handled: list[Delivery | None] = []
        """Messages that the next flush will ack; they are measured together, which is cheaper."""
        self._mailbox: Mailbox[tuple[WorkItem, Verdict]] = Mailbox(
            link, self._carry_out, self._flush
        )

    # --- from any thread --------------------------------------------------------------------------

    @property
    def consuming(self) -> bool:
        """Whether messages would arrive now, if there were any."""
        consumer = self._consumer
        if consumer is None or self._stopping or not consumer.alive:
            return False
        return consumer.consuming or consumer.is_paused

    def start(self) -> None:
        """Connect and begin to consume."""
        self._isolation.join(self)
        if self._subscription.ordered:
            order_counts.of_this_process.add(self)
        self._link.start()

    def stop(self) -> None:
        """Stop taking messages; running handlers may finish within the grace period. From any
        thread."""
        self._stop_requested = True
        self._link.call(self._begin_to_stop)

    @property
    def down(self) -> str | None:
        """Name of what is down, so that few messages are taken, if any; None if nothing is."""
        return self._breaker.down

    def skips(self, item: WorkItem) -> bool:
        """Take an item back if `stop` was called or an outage began before its turn, and say
        whether it was. From any thread."""
        if self._stop_requested:
            self._link.call(lambda: self._leave_unsettled(item))
        elif item.turn != self._breaker.turn and self._breaker.is_too_late_for(item):
            self._link.call(lambda: self._hold(item))
        else:
            return False
        return True

    def abort(self) -> None:
        """Drop the connection at once."""
        self._aborted = True
        self._link.abort()

    def prepare(self) -> None:
        """Declare the topology before each connection. May block."""
        if self._declare is not None and not self._stopping:
            self._declare(0, self._declared)
            self._declared = True

    # --- on the connection's thread: the link -----------------------------------------------------

    def connected(self, connection: Wire) -> None:
        """Start consuming on a new connection."""
        if self._stopping:
            return
        self._follow_control(connection)
        self._decider = Decider(self._subscription, connection.version, connection.frame_max)
        # Start with one message: one that killed a worker comes before all others, and is handled
        # alone.
        self._narrow = self._options.prefetch > 1 and self._may_pause
        self._consumer = Consumer(
            connection,
            self._subscription.queue,
            self._room,
            received=self._received,
            refused=self._refused,
            begun=self.begun,
            timeout=consumer_timeout(self._subscription, self._options, connection.version),
        )
        if self._subscription.ordered:
            self._begin_lanes(connection)
        self._consumer.hung = self.late or None
        self._consumer.down = self._breaker.down
        if self._is_shut and not self._subscription.broadcast:
            self._consumer.pause(_nothing)
        if self._options.handler_timeout is not None and not self._watching:
            self._watching = True
            self._watch_overdue(self._options.handler_timeout)

    def begun(self) -> None:
        """Log, the first time, that the queue is being consumed."""
        if not self._ever_consumed and not self._subscription.broadcast:
            logger.info(
                "consuming queue %s; retry policy: %s",
                self._subscription.queue,
                self._subscription.retry,
            )
        self._ever_consumed = True

    def disconnected(self, error: RedriveError) -> None:
        """Forget the consumer of a lost connection; the broker will deliver unsettled messages
        again."""
        self._consumer = self._wire = self._count = None
        if self._controls is not None and self._owns_controls:
            self._controls.disconnected()
        self._drop_waiting()
        for item in list(self._open):
            if item.outgoing is not None:
                item.outgoing.withdrawn = True  # else it would be moved, and handled again
                item.outgoing = None
                self._can_settle(item)
        self._is_quiet = True
        self._check_quiet()
        if self._stopping:
            self._leave_when_done()

    def gave_up(self, error: RedriveError) -> None:
        """Record why there is no connection."""
        self.failure = error

    def ended(self) -> None:
        """Clean up after the link has ended for good."""
        self._isolation.leave(self)
        self._breaker.close()
        self._show_pause(None)
        order_counts.of_this_process.remove(self)
        self._workers.stop()
        self._moves.close(self._on_ended, aborted=self._aborted)

    def _refused(self, error: RedriveError) -> None:
        """Handle a consumer that the broker cancelled or whose channel it closed."""
        if self._stopping:
            if self._consumer is not None and not self._consumer.alive:
                self._no_more_deliveries()
            return
        if not self._ever_consumed:
            self.failure = error
            self._link.close()
        else:
            self._drop_waiting()
            if self._consumer is not None and self._subscription.retry_via == "broker":
                # To the broker, messages that are unsettled when a connection ends have failed.
                self._consumer.return_all_but({item.received.delivery_tag for item in self._open})
            self._link.reconnect(str(error).partition("\n")[0])

    def _received(self, consumer: Consumer, received: Received) -> None:
        if self._decider is not None and not self._stopping:
            item = WorkItem(consumer, self._decider, received)
            self._open.add(item)
            if self._lanes is not None:
                self._take_in_order(self._lanes, item)
            elif self._is_shut or self._breaker.holds:
                self._held.append(item)
            else:
                self._begin(item)

    def _begin(self, item: WorkItem) -> None:
        """Have an item handled; if it may have killed a worker, alone."""
        if not item.is_behind and self._is_suspect(item):
            self._held.append(item)
            turn = self._isolation.ask(self)
            if turn is not None:
                self._link.call_later(_LONGEST_WAIT_FOR_OTHERS, lambda: self._wait_no_longer(turn))
            return
        if self._narrow:
            self._narrow = False
            self._take_more()
        if self._breaker.is_due or self._pacer.rate is not None:
            self._hand_over(item)
            return
        item.turn = self._breaker.turn
        self._workers.put(item)

    def _hand_over(self, item: WorkItem) -> None:
        """Give an item to the workers."""
        item.turn = self._breaker.turn
        if self._breaker.is_due:
            turn, seconds = self._breaker.begin_try(item)
            self._link.call_later(seconds, lambda: self._heed_outage(self._breaker.hangs(turn)))
        if self._pacer.rate is None:
            self._workers.put(item)
        else:
            self._pacer.put(item)
            self._rest_if_rare()

    def _drop_waiting(self) -> None:
        """Leave every item unsettled that has not begun."""
        in_lanes = [] if self._lanes is None else self._lanes.drop_waiting()
        dropped = [*self._not_begun(), *self._held, *in_lanes]
        self._open.difference_update(dropped)
        for item in dropped:
            self._breaker.ended(item)
        self._held = []
        if self._alone is None or self._alone in dropped:
            self._alone = None
            self._isolation.done(self)

    def _leave_unsettled(self, item: WorkItem) -> None:
        self._open.discard(item)
        self._alone_no_more(item)
        if self._stopping:
            self._leave_when_done()

    def _watch_overdue(self, seconds: float) -> None:
        every = min(_LONGEST_CHECK, seconds / _OVERDUE_CHECKS)
        for item, stack in self._workers.abandon_overdue(seconds, every):
            item.timed_out_after = seconds
            self._count_late(1)
            if item.delivery is not None:
                logger.error(
                    "%s: its handler has been running for more than %g s; it hangs here:\n%s",
                    item.name,
                    seconds,
                    stack,
                )
                error = HandlerTimeout(seconds)
                seen = self._outage_of(item, error)
                verdict = item.decider.overdue(item.delivery, error, stack, seen)
                if self._options.on_give_up and not item.settled:
                    self.gives_up(item, verdict)
                self._carry_out((item, verdict))
        self._heed_late()
        self._flush()
        self._link.call_later(every, lambda: self._watch_overdue(seconds))

    def _count_late(self, change: int) -> None:
        with self._counting:
            self.late += change
        late_attempts.of_this_process.add(self._subscription.queue, change)

    def _heed_late(self) -> None:
        """Stop taking messages while too many timed-out handlers are still running, and resume
        after that."""
        was_stuck, self.is_stuck = self.is_stuck, self.late >= self._options.max_hung
        self._set_gate()
        if self.is_stuck and not was_stuck:
            logger.error(
                "queue %s: %d handlers are still running after their timeout: it takes no more "
                "messages, and is not healthy, until some of them end or the process is restarted",
                self._subscription.queue,
                self.late,
            )
            if self._consumer is not None and self._may_pause:
                self._consumer.pause(_nothing)
        elif was_stuck and not self.is_stuck:
            logger.warning("queue %s: it takes messages again", self._subscription.queue)
            self._go_on()
        if self._hung_has_changed and not self._hung_update_due:
            self._hung_update_due = True
            self._link.call_later(_HUNG_TOLD_WITHIN, self._tell_hung)

    @property
    def _hung_has_changed(self) -> bool:
        """Whether the broker shows an outdated number of hanging handlers."""
        return (
            self._may_pause
            and not self._stopping
            and self._consumer is not None
            and self._consumer.consuming
            and self._consumer.hung != (self.late or None)
        )

    def _tell_hung(self) -> None:
        """Have the broker show how many handlers hang, as a consumer argument."""
        self._hung_update_due = False
        if self._hung_has_changed and self._consumer is not None:
            self._consume(self._room)

    # --- on the connection's thread: the gate -----------------------------------------------------

    def _set_gate(self) -> None:
        """Note whether anything keeps it from taking messages, after one of these has changed. An
        outage does not shut the gate: one message at a time is taken, to be tried."""
        self._is_shut = (
            bool(self._paused_for)
            or self.is_stuck
            or self.paused is not None
            or self._is_resting
            or self._waits_for_control
        )

    @property
    def _room(self) -> int:
        """How many unsettled messages the broker may send."""
        if self._narrow:
            return 1
        if self._subscription.ordered:
            return self._options.prefetch
        limits = (self._options.prefetch, self._breaker.room, self._pacer.room)
        return min(limit for limit in limits if limit is not None)

    def _not_begun(self) -> list[WorkItem]:
        """Take back what waits for its turn, or for a handler."""
        taken = self._workers.drop_waiting()
        for item in taken:
            self._pacer.ended(item)
        return [*taken, *self._pacer.drop_waiting()]

    def _limit(self, fleet_rate: float | None) -> None:
        """Go at a rate that somebody has asked for of all workers together, or at its own."""
        if fleet_rate == self._fleet_rate and (fleet_rate is None or self._count is not None):
            return
        self._fleet_rate = fleet_rate
        if self._count is not None:
            self._count.stop()
            self._count = None
        if fleet_rate is None or self._subscription.ordered:  # only one consumer is active
            self._set_rate(fleet_rate)
        elif self._wire is not None:
            self._set_rate(0.0)  # until it is known how many share it
            queue, later = self._subscription.queue, self._link.call_later
            self._count = ConsumerCount(self._wire, queue, later, self._divide)

    def _divide(self, consumers: int) -> None:
        if self._fleet_rate is not None:
            is_counted = self._consumer is not None and self._consumer.consuming
            self._set_rate(self._fleet_rate / max(1, consumers if is_counted else consumers + 1))

    def _set_rate(self, fleet_share: float | None) -> None:
        own = self._options.rate
        wanted = min((one for one in (own, fleet_share) if one is not None), default=None)
        if wanted == self._pacer.rate:
            return
        waiting = self._not_begun()
        self._pacer.limit(wanted)
        self._is_resting = False
        self._set_gate()
        if self._consumer is None or self._stopping or self._is_shut:
            self._held += waiting
        elif self._consumer.prefetch > self._room and self._may_pause:
            self._held += waiting
            self._consumer.pause(self._narrowed)
        else:
            for item in waiting:
                self._hand_over(item)
            self._go_on()
            self._take_more()

    def _rest_if_rare(self) -> None:
        """Take no message until the next turn if that is long from now."""
        seconds = self._pacer.rests
        if not 0 < seconds < inf or self._consumer is None or not self._may_pause:
            return
        self._is_resting = True
        self._set_gate()
        self._consumer.pause(self._emptied)
        self._link.call_later(seconds, self._wake)

    def _wake(self) -> None:
        if self._is_resting and not self._pacer.rests:
            self._is_resting = False
            self._set_gate()
            self._go_on()

    def _consume(self, room: int) -> None:
        """Consume anew, and show the broker what can be known by a consumer's arguments."""
        if self._consumer is not None:
            self._consumer.hung = self.late or None
            self._consumer.down = self._breaker.down
            self._consumer.consume_anew(room)

    def _take_more(self) -> None:
        """Take as many messages as there is room for, if that is more than now."""
        if (
            self._consumer is not None
            and self._consumer.prefetch < self._room
            and not self._subscription.ordered
        ):
            self._consume(self._room)

    def _follow_control(self, connection: Wire) -> None:
        """Follow whether the subscription is paused; nothing is taken until that is known."""
        if self._controls is None:
            return
        self._wire = connection
        if self._owns_controls:
            self._controls.connected(connection)
        self._follower = self._controls.follow(self._subscription.exchanges)
        self._follower.listen(self._subscription.queue, self._heed_control)
        self._waits_for_control = not self._follower.is_known
        self._set_gate()
        if self._follower.is_known:
            self._heed_control()

    def _heed_control(self) -> None:
        """Stop taking messages because somebody has paused the subscription, or go on."""
        if self._follower is None or self._stopping:
            return
        self._waits_for_control = False
        before, queue = self.paused, self._subscription.queue
        control = self._follower.control_of(queue)
        self._show_pause(control if control is not None and control.rate is None else None)
        self._limit(None if control is None else control.rate)
        if self.paused is not None and before is None:
            logger.warning("queue %s is %s; it takes no messages", queue, self.paused)
        elif self.paused is None and before is not None:
            logger.warning("queue %s is no longer paused", queue)
        if self.paused is None:
            self._go_on()
            return
        if not self._ever_consumed:
            self.begun()  # whoever waits for the start need not wait for the end of the pause
        self._held += self._not_begun()
        if self._consumer is not None and self._may_pause:
            self._consumer.pause(self._emptied)

    def _show_pause(self, control: Control | None) -> None:
        queue = self._subscription.queue
        if self.paused is not None:
            stops.of_this_process.remove(Stop(queue, _PAUSED, str(self.paused)))
        if control is not None:
            stops.of_this_process.add(Stop(queue, _PAUSED, str(control)))
        self.paused = control
        self._set_gate()

    def _emptied(self) -> None:
        """Return what a pause has kept from beginning."""
        if not self._is_shut or self._paused_for or self._stopping:
            return
        held, self._held = self._held, []
        self._give_back(held)
        self._flush()

    def _heed_outage(self, changed: bool = True) -> None:
        """Take what the outage allows: one message at a time, a few, or all."""
        wait = self._breaker.take_wait()
        if wait is not None:
            turn, seconds = wait
            self._link.call_later(seconds, lambda: self._heed_outage(self._breaker.due(turn)))
        if not changed or self._stopping or self._is_shut or self._consumer is None:
            return
        if self._consumer.prefetch > self._room:
            self._held += self._not_begun()
            self._consumer.pause(self._narrowed)
        elif not self._consumer.is_paused:
            self._take_more()
            self._admit_held()

    def _narrowed(self) -> None:
        """Return what an outage has kept from beginning, and take one message, to try it later."""
        if self._stopping or self._is_shut or self._consumer is None:
            return
        held, self._held = [*self._held, *self._not_begun()], []
        self._give_back(held)
        if self._consumer.is_paused:
            self._consume(self._room)

    def _hold(self, item: WorkItem) -> None:
        """Hold an item that the workers have not begun."""
        self._pacer.ended(item)
        if self._stopping or not self._can_settle(item):
            self._leave_unsettled(item)
            return
        self._held.append(item)
        self._heed_outage()

    def _admit_held(self) -> None:
        held, self._held = self._held, []
        for item in held:
            if self._is_shut or self._breaker.holds:
                self._held.append(item)
            else:
                self._begin(item)

    def _outage_of(self, item: WorkItem, error: BaseException) -> OutageSeen:
        """Return whether an outage has failed an attempt, and heed it. From any thread."""
        if not self._may_pause:
            return None
        seen = self._breaker.judge(item, error)
        if item.failed_by_outage:
            self._link.call(self._heed_outage)
        return seen

    # --- on the connection's thread: leaving ------------------------------------------------------

    def _begin_to_stop(self) -> None:
        if self._stopping:
            return
        self._stopping = True
        self._drop_waiting()
        self._let_go(self._unmoved)
        self._link.call_later(self._options.grace, self._grace_is_over)
        # On an ordered queue, cancelling with a message in hand would let the next consumer
        # overtake it.
        if self._consumer is not None and not self._subscription.ordered:
            self._consumer.cancel(self._no_more_deliveries)
        else:
            self._no_more_deliveries()

    def _no_more_deliveries(self) -> None:
        self._quiet = True
        self._leave_when_done()

    def _leave_when_done(self) -> None:
        """Leave once nothing runs; messages that have not begun return to their place in the
        queue."""
        if self._leaving or self._open or (self._consumer is not None and not self._quiet):
            return
        consumer = self._consumer
        if consumer is not None and self._subscription.ordered:
            # Dropping the connection is the only way to leave with a message in hand that keeps the
            # order, and a message is in hand as soon as the previous one was acked. Source:
            # measured on 3.10.8, 4.0.5 and 4.3.6.
            self._leaving = True
            consumer.settle_and_hold(self._link.abort)
            return
        if consumer is not None:
            consumer.flush()
            consumer.return_all()
        self._link.close()

    def _grace_is_over(self) -> None:
        for item in self._open:
            logger.error(
                "%s: its handler is still running after the grace period; it will be delivered "
                "again",
                item.name,
            )
        if self._subscription.ordered:
            self._link.abort()
            return
        if self._consumer is not None and self._subscription.retry_via == "broker":
            self._consumer.flush()
            self._consumer.return_all()  # as above
            self._consumer = None  # returned messages can't be settled any more
        self._link.close()

    # --- on the connection's thread: what may have killed a worker --------------------------------

    def pause(self, turn: int) -> None:
        """Stop taking messages, because one is to be handled alone in this process."""
        self._link.call(lambda: self._pause(turn))

    def run_alone(self) -> None:
        """Handle the message that is to be handled alone, now that nothing else runs."""
        self._link.call(self._run_alone)

    def resume(self, turn: int) -> None:
        """Take messages again."""
        self._link.call(lambda: self._resume(turn))

    @property
    def _may_pause(self) -> bool:
        """Whether the consumer can be cancelled for a while: a broadcast queue would be deleted,
        and an ordered one lose its order. These hold messages that arrive during a pause."""
        return not (self._subscription.broadcast or self._subscription.ordered)

    def _is_suspect(self, item: WorkItem) -> bool:
        received, queue = item.received, self._subscription.queue
        if not received.redelivered and not received.routing_key.endswith(queue):
            return False  # true of nearly all messages, and reading the rest takes time
        try:
            return item.decider.is_suspect(self._delivery_of(item))
        except Exception:  # noqa: BLE001 - `arrived` handles and logs unreadable ones
            return False

    def _pause(self, turn: int) -> None:
        if turn <= self._resumed_after:
            return
        self._paused_for = turn
        self._set_gate()
        self._is_quiet = self._told = False
        consumer = self._consumer
        # With the suspect in hand and room for no other, no more can come.
        is_alone = self._narrow and self._isolation.is_turn_of(self) and len(self._open) == 1
        if consumer is None or not self._may_pause or is_alone:
            self._no_more_come(turn)
        else:
            consumer.pause(lambda: self._no_more_come(turn))

    def _no_more_come(self, turn: int) -> None:
        if self._paused_for == turn:
            self._is_quiet = True
            if self._may_pause and not self._stopping:
                self._empty_hand()
            self._check_quiet()

    def _empty_hand(self) -> None:
        """Keep only what is running and the message whose turn it is: a crash would count against
        every unsettled message."""
        kept = 1 if self._isolation.is_turn_of(self) else 0
        self._held, others = self._held[:kept], self._held[kept:]
        if self._decider is not None and not self._decider.counts_what_is_returned:
            self._give_back([*others, *self._not_begun()])
            return
        for item in others:
            if self._is_suspect(item) or self._breaker.holds or self.paused is not None:
                self._give_back([item])
            else:
                self._hand_over(item)

    def _give_back(self, items: Sequence[WorkItem]) -> None:
        """Return items that have not begun to their queue, uncounted."""
        for item in items:
            self._breaker.ended(item)
            if item.decider.counts_what_is_returned:
                self._step_aside(item)
            else:
                item.consumer.return_uncounted(item.received.delivery_tag)
                self._open.discard(item)

    def _step_aside(self, item: WorkItem) -> None:
        """Move a message to the end of its queue, with its counts; if that is impossible, hold it
        until its turn."""
        try:
            publish = item.decider.step_aside(self._delivery_of(item))
        except Malformed:  # it is set aside once it is handled
            publish = None
        if publish is None or not publish.complete:
            self._held.append(item)
            return
        self._send(item, publish, lambda error: self._stepped_aside(item, error))

    def _stepped_aside(self, item: WorkItem, error: RedriveError | None) -> None:
        if not self._can_settle(item):
            return
        if error is None:
            item.consumer.ack(item.received.delivery_tag)
            self._open.discard(item)
        elif self._stopping:
            self._open.discard(item)
        else:
            logger.warning("%s stays unsettled until it is handled: %s", item.name, error)
            self._held.append(item)
        self._flush()

    def _check_quiet(self) -> None:
        if (
            self._paused_for
            and self._is_quiet
            and not self._told
            and len(self._open) == len(self._held) + self._waiting_in_lanes
        ):
            self._told = True
            self._isolation.quiet(self)

    def _wait_no_longer(self, turn: int) -> None:
        if self._isolation.waited(turn):
            logger.warning(
                "queue %s: other handlers of this process are still running after %d s; a message "
                "that may have killed its worker is handled beside them",
                self._subscription.queue,
                _LONGEST_WAIT_FOR_OTHERS,
            )

    def _run_alone(self) -> None:
        if not self._held or not self._isolation.is_turn_of(self):
            self._isolation.done(self)
            return
        self._alone = item = self._held.pop(0)
        logger.info(
            "%s went back to its queue without a verdict, and may have killed its worker; its "
            "handler runs alone in this process",
            item.name,
        )
        self._hand_over(item)

    def _alone_no_more(self, item: WorkItem) -> None:
        """End the turn of a message that was handled alone."""
        if item is self._alone:
            self._alone = None
            self._isolation.done(self)

    def _resume(self, turn: int) -> None:
        if turn < self._paused_for:
            return
        self._resumed_after = turn
        self._paused_for = 0
        self._set_gate()
        if self.paused is not None and self._may_pause:
            self._emptied()
        self._go_on()

    def _go_on(self) -> None:
        """Take messages again, unless another reason to pause remains."""
        if self._stopping or self._is_shut:
            return
        if self._consumer is not None and self._consumer.is_paused:
            # An ordered queue would lose its order by another consumer for more messages.
            self._narrow = self._options.prefetch > 1 and self._may_pause
            self._consume(1 if self._narrow else self._options.prefetch)
        self._admit_held()

    # --- on the connection's thread: order --------------------------------------------------------

    @property
    def _waiting_in_lanes(self) -> int:
        return 0 if self._lanes is None else self._lanes.waiting

    @property
    def blocked(self) -> list[BlockedKey]:
        """The keys that wait for a retry; empty unless the subscription is ordered. From any
        thread."""
        return [] if self._lanes is None else self._lanes.blocked()

    @property
    def queue(self) -> str:
        """The main queue."""
        return self._subscription.queue

    @property
    def order_counts(self) -> OrderCounts:
        """What an ordered queue waits for. From any thread."""
        blocked = self.blocked
        return OrderCounts(
            len(blocked),
            sum(one.behind for one in blocked),
            0 if self._parked is None else len(self._parked),
            self._dropped.keyless,
        )

    def _take_turn(self, item: WorkItem) -> None:
        if self._is_deferred(item):
            return
        if self._is_shut:
            self._held.append(item)
        else:
            self._begin(item)

    def _tell_if_it_stands_still(self, lanes: Lanes[WorkItem]) -> None:
        stands_still = self._options.prefetch > 1 and lanes.stand_still
        if stands_still and not self._stands_still:
            logger.warning(
                "queue %s: %d keys wait for a retry, with as many messages behind them as there is "
                "room for: nothing else is taken until one of them goes on; a larger prefetch "
                "makes room",
                self._subscription.queue,
                len(lanes.blocked()),
            )
        self._stands_still = stands_still

    def _begin_lanes(self, connection: Wire) -> None:
        self._reads_log = False
        if not self._subscription.parks:
            self._lanes = Lanes(self._options.prefetch)
            return
        self._parked = parked = ParkedKeys(uuid.uuid4().hex)
        self._lanes = Lanes(
            self._options.prefetch, lambda one: parked.goes_first(one.key, one.place), held=True
        )
        self._wire = connection

    def _take_in_order(self, lanes: Lanes[WorkItem], item: WorkItem) -> None:
        if self._parked is not None:
            if not self._reads_log:
                self._reads_log = True
                self._read_log(lanes, self._parked)
            with contextlib.suppress(Malformed):
                item.place = headers.place_in(self._delivery_of(item).note(headers.PLACE))
        returns: int | None = None
        if self._options.order_by is not None:
            item.key = self._key_of(item)
        if item.received.redelivered:
            with contextlib.suppress(Malformed):
                returns = times_taken_back(self._delivery_of(item))
            returns = returns or 0
        for ready in lanes.add(item, item.key, returns):
            self._take_turn(ready)
        self._tell_if_it_stands_still(lanes)
        if lanes.collected is not None:
            self._await_the_rest(lanes, lanes.collected)
        elif self._parked is not None and len(self._open) >= self._options.prefetch:
            for ready in lanes.wait_no_longer():
                self._parked.wait_no_longer(ready.key)
                self._take_turn(ready)

    def _await_the_rest(self, lanes: Lanes[WorkItem], collected: int) -> None:
        """Handle what came back from an earlier consumer once nothing more has come for a while,
        and the broker has answered after that."""

        def answered() -> None:
            if lanes is self._lanes and lanes.collected == collected and not self._stopping:
                for ready in lanes.all_are_back():
                    self._take_turn(ready)

        def nothing_came() -> None:
            consumer = self._consumer
            if consumer is not None and lanes is self._lanes and lanes.collected == collected:
                consumer.when_answered(answered)

        self._link.call_later(_ALL_BACK_WITHIN, nothing_came)

    def _key_of(self, item: WorkItem) -> Key:
        """Read a message's key; a message without one is counted, and told of once."""
        assert self._options.order_by is not None
        try:
            key = self._options.order_by(self.message_of(self._delivery_of(item)))
        except Malformed:
            key = None
        if key is None:
            self._dropped.miss_key()
            if self._dropped.keyless == 1:
                logger.warning(
                    "queue %s: %s has no key to be ordered by; such messages are handled one after "
                    "the other, and counted",
                    self._subscription.queue,
                    item.name,
                )
        return key

    # --- on the connection's thread: parked keys --------------------------------------------------

    def _read_log(self, lanes: Lanes[WorkItem], parked: ParkedKeys) -> None:
        """Find out which keys are parked, now that this worker is the one that gets messages."""

        def known() -> None:
            if lanes is self._lanes and not self._stopping:
                self._append(lanes, parked.summary(), _nothing)
                for ready in lanes.begin():
                    self._take_turn(ready)

        def fenced() -> None:
            if self._wire is not None:
                stream = parked_stream(self._subscription.queue)
                ParkedLog(self._wire, stream, parked.read, known, self._refused)

        self._append(lanes, parked.fence(), fenced)

    def _append(
        self, lanes: Lanes[WorkItem], entry: bytes, then: Callable[[], None], resends: int = 0
    ) -> None:
        """Append an entry to the log of parked keys, for as long as it takes, and go on once the
        broker has it."""
        stream = parked_stream(self._subscription.queue)

        def again() -> None:
            if lanes is self._lanes and not self._stopping:
                self._append(lanes, entry, then, resends + 1)

        def answered(error: RedriveError | None) -> None:
            if lanes is not self._lanes or self._consumer is None:
                return
            if error is None:
                then()
                self._flush()
                return
            delay = reconnect_delay(resends, 0)
            logger.error(
                "the stream %s takes no entry, and parked keys wait; trying again in %g s: %s",
                stream,
                delay,
                error,
            )
            if isinstance(error, Unroutable):
                self._redeclarer.begin()
            self._link.call_later(delay, again)

        self._moves.send(
            Outgoing(
                "",
                stream,
                _PERSISTENT,
                entry,
                "",
                lambda _, error: self._link.call(lambda: answered(error)),
            )
        )

    def _is_deferred(self, item: WorkItem) -> bool:
        """Say what becomes of a message whose turn it is: it is handled, set aside behind an
        earlier one, or waits for requeued ones that go first, which returns True."""
        parked, lanes = self._parked, self._lanes
        if parked is None or lanes is None:
            return False
        if parked.admits(item.key, item.place):
            parked.resume(item.key)
        elif parked.is_resuming(item.key) and len(self._open) < self._options.prefetch:
            for ready in lanes.defer(item, item.key):
                self._take_turn(ready)
            return True
        else:
            item.is_behind = True
        return False

    def _notes_parking(self, item: WorkItem, verdict: Verdict) -> bool:
        """Have the log say that a message is parked, or is the last one of its key that was, before
        that is done; return False if there is nothing to say."""
        parked, lanes, key = self._parked, self._lanes, item.key
        if parked is None or lanes is None or key is None or item.delivery is None:
            return False
        settlement = verdict.settlement
        if isinstance(settlement, MoveToFailed) and settlement.place is None:
            park = parked.fall_behind if item.is_behind else parked.give_up
            verdict = item.decider.parked(item.delivery, verdict, park(key, _milliseconds()))
        elif isinstance(settlement, Ack | Discard) and parked.ends_with(key, item.place):
            parked.free(key)
        else:
            return False

        def noted() -> None:
            if self._can_settle(item):
                self._take(verdict.step, item, verdict)

        self._append(lanes, parked.entry_of(key), noted)
        return True

    def _next_in_lane(self, lanes: Lanes[WorkItem], item: WorkItem, step: Step) -> None:
        """Begin what waits behind a message that is settled; behind one that goes back for a retry,
        everything of its key goes on waiting."""
        if item.consumer is not self._consumer:
            return
        if isinstance(step, HoldThenReturn):
            lanes.goes_back(item.key, time.time())
            self._tell_if_it_stands_still(lanes)
            return
        for ready in lanes.done(item.key):
            self._take_turn(ready)

    # --- where handlers run -----------------------------------------------------------------------

    def _delivery_of(self, item: WorkItem) -> Delivery:
        """Parse an item's delivery, once."""
        if item.delivery is None:
            item.delivery = self._delivery_with(Properties.parse(item.received.properties), item)
        return item.delivery

    def _delivery_with(self, properties: Properties, item: WorkItem) -> Delivery:
        received = item.received
        return Delivery(
            self._subscription.queue,
            received.exchange,
            received.routing_key,
            properties,
            received.body,
            received.redelivered,
            self._way_back,
            self._subscription.ordered,
            self._subscription.retry_via == "broker",
        )

    def arrived(self, item: WorkItem) -> Verdict | None:
        """Decide about a delivery without its handler; None if the handler is to run."""
        try:
            delivery = self._delivery_of(item)
            if item.is_behind:
                return item.decider.overtaken(delivery)
            arrival = item.decider.arrival(delivery)
        except Malformed as error:
            item.delivery = self._delivery_with(Properties(), item)
            return self.attempted(item, _unreadable(error, item.received.properties))
        except Exception:  # noqa: BLE001
            # a defect in redrive must neither lose the message nor return it in a tight loop
            return self.not_judged()
        if not isinstance(arrival, Handle):
            return arrival
        return self._declined(item, delivery) if self._options.where is not None else None

    def _declined(self, item: WorkItem, delivery: Delivery) -> Verdict | None:
        """Decide about a message that the subscriber's predicate declines or fails on; None if it
        is accepted."""
        assert self._options.where is not None
        try:
            wanted = self._options.where(self.message_of(delivery))
            check_result("predicate", self._options.where, wanted)
        except BaseException as error:  # noqa: BLE001 - the user's function may raise anything, as a handler may
            return self.attempted(item, error)
        if wanted:
            return None
        self._dropped.decline()
        return self.attempted(item, None)

    def message_of(self, delivery: Delivery, item: WorkItem | None = None) -> Message:
        """Return the message that a handler gets for a delivery, linked to the item that tracks the
        attempt."""
        if item is not None:
            item.ran = True
        broadcast = self._subscription.broadcast
        return Message(
            delivery,
            0 if broadcast else self._subscription.retry.max_retries,
            self._options.decoders,
            item,
        )

    def ended_late(self) -> None:
        """Record that a timed-out handler has ended; from any thread."""
        self._count_late(-1)
        self._link.call(self._heed_late)

    def before_ack(self, item: WorkItem) -> list[Callable[[], object]]:
        """Return the actions that a finished handler wants done before its message is acked; none
        if it timed out, since its message will be handled again."""
        handling = current_handling()
        return [] if handling is None or item.settled else handling.returned()

    def check_process(self, error: BaseException | None) -> None:
        """End this process if it is a fork that the handler made. Called before anything else
        happens to the message: middleware and hooks would use the connections of this process, and
        asyncio has no running loop in a fork."""
        if os.getpid() != self._process:
            end_child(error)

    def gives_up(self, item: WorkItem, verdict: Verdict) -> None:
        """Call the hooks for a message that is being set aside because its handler timed out,
        without waiting for them."""
        raise NotImplementedError

    def attempted(self, item: WorkItem, error: BaseException | None) -> Verdict:
        """Decide about a delivery whose handler has returned, or raised `error`."""
        assert item.delivery is not None
        if error is not None and self._options.log_tracebacks:
            logger.warning("%s: its attempt failed", item.name, exc_info=error)
        try:
            return (
                item.decider.success()
                if error is None
                else item.decider.failure(item.delivery, error, self._outage_of(item, error))
            )
        except BaseException:  # noqa: BLE001 - as above; an error class may be the user's
            return self.not_judged()

    def not_judged(self) -> Verdict:
        """Log the exception that prevented a decision, and return a fallback verdict."""
        logger.exception("queue %s: could not decide about a message", self._subscription.queue)
        return self._as_it_is()

    def _as_it_is(self) -> Verdict:
        """Return the verdict for a message that redrive could not decide about because of a
        defect."""
        if self._subscription.ordered:
            return _IN_PLACE_AS_IT_IS
        return (
            _HELD_BACK_AS_IT_IS if self._subscription.retry_via == "broker" else _REJECTED_AS_IT_IS
        )

    def leave(self, item: WorkItem) -> None:
        """Leave a delivery unsettled because its handler was cancelled from outside."""
        self._open.discard(item)
        if not item.settled:
            item.settled = True
            logger.warning(
                "%s: its handler was cancelled; it will be delivered "
                "again when the connection ends",
                item.name,
            )
        self._alone_no_more(item)
        self._link.call(lambda: self._ended(item))
        self._link.call(self._check_quiet)

    def settle(self, item: WorkItem, verdict: Verdict) -> None:
        """Have a verdict carried out; from any thread."""
        self._mailbox.put((item, verdict))

    # --- on the connection's thread: verdicts -----------------------------------------------------

    def _carry_out(self, done: tuple[WorkItem, Verdict]) -> None:
        item, verdict = done
        if item.settled:
            return  # its handler timed out, and that was the verdict
        item.settled = True
        if self._can_settle(item):
            self._take(verdict.step, item, verdict)
        self._alone_no_more(item)
        if self._breaker.is_watching or self._pacer.rate is not None:
            self._ended(item)

    def _ended(self, item: WorkItem) -> None:
        """Tell the pacer and the breaker that an attempt has ended, if that may change anything."""
        self._pacer.ended(item)
        if self._breaker.is_watching:
            was_down = not self._breaker.is_closed
            self._breaker.ended(item)
            if was_down:
                self._heed_outage()

    def _take(self, step: Step, item: WorkItem, verdict: Verdict) -> None:
        if self._parked is not None and self._notes_parking(item, verdict):
            return
        match step:
            case AckIt():
                item.consumer.ack(item.received.delivery_tag)
                self._done(item, verdict)
            case RejectIt():
                item.consumer.reject(item.received.delivery_tag)
                self._done(item, verdict)
            case ReturnIt():
                item.consumer.return_one(item.received.delivery_tag)
                self._done(item, verdict)
            case NackIt():
                item.consumer.return_uncounted(item.received.delivery_tag)
                self._done(item, verdict)
            case PublishThenAck():
                self._publish(item, verdict, step)
            case HoldThenReturn(delay):
                self._link.call_later(
                    delay.total_seconds(),
                    lambda: item.consumer.return_one(item.received.delivery_tag),
                )
                self._done(item, verdict)
            case _:
                assert_never(step)

    def _flush(self) -> None:
        if self._handled:
            if telemetry.active is not None:
                telemetry.active.handled(self._subscription.queue, self._handled)
            self._handled = []
        if self._consumer is not None:
            self._consumer.flush()
        self._check_quiet()
        if self._stopping:
            self._leave_when_done()

    def _can_settle(self, item: WorkItem) -> bool:
        if item.consumer is self._consumer and item.consumer.alive:
            return True
        self._open.discard(item)
        logger.warning(
            "%s: its connection was lost before it could be settled; it will be delivered again",
            item.name,
        )
        return False

    def _done(self, item: WorkItem, verdict: Verdict) -> None:
        self._open.discard(item)
        if self._lanes is not None:
            self._next_in_lane(self._lanes, item, verdict.step)
        if item.delivery is not None and item.delivery.job is not None:
            self._note(item.delivery, verdict.settlement)
        if telemetry.active is not None:
            if isinstance(verdict.settlement, Ack):
                self._handled.append(item.delivery)
            else:
                telemetry.active.settled(self._subscription.queue, item.delivery, verdict)
        if not isinstance(verdict.settlement, Ack):
            if isinstance(verdict.settlement, Drop):
                self._dropped.let_go += 1
            elif isinstance(verdict.settlement, Discard):
                self._dropped.discarded += 1
            _log(self._subscription, item, verdict)
        elif logger.isEnabledFor(logging.DEBUG):
            logger.debug(
                "%s: handled",
                item.name,
                extra={logs.FIELDS: logs.fields_of(self._subscription, item.delivery, verdict)},
            )

    def _publish(self, item: WorkItem, verdict: Verdict, step: PublishThenAck) -> None:
        if self._redeclarer.lacks(step.levels):
            self._redeclarer.begin(step.levels, lambda: self._publish_again(item, verdict, step))
            return
        self._send(item, step.publish, lambda error: self._published(item, verdict, step, error))

    def _send(
        self, item: WorkItem, publish: Publish, answered: Callable[[RedriveError | None], None]
    ) -> None:
        """Publish a message to move it; call `answered` with the result, unless the message's own
        connection was lost first."""

        def on_this_thread(error: RedriveError | None) -> None:
            if item.outgoing is outgoing:
                item.outgoing = None
                answered(error)

        outgoing = Outgoing(
            publish.exchange,
            publish.routing_key,
            publish.properties.encode(),
            publish.body,
            publish.properties.message_id or "",
            lambda _, error: self._link.call(lambda: on_this_thread(error)),
        )
        item.outgoing = outgoing
        self._moves.send(outgoing)

    def _published(
        self, item: WorkItem, verdict: Verdict, step: PublishThenAck, error: RedriveError | None
    ) -> None:
        if not self._can_settle(item):
            return
        if error is None:
            item.consumer.ack(item.received.delivery_tag)
            self._done(item, verdict)
            self._flush()
        elif (instead := self._without_ladder(item, verdict, error)) is not None:
            self._take(instead.step, item, instead)
            self._flush()
        elif (
            isinstance(error, PublishRefused)
            and item.delivery is not None
            and (rejection := item.decider.rejection(item.delivery)) is not None
        ):
            logger.error("%s can't be set aside and will be retried: %s", item.name, error)
            if isinstance(rejection, ReturnIt):
                item.consumer.return_one(item.received.delivery_tag)
            else:
                item.consumer.reject(item.received.delivery_tag)
            self._open.discard(item)
            self._flush()
        elif self._stopping:
            self._let_go({item})
            self._flush()
        else:
            delay = reconnect_delay(item.resends, 0)
            item.resends += 1
            logger.error(
                "%s could not be moved and stays unsettled; trying again in %g s: %s",
                item.name,
                delay,
                error,
            )
            if isinstance(error, Unroutable | ConfigurationError):
                self._redeclarer.begin()
            self._unmoved.add(item)
            self._link.call_later(delay, lambda: self._publish_again(item, verdict, step))

    def _without_ladder(
        self, item: WorkItem, verdict: Verdict, error: RedriveError
    ) -> Verdict | None:
        """Return another verdict for a message that the delay ladder does not take; None if it may
        still take it, or if the message was not to wait on the ladder.

        Messages can't wait for a ladder for ever: unsettled ones fill the prefetch, and then the
        queue stops.
        """
        hopeless = isinstance(error, PermissionDenied | PublishRefused) or (
            isinstance(error, ConfigurationError | Unroutable) and self._declare is None
        )
        tried = item.resends >= _TRIES_ON_THE_LADDER and not self._redeclarer.under_way
        if item.delivery is None or not (hopeless or tried):
            return None
        return item.decider.without_ladder(item.delivery, verdict, in_one_line(str(error)))

    def _publish_again(self, item: WorkItem, verdict: Verdict, step: PublishThenAck) -> None:
        self._unmoved.discard(item)
        if item in self._open and self._can_settle(item):
            self._publish(item, verdict, step)

    def _let_go(self, items: set[WorkItem]) -> None:
        """Stop waiting for messages that could not be moved."""
        for item in items:
            logger.warning(
                "%s could not be moved before the subscriber stopped; it will be delivered again",
                item.name,
            )
        self._open -= items


def _nothing() -> None:
    """Do nothing after what nobody waits for."""


def _milliseconds() -> int:
    return time.time_ns() // 1_000_000


_PERSISTENT = Properties(content_type="application/json", delivery_mode=2).encode()


_A_WHILE = timedelta(seconds=30)
_DEFECT = ErrorReport("redrive.Defect", "see the log")
_REJECTED_AS_IT_IS = Verdict(RetryByReject(0, timedelta(0), 0), RejectIt(), _DEFECT)
_IN_PLACE_AS_IT_IS = Verdict(RetryInPlace(0, _A_WHILE, 0), HoldThenReturn(_A_WHILE), _DEFECT)
_HELD_BACK_AS_IT_IS = Verdict(RetryByBroker(0, timedelta(0), 0), ReturnIt(), _DEFECT)


def _unreadable(error: Malformed, properties: bytes) -> InvalidMessage:
    """Return the error for a message whose properties can't be parsed, with their first bytes."""
    return InvalidMessage(f"{error} ({len(properties)} bytes{beginning_of(properties)})")


def _log(subscription: Subscription, item: WorkItem, verdict: Verdict) -> None:
    """Log a move in one line that says where the message is now."""
    settlement, step, error, note = verdict
    level = logging.ERROR if isinstance(settlement, MoveToFailed) else logging.WARNING
    if isinstance(step, PublishThenAck) and not step.publish.complete:
        logger.error(
            "%s: its own headers leave no room for ours; the failed queue does not say why it is "
            "there",
            item.name,
        )
    logger.log(
        level,
        "%s %s; it is now %s%s",
        item.name,
        in_one_line("failed" if error is None else _what_happened(error)),
        item.decider.whereabouts(settlement),
        f"; {note}" if note else "",
        extra={logs.FIELDS: logs.fields_of(subscription, item.delivery, verdict)},
    )


_ASKED_FOR = {
    f"{kind.__module__}.{kind.__qualname__}": words
    for kind, words in ((Retry, "asked for a retry"), (GiveUp, "was given up"))
} | {"redrive.Behind": "was not handled"}
"""Wording for exceptions by which a handler asks for something, rather than failing."""


def _what_happened(error: ErrorReport) -> str:
    text = f"{redact(error.message):.500}"  # redact before truncating, or half a secret would stay
    words = _ASKED_FOR.get(error.type)
    return f"failed with {error.type}: {text}" if words is None else f"{words}: {text}"
