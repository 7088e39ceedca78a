"""Looking at a failed queue without taking from it, and requeueing, from an event loop.

The blocking `FailedQueue` does it, on a thread: what may be held, what keeps its order, and what a
lost connection means is then the same.
"""

import asyncio
import contextlib
import threading
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Collection, Iterable
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import TypeVar

from redrive.failures.failed_message import FailedMessage
from redrive.failures.failed_queue import FailedQueue
from redrive.failures.failed_source import FailedSource
from redrive.failures.filter import Filter, Predicate, check_plain
from redrive.failures.look_progress import OnLook
from redrive.failures.outcome_watch import Watch, Whereabouts
from redrive.failures.requeue import Cancel, Edit, Ledger, Progress
from redrive.failures.return_looks import ReturnLooks
from redrive.failures.way_back import WayBack
from redrive.pubsub.aio.threads import on_thread
from redrive.pubsub.blocking.declarer import Depth
from redrive.pubsub.reports import (
    DiscardReport,
    LookProgress,
    PublishReport,
    RequeueProgress,
    RequeueReport,
)
from redrive.pubsub.service_connection import Address
from redrive.pubsub.tls import ContextSource
from redrive.pubsub.url import Credentials
from redrive.topology.durations import Duration
from redrive.topology.headers import Delivery
from redrive.topology.names import ExchangeFamily
from redrive.topology.outcome_events import Outcomes
from redrive.topology.rewrite import MOST_REDRIVES

T = TypeVar("T")


class AsyncFailedQueue:
    """The failed queue of a subscription, or any other queue of failed messages.

    Args:
        url: the broker's address, or a connection of aio-pika's that was made with it.
        queue: the subscription's main queue; where there is no such subscription, the name of a
            dead-letter queue, whichever framework made it.
        exchange: the main exchange, or a whole family.
        timeout: how long nothing may move before it is an error.
        connection_name: what the broker's management page shows.
        credentials: asked for user and password at each connection, in place of the URL's.
        ssl_context: an ssl.SSLContext, or a function that makes one at each connection, in place of
            the URL's certificate files.
        management_url: where the management API is, for what AMQP can't tell; the broker's host and
            the usual port by default.
        literal: whether the queue of this very name is meant, though a subscription is called so,
            too.

    Raises:
        ConfigurationError: an argument can't be.
    """

    def __init__(
        self,
        url: Address,
        queue: str,
        exchange: str | ExchangeFamily = "master",
        *,
        timeout: Duration = 60.0,
        connection_name: str | None = None,
        credentials: Credentials | None = None,
        ssl_context: ContextSource | None = None,
        management_url: str | None = None,
        literal: bool = False,
    ) -> None:
        self._failed = FailedQueue(
            url,
            queue,
            exchange,
            timeout=timeout,
            connection_name=connection_name,
            credentials=credentials,
            ssl_context=ssl_context,
            management_url=management_url,
            literal=literal,
        )

    async def source(self) -> FailedSource:
        """Which queue was taken, as `FailedQueue.source` tells it."""
        return await on_thread(self._failed.source)

    async def depth(self) -> int:
        """How many messages are ready in the failed queue.

        Raises:
            ConfigurationError: there is no such queue.
            BrokerUnavailable, PermissionDenied: the broker can't be reached.
        """
        return await on_thread(self._failed.depth)

    async def consumers(self) -> int:
        """How many consumers the queue has, as `FailedQueue.consumers` tells it."""
        return await on_thread(self._failed.consumers)

    async def count(self) -> Depth | None:
        """How many messages are in the failed queue, as `FailedQueue.count` tells it."""
        return await on_thread(self._failed.count)

    async def browse(
        self,
        limit: int | None = None,
        *,
        on_progress: OnLook | None = None,
        patience: Duration | None = None,
    ) -> AsyncGenerator[FailedMessage, None]:
        """Shows the messages from the oldest on, and leaves each where it is:
        `async for message in failed.browse()`.

        While it runs the messages are held back from other consumers. When it ends, or the iterator
        is closed, they are all in the queue again, in their order; `FailedQueue.browse` says what
        that means for a limit. A loop that is left in its middle closes the iterator a moment
        later; `contextlib.aclosing` does so at once.

        Args:
            limit: how many at most; None for all that are there when it begins.
            on_progress: told about ten times a second how far it is, on the event loop.
            patience: how long another's look is waited for; the queue's
                timeout by default.

        Raises:
            ConfigurationError: there is no such queue, looking would make the broker delete
                messages, or another's look did not end.
            BrokerUnavailable: the connection was lost.
        """
        loop = asyncio.get_running_loop()

        def told(progress: LookProgress) -> None:
            if on_progress is not None:
                loop.call_soon_threadsafe(on_progress, progress)

        messages = self._failed.browse(
            limit, on_progress=told if on_progress else None, patience=patience
        )
        thread = ThreadPoolExecutor(1, "redrive-browse")
        try:
            while (message := await loop.run_in_executor(thread, next, messages, None)) is not None:
                yield message
        finally:
            # Behind the last look, should that still go on; then all is returned, and what is
            # cancelled waits for it.
            returned = loop.run_in_executor(thread, messages.close)
            thread.shutdown(wait=False)
            await _to_its_end(returned)

    async def requeue(
        self,
        where: Filter | str | Predicate | None = None,
        limit: int | None = None,
        *,
        to: str | None = None,
        via: bool = False,
        rate: float | None = None,
        pace_by_depth: int | None = None,
        edit: Edit | None = None,
        ledger: Ledger | None = None,
        most_redrives: int | None = MOST_REDRIVES,
        job: str | None = None,
        on_progress: Progress | None = None,
        cancel: Cancel | None = None,
    ) -> RequeueReport:
        """Requeues failed messages to their main queue, each with a fresh retry budget.

        Each is published and confirmed before it is acked: at every instant it is in its failed
        queue or confirmed in its main queue. It stops at the depth that it found, so what fails
        again meanwhile stays. What it leaves keeps its order.

        Where it is cancelled, what is on its way is settled before it raises.

        Args:
            where: which, as for `FailedQueue.requeue`; a function is called on another thread. None
                sends all.
            limit: how many are sent at most, the oldest first.
            to: another queue that they go to.
            via: whether they are published as they were first, by their exchange and key.
            rate: how many are sent a second, at most.
            pace_by_depth: they are sent only while the queue that they go to has fewer ready
                messages than this. One that waits holds up those behind it.
            edit: makes the body that is sent of a message, on another thread.
            ledger: is told what is on its way, on another thread.
            most_redrives: what was requeued so often before stays, and is counted in the report;
                None sends it all the same.
            job: an id that each message carries from then on; a UUID where none is given.
            on_progress: told about ten times a second how far it is.
            cancel: an event, asyncio's or threading's: once set, it stops, and what is on its way
                is settled first.

        Returns:
            How many were sent and left, and which could not be sent.

        Raises:
            ConfigurationError: there is no such queue, leaving messages in it would make the broker
                delete them, or `where` is async; or the pace is given and the depth of a queue
                can't be read, or `via` leaves unknown which queue it is.
            BrokerUnavailable: the connection was lost and did not come back. What was not confirmed
                is in the failed queue.
        """
        check_plain("edit", edit)
        return await self._run_out(
            lambda tell, stop: self._failed.requeue(
                where,
                limit,
                to=to,
                via=via,
                rate=rate,
                pace_by_depth=pace_by_depth,
                edit=edit,
                ledger=ledger,
                most_redrives=most_redrives,
                job=job,
                on_progress=tell,
                cancel=stop,
            ),
            on_progress,
            cancel,
        )

    async def discard(
        self,
        where: Filter | str | Predicate | None = None,
        limit: int | None = None,
        *,
        on_progress: Progress | None = None,
        cancel: Cancel | None = None,
    ) -> DiscardReport:
        """Deletes failed messages, for good. What it leaves keeps its order.

        Args:
            where: which, as for `requeue`; None deletes all.
            limit: how many at most, the oldest first.
            on_progress: told about ten times a second how far it is.
            cancel: an event, asyncio's or threading's: once set, it stops.

        Returns:
            How many were deleted and left.

        Raises:
            ConfigurationError: there is no such queue, leaving messages in it would make the broker
                delete them, or a function is async.
            BrokerUnavailable: the connection was lost and did not come back.
        """
        return await self._run_out(
            lambda tell, stop: self._failed.discard(where, limit, on_progress=tell, cancel=stop),
            on_progress,
            cancel,
        )

    async def restore(self, deliveries: Iterable[Delivery]) -> PublishReport:
        """Sets failed messages aside again, from a copy of them; `FailedQueue.restore` says more.
        They are read on another thread.

        Raises:
            ConfigurationError: there is no such queue.
            BrokerUnavailable: no broker answered.
        """
        return await _to_its_end(
            asyncio.ensure_future(
                on_thread(lambda: self._failed.restore(deliveries), "redrive-restore")
            )
        )

    @contextlib.asynccontextmanager
    async def watch(
        self, job: str, queue: str | None = None, arrivals: Collection[WayBack] = ()
    ) -> AsyncIterator[Watch | ReturnLooks]:
        """Counts what becomes of a job's messages for as long as the block:
        `async with failed.watch(job) as watch: watch.standing`.

        Args:
            job: the job's id.
            queue: the main queue that they are sent to; None for their own.
            arrivals: by which exchanges and keys they came to a dead-letter queue, as for
                `FailedQueue.watch`.

        Raises:
            PermissionDenied: the user may not declare a queue to watch through.
            BrokerUnavailable: no broker answered.
        """
        watch = self._failed.watch(job, queue, arrivals)
        await on_thread(watch.__enter__)
        try:
            yield watch
        finally:
            await _to_its_end(asyncio.ensure_future(on_thread(watch.__exit__)))

    async def whereabouts(self, queue: str | None = None) -> Whereabouts:
        """Where messages of the failed queue may be, and how many, as `FailedQueue.whereabouts`
        tells it."""
        return await on_thread(lambda: self._failed.whereabouts(queue))

    async def retry_delay(self, queue: str | None = None) -> timedelta | None:
        """How long a message waits in the retry queue, as `FailedQueue.retry_delay` tells it."""
        return await on_thread(lambda: self._failed.retry_delay(queue))

    async def listen(self, job: str) -> None:
        """Keeps from now on what subscribers tell of a job's messages, for `heard`.

        Raises:
            PermissionDenied: the user may not declare the queue for it.
            BrokerUnavailable: no broker answered.
        """
        await on_thread(lambda: self._failed.listen(job))

    async def heard(self, job: str) -> list[Outcomes]:
        """What subscribers have told of a job's messages since `listen`.

        Raises:
            PermissionDenied: the user may not read it.
            BrokerUnavailable: no broker answered.
        """
        return await on_thread(lambda: self._failed.heard(job))

    @property
    def exchanges(self) -> ExchangeFamily:
        """The exchanges of the failed queue's family."""
        return self._failed.exchanges

    async def purge(self) -> int:
        """Deletes all messages of the failed queue that are ready, for good.

        Returns:
            How many.

        Raises:
            ConfigurationError: there is no such queue.
            PermissionDenied: the user may not.
        """
        return await on_thread(self._failed.purge)

    async def _run_out(
        self,
        run: Callable[[Progress, "_EitherOf"], T],
        on_progress: Progress | None,
        cancel: Cancel | None,
    ) -> T:
        """What a run returns, which is stopped where this is cancelled, and then waited for."""
        loop = asyncio.get_running_loop()
        stop = _EitherOf(cancel)

        def tell(told: RequeueProgress) -> None:
            if on_progress is not None:
                loop.call_soon_threadsafe(on_progress, told)

        return await _to_its_end(
            asyncio.ensure_future(on_thread(lambda: run(tell, stop), "redrive-requeue")), stop.set
        )

    def __repr__(self) -> str:
        return repr(self._failed).replace("FailedQueue", "AsyncFailedQueue", 1)


async def _to_its_end(
    running: asyncio.Future[T], cancelled: Callable[[], object] = lambda: None
) -> T:
    """What it returns. Where this is cancelled, it raises only once that has ended: messages are
    held until then."""
    try:
        return await asyncio.shield(running)
    except asyncio.CancelledError:
        cancelled()
        await asyncio.wait([running])
        if not running.cancelled():
            running.exception()
        raise


class _EitherOf:
    """Set where the caller's event is, or our own."""

    def __init__(self, theirs: Cancel | None) -> None:
        self._theirs = theirs
        self._own = threading.Event()

    def set(self) -> None:
        """Sets our own."""
        self._own.set()

    def is_set(self) -> bool:
        """Whether one of them is."""
        return self._own.is_set() or (self._theirs is not None and self._theirs.is_set())
