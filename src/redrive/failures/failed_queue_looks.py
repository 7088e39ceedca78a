"""Look at the messages of a failed queue without removing any."""

import contextlib
import threading
import time
from collections.abc import Callable, Generator, Iterator
from datetime import UTC, datetime
from typing import Self

import pika
from pika import exceptions

from redrive.errors import BrokerUnavailable, ConfigurationError, RedriveError
from redrive.failures.failed_count import held_in
from redrive.failures.failed_message import FailedMessage
from redrive.failures.failed_queue_facts import FailedQueueFacts, source_of
from redrive.failures.failed_source import FailedSource
from redrive.failures.index import forget
from redrive.failures.look import CachePolicy, Look, NothingKept
from redrive.failures.look_reporter import LookReporter, OnLook
from redrive.failures.look_store import LookStore
from redrive.failures.message_source import MessageSource
from redrive.failures.return_safety import return_limit
from redrive.pubsub import broker_errors
from redrive.pubsub.admin.management_api import ManagementAPI
from redrive.pubsub.blocking.connection import Connector, Link
from redrive.pubsub.blocking.declarer import Declarer, declaring
from redrive.pubsub.blocking.wire import WireConnection
from redrive.pubsub.reports import (
    LookProgress,
    LookStage,
)
from redrive.pubsub.transfer.delivery_limit import ReturnLimit
from redrive.pubsub.transfer.queue_reader import AHEAD, QueueReader, surely_back
from redrive.pubsub.url import seconds_of
from redrive.pubsub.wire_protocol import Wire
from redrive.topology.durations import Duration

HOLDER, SINCE = "redrive-held-by", "redrive-held-since"
"""Arguments of the lock that say who holds it. No broker permission depends on them."""

_ACCESS_REFUSED, _LOCKED = 403, 405
_BETWEEN_TRIES = 0.1
_GLANCE = 0.2
_BETWEEN_QUESTIONS = 2.0

Waiting = Callable[[str], None]


class LookLock:
    """The exclusive right to hold messages of a failed queue; a context manager that waits for it.

    A user who may not declare the lock goes without it, and may then see only part of the queue.

    Raises (on entering):
        ConfigurationError: another look did not end in time.
        BrokerUnavailable, PermissionDenied: the broker can't be reached, or refused access.
    """

    def __init__(
        self,
        connector: Connector,
        source: FailedSource,
        *,
        management_url: str | None,
        patience: float,
        waiting: Waiting,
        stop: Callable[[], bool] = lambda: False,
    ) -> None:
        self._connector = connector
        self._source = source
        self._lock = source.lock
        self._management_url = management_url
        self._patience = patience
        self._waiting = waiting
        self._stop = stop
        self._link = Link(connector, self)
        self._come = threading.Event()
        self._taken = threading.Event()
        self._failure: RedriveError | None = None
        self._closing = False
        self._holder = ""
        self.waited = False
        """Whether another look had the lock first."""

    def __enter__(self) -> Self:
        self._link.start()
        try:
            self._wait()
        except BaseException:
            self._leave()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._leave()

    def _leave(self) -> None:
        self._closing = True
        self._link.close()

    def _wait(self) -> None:
        began = time.monotonic()
        asking: threading.Thread | None = None
        while not self._come.wait(_GLANCE):
            if self._stop():
                return
            if not self._taken.is_set():
                continue
            self.waited = True
            if not self._holder and (asking is None or not asking.is_alive()):
                # On a separate thread, so that a slow API does not delay a caller whose turn has
                # come.
                asking = threading.Thread(
                    target=self._ask_who_has_it, name="redrive-who-looks", daemon=True
                )
                asking.start()
            self._waiting(self._holder)
            if time.monotonic() - began > self._patience:
                raise ConfigurationError(
                    f"{self._holder or 'somebody else'} is reading {self._source.queue!r}, "
                    f"and did not finish within {self._patience:g} s",
                    "Wait until it finishes, and try again: two readers at once would each see "
                    "only a part of the queue.",
                )
        if self._failure is not None:
            raise self._failure

    def _ask_who_has_it(self) -> None:
        """Note who holds the lock, as its arguments say. It takes at least two seconds."""
        with (
            contextlib.suppress(RedriveError),
            ManagementAPI.of(self._connector, self._management_url) as management,
        ):
            arguments = management.arguments_of(self._lock)
            who, since = arguments.get(HOLDER), arguments.get(SINCE)
            if isinstance(who, str) and who:
                self._holder = who + (f" (since {since})" if isinstance(since, str) else "")
        self._come.wait(_BETWEEN_QUESTIONS)

    # --- on the I/O thread ------------------------------------------------------------------------

    def connected(self, connection: Wire) -> None:
        """Ask for the lock until it is free."""
        assert isinstance(connection, WireConnection)
        connection.channel(on_open_callback=lambda channel: self._ask(connection, channel))

    def disconnected(self, error: RedriveError) -> None:
        """Do nothing: the lock is lost with the link, and is requested again when the link is
        back."""

    def gave_up(self, error: RedriveError) -> None:
        """Fail: there is no link."""
        self._failed(error)

    def ended(self) -> None:
        """Fail: the I/O thread has ended."""
        self._failed(BrokerUnavailable(self._link.address, "the connection was closed"))

    def _ask(self, connection: WireConnection, channel: pika.channel.Channel) -> None:
        channel.add_on_close_callback(lambda _, reason: self._refused(connection, reason))
        who = f"{self._connector.name} as {self._connector.url.username}"
        arguments = {
            "x-queue-type": "classic",
            HOLDER: who,
            SINCE: f"{datetime.now(UTC):%H:%M:%S} UTC",
        }
        channel.queue_declare(
            self._lock, exclusive=True, arguments=arguments, callback=lambda _: self._come.set()
        )

    def _refused(self, connection: WireConnection, reason: BaseException) -> None:
        if (
            self._closing
            or not isinstance(reason, exceptions.ChannelClosedByBroker)
            or not connection.is_open
        ):
            return
        if reason.reply_code == _LOCKED:
            self._taken.set()
            self._link.call_later(_BETWEEN_TRIES, lambda: self._again(connection))
        elif reason.reply_code == _ACCESS_REFUSED:
            # Users who may not lock can still look; what others hold is then reported as missing.
            self._come.set()
        else:
            self._failed(
                broker_errors.of_channel(
                    reason.reply_code,
                    reason.reply_text,
                    f"lock {self._lock!r} with an exclusive queue",
                )
            )

    def _again(self, connection: WireConnection) -> None:
        if connection.is_open and not self._closing:
            self.connected(connection)

    def _failed(self, error: RedriveError) -> None:
        self._failure = self._failure or error
        self._come.set()


_BETWEEN_LOOKS = 0.02
SETTLING = 0.3
_ALL_BACK = 0.05
"""Seconds within which a broker that is still returning messages returns at least one more."""
_RETURNED_WITHIN = 3.0
"""Seconds after which a queue that still grows must be receiving new failures, not returned
messages."""
_OTHERS_LEAVE = 5.0
"""Seconds to wait for another consumer to leave: a broker takes a moment to notice that a process
was killed, and to return what it held."""


class FailedQueueLooks(FailedQueueFacts, MessageSource):
    """A queue of failed messages that can be looked at; held messages are returned in their
    order."""

    def browse(
        self,
        limit: int | None = None,
        *,
        on_progress: OnLook | None = None,
        patience: Duration | None = None,
    ) -> Generator[FailedMessage, None, None]:
        """Yield the messages, oldest first, and leave them in the queue.

        While it runs, the messages are hidden from other consumers. When it ends, or the iterator
        is closed, they are all back in the queue in their original order. Only one look at a queue
        runs at a time; it waits for another one to end.

        A quorum queue keeps its order only if all messages that were returned to it before are
        held. A look that has a limit or ends early therefore also holds the messages behind it
        that an earlier look returned, unless it is interrupted by Ctrl-C.

        Args:
            limit: how many messages at most; None for all that are there at the start.
            on_progress: called with the progress, about ten times a second.
            patience: how long to wait for another look at the queue to end; the queue's timeout by
                default.

        Raises:
            ConfigurationError: there is no such queue, looking would make the broker delete
                messages, or another look did not end.
            BrokerUnavailable: the connection was lost.
        """
        return self._browse(limit, LookReporter(source_of(self).queue, on_progress), patience)

    @contextlib.contextmanager
    def _look(
        self,
        look_at: int | None = None,
        *,
        recall: CachePolicy | None = None,
        on_progress: OnLook | None = None,
        patience: Duration | None = None,
    ) -> Iterator[Look]:
        """Look at the messages for the duration of the block; as with `browse`, they are hidden
        from other consumers meanwhile."""
        name = source_of(self).queue
        keeper = None if recall is None else LookStore(self._connector.url, name, recall)
        former = (
            None
            if keeper is None or recall is None
            else keeper.answer(look_at)
            if not recall.or_look
            else self._former(keeper, look_at, on_progress)
        )
        if former is not None:
            yield former
            return
        if recall is not None and not recall.or_look:
            raise NothingKept(
                f"no earlier look at {name!r} can answer",
                "Look at the queue, which holds its messages.",
            )
        look = Look(name)
        messages = self._browse(look_at, LookReporter(name, on_progress, look.note), patience)
        look.messages = look.counted(messages)
        with contextlib.ExitStack() as held:
            if keeper is not None and look_at is None:
                held.enter_context(keeper.keeping(look))
            try:
                yield look
            except (KeyboardInterrupt, SystemExit) as interrupt:
                # After an interrupt, leave at once without holding the messages behind.
                with contextlib.suppress(StopIteration, type(interrupt)):
                    messages.throw(interrupt)
                raise
            finally:
                messages.close()
                look.as_of = datetime.now(UTC)

    def _former(
        self, keeper: LookStore, limit: int | None, on_progress: OnLook | None
    ) -> Look | None:
        """Return an earlier look that can answer, with the queue's current depth; None if a new
        look is needed."""
        look = keeper.answer(limit)
        if look is None:
            return None
        try:
            depth = self.count()
        except BrokerUnavailable as error:
            look.depth_problem = str(error).partition("\n")[0]
        else:
            if depth is None:
                # The queue is gone; a new look reports that.
                forget(self._connector.url, look.name)
                return None
            look.depth_now = depth.total
        if on_progress is not None:
            on_progress(LookProgress(LookStage.READING, look.total, look.looked_at))
        return look

    def _browse(
        self, limit: int | None, looking: LookReporter, patience: Duration | None
    ) -> Generator[FailedMessage, None, None]:
        source = source_of(self)
        with self._turn(looking, patience=patience) as turn:
            depth, missing, returns = self._ready_to_take(to_return=True, settling=turn.waited)
            count = depth if limit is None else max(0, min(depth, limit))
            looking.begin(depth, count, missing, None if returns is None else returns.returns)
            looked_at = 0
            if not count:
                looking.end(looked_at, missing)
                return
            taking = QueueReader(
                self._connector,
                source.queue,
                prefetch=None,
                most=count,
                expected=count,
                whole=depth,
                ahead=AHEAD,
                returning=looking.returning,
                comes_back=False,
                limit=returns,
            )
            try:
                with taking:
                    for _ in range(count):
                        item = taking.next(self._timeout, empty=self._is_empty)
                        if item is None:
                            missing = None if missing is None else missing + count - looked_at
                            break
                        looked_at += 1
                        looking.looked_at(looked_at)
                        yield source.message_of(item.received)
            finally:
                if taking.held:
                    self._wait_until_back(depth, taking.held)
            looking.end(looked_at, missing)

    def _turn(
        self,
        looking: LookReporter,
        *,
        patience: Duration | None = None,
        stop: Callable[[], bool] = lambda: False,
    ) -> LookLock:
        """Return the exclusive right to hold messages of the queue."""
        return LookLock(
            self._connector,
            source_of(self),
            management_url=self._management_url,
            patience=self._timeout if patience is None else seconds_of(patience),
            waiting=looking.waiting,
            stop=stop,
        )

    def _depth_alone(self, declarer: Declarer, *, settling: bool) -> tuple[int, int | None]:
        """Wait a while for other consumers to leave; return the depth, and how many messages a
        remaining consumer holds, None if unknown."""
        deadline = time.monotonic() + _OTHERS_LEAVE
        while (depth := self._counted(declarer)).consumers and time.monotonic() < deadline:
            settling = True
            time.sleep(_BETWEEN_LOOKS)
        if depth.consumers:
            held = held_in(source_of(self).queue, depth, self._connector, self._management_url)
            return depth.messages, held
        return settled(
            lambda: self._depth(declarer), depth.messages, SETTLING if settling else _ALL_BACK
        ), 0

    def _ready_to_take(
        self, *, to_return: bool, settling: bool
    ) -> tuple[int, int | None, ReturnLimit | None]:
        """Return the depth, how many messages others hold, and how often the queue takes a message
        back.

        With `to_return`, raise ConfigurationError if the broker would delete messages that are
        returned.
        """
        with declaring(self._connector) as declarer:
            self._counted(declarer)
            returns = (
                return_limit(
                    declarer, self._source_on(declarer), self._connector, self._management_url
                )
                if to_return
                else None
            )
            return *self._depth_alone(declarer, settling=settling), returns

    def _wait_until_back(self, count: int, held: int | None = None) -> None:
        """Wait until this many messages are ready: a quorum queue shows returned messages a moment
        after the connection is closed.

        The wait is short, because another consumer may have taken some meanwhile.
        """
        if not count:
            return
        deadline = time.monotonic() + surely_back(count if held is None else held)
        # An unreachable broker has returned everything, too.
        with contextlib.suppress(RedriveError), declaring(self._connector) as declarer:
            while count > self._depth(declarer) and time.monotonic() < deadline:
                time.sleep(_BETWEEN_LOOKS)


def settled(depth: Callable[[], int], seen: int, pause: float) -> int:
    """Return the depth of a queue once it stops growing, or after the time in which messages are
    returned.

    Args:
        depth: reads the depth.
        seen: the last known depth.
        pause: seconds to wait before the first reading.
    """
    deadline = time.monotonic() + _RETURNED_WITHIN
    while True:
        time.sleep(pause)
        before, seen = seen, depth()
        if seen <= before or time.monotonic() > deadline:
            return seen
        pause = SETTLING
