"""Looking at a failed queue without taking from it, and sending messages back, from an event loop.

The blocking `FailedQueue` does it, on a thread: what may be held, what keeps its order, and what a lost connection means is then the same.
"""

import asyncio
import inspect
import threading
from collections.abc import AsyncGenerator, Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import TypeVar

from redrive.errors import ConfigurationError
from redrive.pubsub.aio.threads import on_thread
from redrive.pubsub.blocking.declare import Depth
from redrive.pubsub.blocking.failed import FailedQueue
from redrive.pubsub.blocking.looking import OnLook
from redrive.pubsub.blocking.requeue import Cancel, Progress, Where
from redrive.pubsub.config import Credentials
from redrive.pubsub.message import FailedMessage
from redrive.pubsub.report import LookProgress, RequeueProgress, RequeueReport
from redrive.pubsub.tls import ContextSource
from redrive.topology.moves import MOST_REDRIVES
from redrive.topology.names import ExchangeFamily

T = TypeVar("T")


class AsyncFailedQueue:
    """The failed queue of a subscription.

    Args:
        url: the broker's address.
        queue: the subscription's main queue.
        exchange: the main exchange, or a whole family.
        timeout: how long nothing may move before it is an error; seconds, or a timedelta.
        connection_name: what the broker's management page shows.
        credentials: asked for user and password at each connection, in place of the URL's.
        ssl_context: an ssl.SSLContext, or a function that makes one at each connection, in place of the URL's certificate files.
        management_url: where the management API is, for what AMQP can't tell; the broker's host and the usual port by default.

    Raises:
        ConfigurationError: an argument can't be.
    """

    def __init__(
        self,
        url: str,
        queue: str,
        exchange: str | ExchangeFamily = "master",
        *,
        timeout: float | timedelta = 60.0,
        connection_name: str | None = None,
        credentials: Credentials | None = None,
        ssl_context: ContextSource | None = None,
        management_url: str | None = None,
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
        )

    async def depth(self) -> int:
        """How many messages are ready in the failed queue.

        Raises:
            ConfigurationError: there is no such queue.
            BrokerUnavailable, PermissionDenied: the broker can't be reached.
        """
        return await on_thread(self._failed.depth)

    async def count(self) -> Depth | None:
        """How many messages are in the failed queue, as `FailedQueue.count` tells it."""
        return await on_thread(self._failed.count)

    async def browse(
        self, limit: int | None = None, *, on_progress: OnLook | None = None, patience: float | timedelta | None = None
    ) -> AsyncGenerator[FailedMessage, None]:
        """Shows the messages from the oldest on, and leaves each where it is: `async for message in failed.browse()`.

        While it runs the messages are held back from other consumers. When it ends, or the iterator is closed, they are all in the
        queue again, in their order; `FailedQueue.browse` says what that means for a limit. A loop that is left in its middle closes the
        iterator a moment later; `contextlib.aclosing` does so at once.

        Args:
            limit: how many at most; None for all that are there when it begins.
            on_progress: told about ten times a second how far it is, on the event loop.
            patience: how long another's look is waited for; seconds, or a timedelta; the queue's timeout by default.

        Raises:
            ConfigurationError: there is no such queue, looking would make the broker delete messages, or another's look did not end.
            BrokerUnavailable: the connection was lost.
        """
        loop = asyncio.get_running_loop()

        def told(progress: LookProgress) -> None:
            if on_progress is not None:
                loop.call_soon_threadsafe(on_progress, progress)

        messages = self._failed.browse(limit, on_progress=told if on_progress else None, patience=patience)
        thread = ThreadPoolExecutor(1, "redrive-browse")
        try:
            while (message := await loop.run_in_executor(thread, next, messages, None)) is not None:
                yield message
        finally:
            # Behind the last look, should that still go on; then all is given back, and what is cancelled waits for it.
            given_back = loop.run_in_executor(thread, messages.close)
            thread.shutdown(wait=False)
            await _to_its_end(given_back)

    async def requeue(
        self,
        where: Where | None = None,
        limit: int | None = None,
        *,
        most_redrives: int | None = MOST_REDRIVES,
        job: str | None = None,
        progress: Progress | None = None,
        cancel: Cancel | None = None,
    ) -> RequeueReport:
        """Sends failed messages back to their main queue, each with a fresh retry budget.

        Each is published and confirmed before it is acked: at every instant it is in its failed queue or confirmed in its main
        queue. It stops at the depth that it found, so what fails again meanwhile stays. What it leaves keeps its order.

        Where it is cancelled, what is on its way is settled before it raises.

        Args:
            where: says of a message whether it is sent back, on another thread; None sends all.
            limit: how many are sent at most, the oldest first.
            most_redrives: what was sent back so often before stays, and is counted in the report; None sends it all the same.
            job: an id that each message carries from then on; a UUID where none is given.
            progress: told about ten times a second how far it is.
            cancel: an event, asyncio's or threading's: once set, it stops, and what is on its way is settled first.

        Returns:
            How many were sent and left, and which could not be sent.

        Raises:
            ConfigurationError: there is no such queue, leaving messages in it would make the broker delete them, or `where` is async.
            BrokerUnavailable: the connection was lost and did not come back. What was not confirmed is in the failed queue.
        """
        if inspect.iscoroutinefunction(where):
            raise ConfigurationError("requeue was given a `where` that is async, and asks it on a thread", "Make it a plain function.")
        loop = asyncio.get_running_loop()
        cancelled = _EitherOf(cancel)

        def tell(told: RequeueProgress) -> None:
            if progress is not None:
                loop.call_soon_threadsafe(progress, told)

        running = asyncio.ensure_future(
            on_thread(
                lambda: self._failed.requeue(where, limit, most_redrives=most_redrives, job=job, progress=tell, cancel=cancelled),
                "redrive-requeue",
            )
        )
        return await _to_its_end(running, cancelled.set)

    async def purge(self) -> int:
        """Deletes all messages of the failed queue that are ready, for good.

        Returns:
            How many.

        Raises:
            ConfigurationError: there is no such queue.
            PermissionDenied: the user may not.
        """
        return await on_thread(self._failed.purge)

    def __repr__(self) -> str:
        return repr(self._failed).replace("FailedQueue", "AsyncFailedQueue", 1)


async def _to_its_end(running: asyncio.Future[T], cancelled: Callable[[], object] = lambda: None) -> T:
    """What it returns. Where this is cancelled, it raises only once that has ended: messages are held until then."""
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
