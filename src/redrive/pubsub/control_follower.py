"""Follow the pauses and rates of subscriptions, on the connection that consumes them.

Everything here runs on the connection's thread.
"""

import logging
import time
from collections.abc import Callable
from datetime import UTC, datetime

from redrive.errors import ConfigurationError, PermissionDenied, RedriveError
from redrive.pubsub.stream_consumer import Row, StreamConsumer
from redrive.pubsub.wire_protocol import Wire
from redrive.topology.control import Control
from redrive.topology.names import ExchangeFamily

logger = logging.getLogger("redrive")

_QUIET = 0.05
"""Seconds without an entry after which the stream counts as read: there is no way to ask where it
ends. Source: `failures/journal_stream.py`."""
_LONGEST_READING = 3.0
"""Seconds to wait for the stream before messages are taken."""
_AGAIN_AFTER = 60.0
_MOST_REFUSALS = 5
_CHECK_EVERY = 30.0
"""Seconds between looks at the clock while a pause has an end, since clocks jump."""
_ACKED_TOGETHER = 16
_MOST_QUEUES = 10_000

CallLater = Callable[[float, Callable[[], None]], None]


class ControlFollower:
    """The control stream of one exchange family, followed on one connection after the other."""

    def __init__(self, exchanges: ExchangeFamily, call_later: CallLater) -> None:
        self._stream = exchanges.control
        self._call_later = call_later
        self._listeners: dict[str, Callable[[], None]] = {}
        self._controls: dict[str, tuple[Control, float]] = {}
        """The last entry of each queue, and until when it holds by the monotonic clock."""
        self._wire: Wire | None = None
        self._consumer: StreamConsumer | None = None
        self._last = -1
        """Offset of the last entry that was read."""
        self._read = 0
        self._refusals = 0
        self._is_told = False
        self.is_known = False
        """Whether what was in the stream at the start has been read, or can't be."""

    def listen(self, queue: str, changed: Callable[[], None]) -> None:
        """Call `changed` whenever the control of a queue may have changed."""
        self._listeners[queue] = changed

    def control_of(self, queue: str) -> Control | None:
        """Return what holds for a queue now; None if nothing does."""
        found = self._controls.get(queue)
        if found is None:
            return None
        control, until = found
        is_over = time.monotonic() >= until or not control.holds(datetime.now(UTC))
        return None if is_over else control

    def connected(self, wire: Wire) -> None:
        """Follow the stream on a new connection."""
        self._wire = wire
        self._refusals = 0
        self._consume(wire)
        if not self.is_known:
            # Messages must not wait for a stream that does not answer.
            self._call_later(_LONGEST_READING, lambda: self._stop_waiting(wire))

    def _consume(self, wire: Wire) -> None:
        self._read = 0
        self._consumer = StreamConsumer(
            wire,
            self._stream,
            # A consumer that starts beyond the end never gets anything. Source: measured on
            # RabbitMQ 3.10.8, 4.0.5 and 4.3.6.
            "first" if self._last < 0 else self._last,
            received=self._received,
            refused=lambda error: self._refused(wire, error),
            begun=self._check_known,
        )

    def disconnected(self) -> None:
        """Forget the connection."""
        self._wire = self._consumer = None

    def _check_known(self) -> None:
        """Take the stream as read once nothing more comes."""
        read, wire = self._read, self._wire
        self._call_later(_QUIET, lambda: self._is_quiet(read, wire))

    def _is_quiet(self, read: int, wire: Wire | None) -> None:
        if self.is_known or wire is not self._wire:
            return
        if read == self._read:
            self._know()
        else:
            self._check_known()

    def _stop_waiting(self, wire: Wire) -> None:
        if not self.is_known and wire is self._wire:
            self._know()

    def _know(self) -> None:
        self.is_known = True
        for changed in list(self._listeners.values()):
            changed()

    def _received(self, row: Row) -> None:
        self._read += 1
        if self._read % _ACKED_TOGETHER == 0 and self._consumer is not None:
            self._consumer.ack(self._read)
        if row.offset <= self._last:
            return
        self._last = row.offset
        control = Control.decode(row.body, row.user)
        if control is None:
            logger.warning(
                "entry %d of %s can't be read and is ignored: it may be of a newer version",
                row.offset,
                self._stream,
            )
            return
        if control.queue in self._listeners or len(self._controls) < _MOST_QUEUES:
            self._controls[control.queue] = control, self._until(control)
            self._tell(control.queue)
            self._watch_the_end(control)

    def _until(self, control: Control) -> float:
        if control.until is None:
            return float("inf")
        return time.monotonic() + (control.until - datetime.now(UTC)).total_seconds()

    def _watch_the_end(self, control: Control) -> None:
        found = self._controls.get(control.queue)
        if found is None or found[0] is not control or control.until is None:
            return
        if self.control_of(control.queue) is None:
            self._tell(control.queue)
            return
        left = found[1] - time.monotonic()
        self._call_later(min(max(left, 0.0), _CHECK_EVERY), lambda: self._watch_the_end(control))

    def _tell(self, queue: str) -> None:
        changed = self._listeners.get(queue)
        if changed is not None and self.is_known:
            changed()

    def _refused(self, wire: Wire, error: RedriveError) -> None:
        if wire is not self._wire:
            return
        self._consumer = None
        self._refusals += 1
        is_final = isinstance(error, PermissionDenied | ConfigurationError)
        if not is_final and self._refusals < _MOST_REFUSALS:
            # After a restart, a broker needs a moment until it reads its streams.
            self._call_later(1.0, lambda: self._again(wire))
            return
        if not self._is_told:
            self._is_told = True
            logger.warning(
                "pauses and rates are not followed: %s",
                str(error).partition("\n")[0].rstrip("."),
            )
        if not self.is_known:
            self._know()
        self._call_later(_AGAIN_AFTER, lambda: self._again(wire))

    def _again(self, wire: Wire) -> None:
        if wire is self._wire:
            self._consume(wire)


class Controls:
    """The control streams that a connection follows, one for each exchange family.

    Args:
        call_later: runs a function on the connection's thread after some seconds.
    """

    def __init__(self, call_later: CallLater) -> None:
        self._call_later = call_later
        self._followers: dict[str, ControlFollower] = {}
        self._wire: Wire | None = None

    def follow(self, exchanges: ExchangeFamily) -> ControlFollower:
        """Return what follows a family."""
        follower = self._followers.get(exchanges.control)
        if follower is None:
            follower = self._followers[exchanges.control] = ControlFollower(
                exchanges, self._call_later
            )
            if self._wire is not None:
                follower.connected(self._wire)
        return follower

    def connected(self, wire: Wire) -> None:
        """Follow on a new connection."""
        self._wire = wire
        for follower in self._followers.values():
            follower.connected(wire)

    def disconnected(self) -> None:
        """Forget the connection."""
        self._wire = None
        for follower in self._followers.values():
            follower.disconnected()
