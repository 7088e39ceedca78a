"""Looking at the messages of a failed queue without taking any."""

import contextlib
import time
from collections.abc import Callable, Generator, Iterator
from datetime import UTC, datetime

from redrive.errors import BrokerUnavailable, RedriveError
from redrive.failures.failed_count import held_in
from redrive.failures.failed_message import FailedMessage
from redrive.failures.failed_queue_facts import FailedQueueFacts, source_of
from redrive.failures.index import forget
from redrive.failures.look import CachePolicy, Look, NothingKept
from redrive.failures.look_lock import LookLock
from redrive.failures.look_reporter import LookReporter, OnLook
from redrive.failures.look_store import LookStore
from redrive.failures.message_source import MessageSource
from redrive.failures.return_safety import return_limit
from redrive.pubsub.blocking.declarer import Declarer, declaring
from redrive.pubsub.reports import (
    LookProgress,
    LookStage,
)
from redrive.pubsub.transfer.delivery_limit import ReturnLimit
from redrive.pubsub.transfer.queue_reader import AHEAD, QueueReader, surely_back
from redrive.pubsub.url import seconds_of
from redrive.topology.durations import Duration

_BETWEEN_LOOKS = 0.02
SETTLING = 0.3
_ALL_BACK = 0.05
"""Seconds in which a broker that is still returning what somebody has left returns some of it."""
_RETURNED_WITHIN = 3.0
"""Seconds after which a queue that still grows has new failures, and nothing that somebody
returned."""
_OTHERS_LEAVE = 5.0
"""Seconds that another consumer is waited for: a broker takes a moment to see that a process was
killed, and returns what it held."""


class FailedQueueLooks(FailedQueueFacts, MessageSource):
    """A queue of failed messages that can be looked at: what is held is returned, in its order."""

    def browse(
        self,
        limit: int | None = None,
        *,
        on_progress: OnLook | None = None,
        patience: Duration | None = None,
    ) -> Generator[FailedMessage, None, None]:
        """Shows the messages from the oldest on, and leaves each where it is.

        While it runs the messages are held back from other consumers. When it ends, or the iterator
        is closed, they are all in the queue again, in their order. One look at a queue is made at a
        time: it waits for that of another.

        A quorum queue keeps its order only if all that was returned to it before is held. So a look
        that is limited, or left in its middle, holds the messages behind too, if they were looked
        at before. It does not if it is interrupted by Ctrl-C.

        Args:
            limit: how many at most; None for all that are there when it begins.
            on_progress: told about ten times a second how far it is.
            patience: how long another's look is waited for; the queue's
                timeout by default.

        Raises:
            ConfigurationError: there is no such queue, looking would make the broker delete
                messages, or another's look did not end.
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
        """Look at the messages for as long as the block. They are held back from other consumers
        meanwhile, as `browse` says.

        Args:
            look_at: how many of the oldest; None for all that are there when it begins.
            recall: how an earlier look may answer; None looks at the queue, and keeps nothing.
            on_progress: told about ten times a second how far it is.
            patience: how long another's look is waited for; the queue's timeout by default.

        Raises:
            ConfigurationError: there is no such queue, looking would make the broker delete
                messages, or another's look did not end.
            NothingKept: no earlier look answers, and `recall` says not to look.
            BrokerUnavailable: the connection was lost.
        """
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
                f"nothing that answers is kept of {name!r}", "Look at the queue, which holds it."
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
                # Who interrupts wants to leave at once.
                with contextlib.suppress(StopIteration, type(interrupt)):
                    messages.throw(interrupt)
                raise
            finally:
                messages.close()
                look.as_of = datetime.now(UTC)

    def _former(
        self, keeper: LookStore, limit: int | None, on_progress: OnLook | None
    ) -> Look | None:
        """The earlier look that answers, with how many messages there are now; None where the queue
        has to be looked at."""
        look = keeper.answer(limit)
        if look is None:
            return None
        try:
            depth = self.count()
        except BrokerUnavailable as error:
            look.depth_problem = str(error).partition("\n")[0]
        else:
            if depth is None:
                # There is no such queue any more; to look at it says so.
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
        """The right to hold messages of it, which nobody else has meanwhile."""
        return LookLock(
            self._connector,
            source_of(self),
            management_url=self._management_url,
            patience=self._timeout if patience is None else seconds_of(patience),
            waiting=looking.waiting,
            stop=stop,
        )

    def _depth_alone(self, declarer: Declarer, *, settling: bool) -> tuple[int, int | None]:
        """The depth once no other consumer holds any of it, or has not left for a while; and how
        much such a one holds, None if unknown.

        Args:
            declarer: asks.
            settling: whether somebody held some a moment ago, who may have died: a broker returns
                that in pieces.
        """
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
        """The depth, what others hold, and how often the queue takes a message back; where some
        will be returned, only if the broker deletes none for it."""
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
        """Waits until so many are ready: a quorum queue has what was returned a moment after the
        connection is closed.

        Not for long: another consumer may have taken some meanwhile.

        Args:
            count: how many there must be.
            held: how many of them were held; all of them by default.
        """
        if not count:
            return
        deadline = time.monotonic() + surely_back(count if held is None else held)
        # A broker that is gone has returned everything too.
        with contextlib.suppress(RedriveError), declaring(self._connector) as declarer:
            while count > self._depth(declarer) and time.monotonic() < deadline:
                time.sleep(_BETWEEN_LOOKS)


def settled(depth: Callable[[], int], seen: int, pause: float) -> int:
    """The depth of a queue once it grows no more, or for so long that what comes is new.

    Args:
        depth: asks for it.
        seen: what it was.
        pause: seconds until it is asked for the first time.
    """
    deadline = time.monotonic() + _RETURNED_WITHIN
    while True:
        time.sleep(pause)
        before, seen = seen, depth()
        if seen <= before or time.monotonic() > deadline:
            return seen
        pause = SETTLING
