"""Stops a subscription while something that its handlers need is down, and starts it again.

Every process decides for itself, by its own attempts: nothing is shared between workers.
"""

import enum
import logging
import random
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from redrive.errors import HandlerTimeout
from redrive.pubsub import stops
from redrive.pubsub.handler_error import errors_in, report_of, with_causes
from redrive.pubsub.stops import Stop
from redrive.pubsub.verdict import OutageSeen
from redrive.pubsub.work import WorkItem
from redrive.redaction import in_one_line, redact
from redrive.topology.outage import Outage, outage_of

logger = logging.getLogger("redrive")

LONGEST_TRY = 60.0
"""Seconds that the handler of a message that is tried may take before another message is tried."""

_MOST_DOUBTS = 3
_MOST_CAUSES = 100
_MOST_KEYS = 100
_MOST_KNOWN = 100


class _State(enum.Enum):
    CLOSED = "everything is taken"
    OPEN = "nothing is taken until a delay is over"
    DUE = "the next message is tried"
    TRYING = "a message is being tried"
    RAMPING = "a few are taken at a time"


@dataclass(slots=True)
class _History:
    """What is known about one cause of outages."""

    tries: int = 0
    """Messages that were tried and failed so, in a row."""
    doubts: int = 0
    """How often it seemed down, and the next message of the same kind was handled. The more often,
    the more failures in a row it takes to stop again: these messages fail, and not the dependency.
    """
    in_a_row: int = 0
    keys: set[str] = field(default_factory=set)
    """Routing keys of messages that failed so."""


class Wait(NamedTuple):
    """How long to wait before the next try: seconds, and the turn to pass to `due`."""

    turn: int
    seconds: float


class Breaker:
    """Decides whether a subscription may take messages, and whether a failed attempt counts.

    `judge` is called from any thread, everything else on the connection's thread.
    """

    def __init__(
        self,
        queue: str,
        outages: Sequence[Outage],
        width: int,
    ) -> None:
        self._queue = queue
        self._outages = outages
        self._width = width
        self._lock = threading.Lock()
        self._state = _State.CLOSED
        # Attributes, since they are read for each message.
        self.is_closed = True
        """Whether everything is taken, as usual."""
        self.holds = False
        """Whether no message may begin now."""
        self.is_due = False
        """Whether the next message that begins is a try."""
        self.is_watching = False
        """Whether `ended` has to be called, since something has failed so before."""
        self._failing: dict[object, None] = {}
        """Messages that failed so since another one was answered."""
        self._suspects: dict[object, None] = {}
        """Messages that failed so before others were answered: if they fail again, it may be their
        own fault."""
        self.turn = 0
        """How often it has opened, so that attempts begun before can be told from later ones."""
        self._cause: Outage | None = None
        self._causes: dict[str, _History] = {}
        self._since = 0.0
        self._wait: Wait | None = None
        self._tried: WorkItem | None = None
        self._ramp = self._handled = 0
        self._spent = self._spared = 0

    # --- from any thread --------------------------------------------------------------------------

    @property
    def down(self) -> str | None:
        """Name of what is down; None if nothing is."""
        cause = self._cause
        return None if cause is None else cause.name

    @property
    def room(self) -> int | None:
        """How many unsettled messages to take at a time; None for no limit."""
        match self._state:
            case _State.CLOSED:
                return None
            case _State.RAMPING:
                return self._ramp
            case _:
                return 1

    def is_too_late_for(self, item: WorkItem) -> bool:
        """Return whether an item was handed to the workers before it opened, and must not begin."""
        return item.turn != self.turn and not self.is_closed and not item.is_tried

    def judge(self, item: WorkItem, error: BaseException) -> OutageSeen:
        """Return whether an outage failed an attempt: `known` if it does not count, `likely` if it
        does, but must not be a message's last. Asked again about the same item, it answers the
        same."""
        cause = self._outage_of(error)
        with self._lock:
            if cause is None and item is self._tried and isinstance(error, HandlerTimeout):
                cause = self._cause  # a try that hangs has not been answered
            if cause is None:
                item.failed_by_outage = False
                return None
            if not item.failed_by_outage:
                item.failed_by_outage = True
                item.outage = self._failed(item, cause, error)
            return item.outage

    def _outage_of(self, error: BaseException) -> Outage | None:
        try:
            return outage_of(list(with_causes(errors_in(error))), self._outages)
        except BaseException:
            logger.exception("queue %s: the function of an outage failed", self._queue)
            return None

    def _failed(self, item: WorkItem, cause: Outage, error: BaseException) -> OutageSeen:
        history = self._history(cause)
        if item.delivery is not None and len(history.keys) < _MOST_KEYS:
            history.keys.add(item.delivery.original_routing_key)
        if item.is_tried:
            self._spent += 1
            _keep(self._failing, _identity(item))
            if item is self._tried:
                history.tries += 1
                self._open(cause, history)
                logger.info(
                    "queue %s: %s is still down after %.0f s, and is tried again in %g s: %s",
                    self._queue,
                    in_one_line(cause.name),
                    time.monotonic() - self._since,
                    self._seconds,
                    _text_of(error),
                )
            return "likely"
        if self._state not in (_State.CLOSED, _State.RAMPING) or item.turn != self.turn:
            self._spared += 1
            return "known"
        history.in_a_row += 1
        if history.in_a_row < 2**history.doubts:
            return None
        if self._cause is None:
            self._since = time.monotonic()
            self._spent = self._spared = 0
        self._spent += 1
        _keep(self._failing, _identity(item))
        self._open(cause, history)
        logger.warning(
            "queue %s: %s is down; no messages are taken, and one is tried in %g s: %s",
            self._queue,
            in_one_line(cause.name),
            self._seconds,
            _text_of(error),
        )
        return None if _identity(item) in self._suspects else "likely"

    def _open(self, cause: Outage, history: _History) -> None:
        self._enter(_State.OPEN)
        self._show(cause)
        self.turn += 1
        self._tried = None
        delay = cause.probe.delay(history.tries + 1, random.random())
        self._seconds = round(delay.total_seconds(), 3)
        self._wait = Wait(self.turn, self._seconds)

    def _enter(self, state: _State) -> None:
        self._state = state
        self.is_closed = state is _State.CLOSED
        self.holds = state in (_State.OPEN, _State.TRYING)
        self.is_due = state is _State.DUE

    def _show(self, cause: Outage | None) -> None:
        if self._cause is not None:
            stops.of_this_process.remove(Stop(self._queue, self._cause.name))
        if cause is not None:
            stops.of_this_process.add(Stop(self._queue, cause.name))
        self._cause = cause

    def _history(self, cause: Outage) -> _History:
        if cause.name not in self._causes and len(self._causes) >= _MOST_CAUSES:
            del self._causes[next(iter(self._causes))]
        self.is_watching = True
        return self._causes.setdefault(cause.name, _History())

    # --- on the connection's thread ---------------------------------------------------------------

    def begin_try(self, item: WorkItem) -> Wait:
        """Record that an item which is handed to the workers is a try; return when to call
        `hangs`."""
        self._enter(_State.TRYING)
        self._tried, item.is_tried = item, True
        return Wait(self.turn, LONGEST_TRY)

    def take_wait(self) -> Wait | None:
        """Return the wait that has begun since the last call; None if none has."""
        wait, self._wait = self._wait, None
        return wait

    def due(self, turn: int) -> bool:
        """Let the next message be tried, because a wait is over; return False if another one has
        begun since."""
        with self._lock:
            if self._state is not _State.OPEN or turn != self.turn:
                return False
            self._enter(_State.DUE)
            return True

    def hangs(self, turn: int) -> bool:
        """Go on without a try that takes too long; return False if it has ended."""
        with self._lock:
            if self._state is not _State.TRYING or turn != self.turn or self._cause is None:
                return False
            history = self._history(self._cause)
            history.tries += 1
            self._open(self._cause, history)
        logger.warning(
            "queue %s: the handler that tries whether %s is back has been running for %g s; "
            "another message is tried in %g s",
            self._queue,
            in_one_line(self.down or ""),
            LONGEST_TRY,
            self._seconds,
        )
        return True

    def ended(self, item: WorkItem) -> None:
        """Record that an item is done: settled, or returned before its handler ran."""
        with self._lock:
            if item.failed_by_outage:
                return
            if item.ran:
                self._answered(item)
            elif item is self._tried:
                self._tried = None
                self._enter(_State.DUE)

    def _answered(self, item: WorkItem) -> None:
        """Record an attempt that an outage has not failed."""
        for which in self._failing:
            _keep(self._suspects, which)
        self._failing = {}
        self._suspects.pop(_identity(item), None)
        key = None if item.delivery is None else item.delivery.original_routing_key
        alike = [one for one in self._causes.values() if key in one.keys]
        for history in alike:
            history.in_a_row = 0
        if item.is_tried and self._state not in (_State.CLOSED, _State.RAMPING):
            self._back(alike)
        elif self._state is _State.RAMPING and item.turn == self.turn:
            self._handled += 1
            if self._handled >= self._ramp:
                self._widen()

    def _back(self, alike: Sequence[_History]) -> None:
        """Begin to take messages again after a try that was answered."""
        assert self._cause is not None
        history = self._history(self._cause)
        if history.tries:
            history.doubts = 0
        elif history in alike:
            history.doubts = min(history.doubts + 1, _MOST_DOUBTS)
        history.tries = history.in_a_row = 0
        logger.warning(
            "queue %s: %s answers again after %.0f s; the outage cost %d attempts, and %d did not "
            "count",
            self._queue,
            in_one_line(self._cause.name),
            time.monotonic() - self._since,
            self._spent,
            self._spared,
        )
        self._tried = None
        self._enter(_State.RAMPING)
        self._ramp = 1
        self._widen()

    def _widen(self) -> None:
        self._ramp, self._handled = 2 * self._ramp, 0
        if self._ramp > self._width:
            self._enter(_State.CLOSED)
            self._show(None)

    def close(self) -> None:
        """Forget the outage, because the subscription ends."""
        self._show(None)


def _identity(item: WorkItem) -> object:
    """Return what tells a message from others."""
    if item.delivery is None:
        return None
    return item.delivery.properties.message_id or hash(item.delivery.body)


def _keep(known: dict[object, None], which: object) -> None:
    """Add a message, in place of the oldest one if there are many."""
    if len(known) >= _MOST_KNOWN:
        del known[next(iter(known))]
    known[which] = None


def _text_of(error: BaseException) -> str:
    report = report_of(error)
    return in_one_line(redact(f"{report.type}: {report.message}"))[:300]
