"""Read and requeue the messages of a failed queue from an event loop.

The blocking `FailedQueue` does the work on a thread, so locking, message order and lost connections
behave the same.
"""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, AsyncIterator, Collection, Generator
from concurrent.futures import ThreadPoolExecutor

from redrive.failures.aio.async_job import AsyncJob
from redrive.failures.aio.offloaded import offloaded
from redrive.failures.failed_queue import FailedQueue
from redrive.failures.message.failed_message import FailedMessage
from redrive.failures.message.route import WayBack
from redrive.failures.queue.failed_queue_base import FormerNames
from redrive.failures.queue.message_source import Where
from redrive.failures.queue.outcome_watch import Watch
from redrive.failures.queue.return_checks import ReturnChecks
from redrive.failures.store.look_reporter import OnLook
from redrive.pubsub.aio.threads import ended, on_loop, on_thread, to_its_end
from redrive.pubsub.service_connection import Address
from redrive.pubsub.tls import ContextSource
from redrive.pubsub.url import Credentials
from redrive.topology.durations import Duration
from redrive.topology.names import ExchangeFamily


class AsyncFailedQueue(FormerNames):
    """The failed queue of a subscription, or any other queue of failed messages, for asyncio.

    Its methods take the same arguments as those of `FailedQueue`, and return and raise the same.
    Functions that are told of progress run on the event loop; `where` and `edit`, and iterables,
    are used on another thread; `cancel` may be an asyncio or a threading event. If a task that
    requeues or discards is cancelled, messages in flight are settled before it raises.

    Args:
        url: the broker's address, or an aio-pika connection that was made with it.
        queue: the subscription's main queue. If there is no such subscription, the name of a
            dead-letter queue, whichever framework created it.
        exchange: the name of the main exchange, or a whole `ExchangeFamily`.
        timeout: how long to wait without any progress before raising an error.
        connection_name: the connection's name on the broker's management page.
        credentials: called for user and password at each connection, in place of those in the URL.
        ssl_context: an ssl.SSLContext, or a function that makes one at each connection, in place of
            the URL's certificate files.
        management_url: the address of the management API, for what AMQP can't report. By default,
            the broker's host and the usual port.
        literal: whether to use the queue with exactly this name even if a subscription has the same
            name.

    Raises:
        ConfigurationError: an argument is invalid.
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
        self._blocking = FailedQueue(
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

    depth = offloaded(FailedQueue.depth, at_once=True)
    count = offloaded(FailedQueue.count, at_once=True)
    purge = offloaded(FailedQueue.purge, at_once=True)
    causes = offloaded(FailedQueue.causes)
    query = offloaded(FailedQueue.query)
    snapshot = offloaded(FailedQueue.snapshot)
    plan = offloaded(FailedQueue.plan)
    requeue = offloaded(FailedQueue.requeue, AsyncJob)
    job = offloaded(FailedQueue.job, AsyncJob, at_once=True)
    discard = offloaded(FailedQueue.discard)
    restore = offloaded(FailedQueue.restore)
    _listen = offloaded(FailedQueue._listen, at_once=True)
    _heard = offloaded(FailedQueue._heard, at_once=True)

    async def browse(
        self,
        limit: int | None = None,
        *,
        on_progress: OnLook | None = None,
        patience: Duration | None = None,
    ) -> AsyncGenerator[FailedMessage, None]:
        """Yield the messages, oldest first, and leave them in the queue:
        `async for message in failed.browse()`.

        While it runs, the messages are hidden from other consumers. When it ends, or the iterator
        is closed, they are all back in the queue in their original order; see `FailedQueue.browse`
        for the effect of a limit. Leaving a loop early closes the iterator a moment later;
        `contextlib.aclosing` closes it at once.

        Args:
            limit: how many messages at most; None for all that are there at the start.
            on_progress: called on the event loop with the progress, about ten times a second.
            patience: how long to wait for another look at the queue to end; the queue's timeout by
                default.

        Raises:
            ConfigurationError: there is no such queue, looking would make the broker delete
                messages, or another look did not end.
            BrokerUnavailable: the connection was lost.
        """
        messages = self._blocking.browse(limit, on_progress=on_loop(on_progress), patience=patience)
        async with contextlib.aclosing(_taken_from(messages)) as taken:
            async for message in taken:
                yield message

    async def messages(
        self,
        where: Where = None,
        limit: int | None = None,
        *,
        look_at: int | None = None,
        on_progress: OnLook | None = None,
    ) -> AsyncGenerator[FailedMessage, None]:
        """Yield the messages that match a filter, oldest first, as `FailedQueue.messages` does:
        `async for message in failed.messages("error_type = 'KeyError'")`.

        Raises:
            ConfigurationError: there is no such queue, or the expression is invalid.
            BrokerUnavailable: the connection was lost.
        """
        told = on_loop(on_progress)
        some = self._blocking.messages(where, limit, look_at=look_at, on_progress=told)
        async with contextlib.aclosing(_taken_from(some)) as taken:
            async for message in taken:
                yield message

    @contextlib.asynccontextmanager
    async def watch(
        self, job: str, queue: str | None = None, arrivals: Collection[WayBack] = ()
    ) -> AsyncIterator[Watch | ReturnChecks]:
        """Count the outcomes of a job's messages for the duration of the block:
        `async with failed.watch(job) as watch: watch.standing`.

        Args:
            job: the job's id.
            queue: the main queue that the messages are sent to; None for each message's own.
            arrivals: the exchanges and keys by which they came to a dead-letter queue, as for
                `FailedQueue.watch`.

        Raises:
            PermissionDenied: the user may not declare a queue to watch through.
            BrokerUnavailable: no broker answered.
        """
        watch = self._blocking.watch(job, queue, arrivals)
        await on_thread(watch.__enter__)
        try:
            yield watch
        finally:
            await to_its_end(watch.__exit__)

    def __repr__(self) -> str:
        return repr(self._blocking).replace("FailedQueue", "AsyncFailedQueue", 1)


async def _taken_from(
    messages: Generator[FailedMessage, None, None],
) -> AsyncGenerator[FailedMessage, None]:
    """Yield the messages, taking all of them on the same thread."""
    loop = asyncio.get_running_loop()
    thread = ThreadPoolExecutor(1, "redrive-browse")
    try:
        while (message := await loop.run_in_executor(thread, next, messages, None)) is not None:
            yield message
    finally:
        # This runs after a read that may still be in progress, and returns all messages to the
        # queue. A cancelled task waits for it.
        returned = loop.run_in_executor(thread, messages.close)
        thread.shutdown(wait=False)
        await ended(returned)
