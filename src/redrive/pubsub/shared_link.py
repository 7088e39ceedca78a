"""One connection shared by several subscribers, each with its own channels: an error that closes a
channel affects only its subscriber.

Shared by both shells; it works with any link.
"""

import logging
import threading
from collections import deque
from collections.abc import Callable
from datetime import timedelta

from redrive.amqp.frames import ChannelEvents
from redrive.errors import BrokerUnavailable, RedriveError
from redrive.pubsub.control_follower import Controls
from redrive.pubsub.lifecycle import CLOSING_TIME, BrokerAccess, Link, Listener, ReconnectPolicy
from redrive.pubsub.wire_protocol import Channel, Done, Wire
from redrive.topology.broker_version import BrokerVersion

logger = logging.getLogger("redrive")


class SharedLink:
    """Keeps one connection open for its branches, and ends with the last of them.

    The first branches join before it starts; others may join later.
    """

    def __init__(
        self,
        access: BrokerAccess,
        keep: Callable[[Listener], Link],
        finished: Callable[[], object],
    ) -> None:
        self.access = access
        self._finished = finished
        self.blocked: str | None = None
        """Why the broker accepts no messages now; None if it does."""
        self.link = keep(self)
        self.wire: Wire | None = None
        """The connection; None while there is none."""
        self.controls = Controls(self.link.call_later)
        self.preparations = _Preparations(access.name)
        self._branches: list[LinkBranch] = []
        self._lock = threading.Lock()
        """Held while branches are added or removed."""
        self._has_started = self._is_closing = False

    def start(self) -> None:
        """Start connecting."""
        self._has_started = True
        self.link.start()

    @property
    def is_used(self) -> bool:
        """Whether it has branches."""
        return bool(self._branches)

    def join(self, branch: "LinkBranch") -> bool:
        """Add a branch, from any thread; return False if the connection is ending."""
        with self._lock:
            if self._is_closing:
                return False
            self._branches.append(branch)
        if self._has_started:
            self.link.call(lambda: branch.up() if self.wire is not None else None)
        return True

    def left(self, branch: "LinkBranch", *, aborted: bool) -> None:
        """Remove a branch that has ended; after the last one, close or abort the connection as that
        one did."""
        with self._lock:
            self._branches.remove(branch)
            if self._branches:
                return
            self._is_closing = True
        if aborted:
            self.link.abort()
        else:
            self.link.close()

    # --- on the connection's thread: the link -----------------------------------------------------

    def connected(self, connection: Wire) -> None:
        """Start the branches on an open connection."""
        self.wire = connection
        self.blocked = None
        connection.on_blocked(self._on_blocked, self._on_unblocked)
        self.controls.connected(connection)
        for branch in list(self._branches):
            branch.up()

    def disconnected(self, error: RedriveError) -> None:
        """Pass the loss of the connection to the branches; the link reconnects."""
        self.wire = None
        self.controls.disconnected()
        for branch in list(self._branches):
            branch.down(error)

    def gave_up(self, error: RedriveError) -> None:
        """Tell the branches that there will be no connection."""
        for branch in list(self._branches):
            branch.listener.gave_up(error)

    def ended(self) -> None:
        """End all branches after the link has ended for good."""
        with self._lock:
            self._is_closing = True
        self.wire = None
        for branch in list(self._branches):
            branch.end()
        self._finished()

    def _on_blocked(self, reason: str) -> None:
        self.blocked = reason
        for branch in list(self._branches):
            branch.blocked(reason)

    def _on_unblocked(self) -> None:
        self.blocked = None
        for branch in list(self._branches):
            branch.unblocked()


class LinkBranch:
    """A subscriber's share in a connection; to its listener, it looks like a separate link."""

    def __init__(
        self,
        shared: SharedLink,
        listener: Listener,
        *,
        prepare: Callable[[], None] | None,
        patience: timedelta,
    ) -> None:
        self._shared = shared
        self.listener = listener
        self._prepare = prepare
        self._persistence = ReconnectPolicy(shared.access, patience)
        self._wire: _BranchWire | None = None
        self._preparing = False
        self._closing = False
        self._aborted = False
        self._ended = False

    @property
    def address(self) -> str:
        """The broker's address, without the password."""
        return self._shared.access.url.address

    def start(self) -> None:
        """Join the connection."""
        self.join()

    def join(self) -> bool:
        """Join the connection, from any thread; return False if it is ending."""
        self._persistence.began()
        return self._shared.join(self)

    def on_io_thread(self) -> bool:
        """Check whether the caller runs on the connection's thread."""
        return self._shared.link.on_io_thread()

    def call(self, function: Callable[[], None]) -> None:
        """Run `function` on the connection's thread soon; not at all after the end."""
        self._shared.link.call(lambda: None if self._ended else function())

    def call_later(self, seconds: float, function: Callable[[], None]) -> None:
        """Run `function` on the connection's thread after `seconds`. Only from that thread."""
        self._shared.link.call_later(seconds, lambda: None if self._ended else function())

    def reconnect(self, reason: str) -> None:
        """Close the channels, and open new ones. Only from the connection's thread."""
        logger.warning("closing channels on %s to start over: %s", self.address, reason)
        self.call(lambda: self._start_over(reason))

    def close(self) -> None:
        """Close the channels and end, once the broker has closed them and any preparation is done;
        at the latest after `CLOSING_TIME`."""
        self.call(self._close)

    def abort(self) -> None:
        """Leave at once."""
        self.call(self._abort)

    # --- on the connection's thread ---------------------------------------------------------------

    def up(self) -> None:
        """Prepare, then open the branch, now that the connection is open."""
        if self._closing:
            return
        if self._prepare is None:
            self._open()
        elif not self._preparing:
            self._preparing = True
            self._shared.preparations.add(
                self._prepare_unless_closed,
                lambda error: self._shared.link.call(lambda: self._prepared(error)),
            )

    def down(self, error: RedriveError) -> None:
        """React to the loss of the connection."""
        wire, self._wire = self._wire, None
        if wire is not None:
            wire.leave()
            self.listener.disconnected(error)
        if self._closing and not self._preparing:
            self.end()

    def blocked(self, reason: str) -> None:
        """Pass on that the broker accepts no messages."""
        if self._wire is not None:
            self._wire.blocked(reason)

    def unblocked(self) -> None:
        """Pass on that the broker accepts messages again."""
        if self._wire is not None:
            self._wire.unblocked()

    def end(self) -> None:
        """End the branch, and tell the listener."""
        if self._ended:
            return
        self._ended = self._closing = True
        if self._wire is not None:
            self._wire.leave()
            self._wire = None
        self._shared.left(self, aborted=self._aborted)
        self.listener.ended()

    def _prepare_unless_closed(self) -> None:
        """Run the preparation on its thread, unless the branch has been closed while this was
        waiting."""
        if self._prepare is not None and not self._closing:
            self._prepare()

    def _prepared(self, error: RedriveError | None) -> None:
        self._preparing = False
        if self._ended:
            return
        if self._closing:
            self.end()
        elif error is not None:
            self._again(error)
        else:
            self._open()

    def _again(self, error: RedriveError) -> None:
        delay = self._persistence.failed(error)
        if delay is None:
            self.listener.gave_up(error)
            self.end()
        else:
            self.call_later(delay, self._resume)

    def _resume(self) -> None:
        if self._wire is None and self._shared.wire is not None:
            self.up()

    def _open(self) -> None:
        connection = self._shared.wire
        if connection is None or self._wire is not None:
            return  # lost meanwhile: the next connection starts it again
        self._persistence.connected()
        self._wire = _BranchWire(connection, self._shared)
        self.listener.connected(self._wire)

    def _start_over(self, reason: str) -> None:
        if self._wire is None or self._closing:
            return
        self._wire.close(_nothing)
        self._wire = None
        lost = BrokerUnavailable(self.address, reason)
        self.listener.disconnected(lost)
        self._again(lost)

    def _close(self) -> None:
        if self._closing:
            return
        self._closing = True
        if self._wire is None and not self._preparing:
            self.end()
            return
        self.call_later(CLOSING_TIME, self.end)
        if self._wire is not None:
            self._wire.close(self.end)

    def _abort(self) -> None:
        self._aborted = True
        if self._wire is not None:
            self._wire.close(_nothing)
        self.end()


class _BranchWire:
    """A connection as one branch sees it: with only that branch's channels. Once the branch has
    left, no events pass."""

    def __init__(self, connection: Wire, shared: SharedLink) -> None:
        self._connection = connection
        self._shared = shared
        self._channels: list[Channel] = []
        self._left = False
        self._on_blocked: list[tuple[Callable[[str], None], Done]] = []

    @property
    def version(self) -> BrokerVersion:
        """The broker's version."""
        return self._connection.version

    @property
    def frame_max(self) -> int:
        """The negotiated largest frame, in bytes; 0 for no limit."""
        return self._connection.frame_max

    @property
    def is_open(self) -> bool:
        """Whether the connection is open and the branch has not left."""
        return not self._left and self._connection.is_open

    def write(self, data: bytes) -> None:
        """Send whole frames."""
        if not self._left:
            self._connection.write(data)

    def open_channel(self, events: ChannelEvents, opened: Callable[[Channel], None]) -> None:
        """Open a channel; its messages and confirms go to `events`."""
        if self._left:
            return

        def is_open(channel: Channel) -> None:
            if self._left:
                channel.close(_nothing)
                return
            self._channels = [one for one in self._channels if one.is_open]
            self._channels.append(channel)
            opened(channel)

        # Messages are not filtered, since there are many: a channel that was closed here delivers
        # none.
        own = events._replace(
            closed=lambda code, text: None if self._left else events.closed(code, text),
            cancelled=lambda: None if self._left else events.cancelled(),
        )
        self._connection.open_channel(own, is_open)

    def on_blocked(self, blocked: Callable[[str], None], unblocked: Done) -> None:
        """Call `blocked` when the broker stops accepting messages, or does not accept any now, and
        `unblocked` when it accepts them again."""
        self._on_blocked.append((blocked, unblocked))
        if self._shared.blocked is not None:
            blocked(self._shared.blocked)

    def blocked(self, reason: str) -> None:
        """Pass on that the broker accepts no messages."""
        for blocked, _ in self._on_blocked:
            blocked(reason)

    def unblocked(self) -> None:
        """Pass on that the broker accepts messages again."""
        for _, unblocked in self._on_blocked:
            unblocked()

    def leave(self) -> None:
        """Let no further events pass."""
        self._left = True
        self._on_blocked.clear()

    def close(self, done: Done) -> None:
        """Close the channels, and call `done` once the broker has closed them all."""
        self.leave()
        closing = [one for one in self._channels if one.is_open]
        self._channels.clear()
        missing = len(closing)

        def closed() -> None:
            nonlocal missing
            missing -= 1
            if not missing:
                done()

        for channel in closing:
            channel.close(closed)
        if not closing:
            done()


class _Preparations:
    """Runs the preparations of branches one after the other, so that they need only one connection
    at a time, on a thread that exists while there is work."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._lock = threading.Lock()
        self._waiting: deque[tuple[Callable[[], None], Callable[[RedriveError | None], None]]] = (
            deque()
        )
        self._runs = False

    def add(self, prepare: Callable[[], None], done: Callable[[RedriveError | None], None]) -> None:
        """Run `prepare`, and call `done` with the error, or None."""
        with self._lock:
            self._waiting.append((prepare, done))
            if self._runs:
                return
            self._runs = True
        threading.Thread(
            target=self._run, name=f"redrive-declare-{self._name}", daemon=True
        ).start()

    def _run(self) -> None:
        while True:
            with self._lock:
                if not self._waiting:
                    self._runs = False
                    return
                prepare, done = self._waiting.popleft()
            done(self._error_of(prepare))

    def _error_of(self, prepare: Callable[[], None]) -> RedriveError | None:
        try:
            prepare()
        except RedriveError as error:
            return error
        except BaseException as error:
            # a defect in redrive: the waiting branch must be told
            logger.exception("preparing a subscriber of %s failed", self._name)
            return BrokerUnavailable(
                self._name, f"preparing failed: {error!r}", "This is a bug: please report it."
            )
        return None


def _nothing() -> None:
    """Do nothing: nobody waits for this."""
