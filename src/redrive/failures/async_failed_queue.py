"""Read and requeue the messages of a failed queue from an event loop.

The blocking `FailedQueue` does the work on a thread, so locking, message order and lost connections
behave the same.
"""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, AsyncIterator, Collection, Generator, Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from redrive.failures.async_job import AsyncJob
from redrive.failures.canary import Unknown
from redrive.failures.edit import Edit
from redrive.failures.failed_message import FailedMessage
from redrive.failures.failed_queue import (
    FailedQueue,
    carry_out,
    is_looked_at_before,
    order_of,
    plan_order,
)
from redrive.failures.failed_queue_facts import FormerNames
from redrive.failures.groups import Group
from redrive.failures.local_journal import LocalJournal
from redrive.failures.look import QueryResult
from redrive.failures.look_reporter import OnLook
from redrive.failures.message_source import Where
from redrive.failures.outcome_watch import Watch
from redrive.failures.plan import Plan
from redrive.failures.requeue import Cancel, Progress
from redrive.failures.requeue_job import Notice
from redrive.failures.return_checks import ReturnChecks
from redrive.failures.way_back import WayBack
from redrive.pubsub.aio.threads import ended, on_loop, on_thread, run_out, to_its_end
from redrive.pubsub.blocking.declarer import Depth
from redrive.pubsub.reports import DiscardReport, PublishReport
from redrive.pubsub.service_connection import Address
from redrive.pubsub.tls import ContextSource
from redrive.pubsub.url import Credentials
from redrive.topology.durations import Duration
from redrive.topology.headers import Delivery
from redrive.topology.names import ExchangeFamily
from redrive.topology.outcome_events import Outcomes


class AsyncFailedQueue(FormerNames):
    """The failed queue of a subscription, or any other queue of failed messages, for asyncio.

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

    async def depth(self) -> int:
        """Return the number of ready messages in the failed queue.

        Raises:
            ConfigurationError: there is no such queue.
            BrokerUnavailable, PermissionDenied: the broker can't be reached, or refused access.
        """
        return await on_thread(self._failed.depth)

    async def count(self) -> Depth | None:
        """Return how many messages are in the failed queue, as `FailedQueue.count` does."""
        return await on_thread(self._failed.count)

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
        messages = self._failed.browse(limit, on_progress=on_loop(on_progress), patience=patience)
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
        some = self._failed.messages(where, limit, look_at=look_at, on_progress=told)
        async with contextlib.aclosing(_taken_from(some)) as taken:
            async for message in taken:
                yield message

    async def causes(
        self,
        where: Where = None,
        *,
        by: str = "group_id",
        look_at: int | None = None,
        max_age: Duration | None = None,
        on_progress: OnLook | None = None,
    ) -> list[Group]:
        """Return the messages grouped by cause, as `FailedQueue.causes` does."""
        told = on_loop(on_progress)
        return await to_its_end(
            lambda: self._failed.causes(
                where, by=by, look_at=look_at, max_age=max_age, on_progress=told
            )
        )

    async def query(
        self,
        sql: str,
        *,
        look_at: int | None = None,
        max_age: Duration | None = None,
        on_progress: OnLook | None = None,
    ) -> QueryResult:
        """Return the answer to a SELECT from the table `failed`, as `FailedQueue.query` does."""
        told = on_loop(on_progress)
        return await to_its_end(
            lambda: self._failed.query(sql, look_at=look_at, max_age=max_age, on_progress=told)
        )

    async def snapshot(
        self, path: Path | str, where: Where = None, *, on_progress: OnLook | None = None
    ) -> int:
        """Copy messages to a file, as `FailedQueue.snapshot` does; return how many."""
        told = on_loop(on_progress)
        return await to_its_end(lambda: self._failed.snapshot(path, where, on_progress=told))

    async def plan(
        self,
        where: Where = None,
        limit: int | None = None,
        *,
        to: str | None = None,
        via: bool = False,
        unchecked: bool = False,
        canary: int = 0,
        edit: Edit | None = None,
        patch: str | None = None,
        force: bool = False,
        on_progress: OnLook | None = None,
    ) -> Plan:
        """Return what `requeue` with the same arguments would send, as `FailedQueue.plan` does."""
        told = on_loop(on_progress)
        return await to_its_end(
            lambda: self._failed.plan(
                where,
                limit,
                to=to,
                via=via,
                canary=canary,
                edit=edit,
                patch=patch,
                force=force,
                unchecked=unchecked,
                on_progress=told,
            )
        )

    async def requeue(
        self,
        where: Where = None,
        limit: int | None = None,
        *,
        to: str | None = None,
        via: bool = False,
        unchecked: bool = False,
        rate: float | None = None,
        pace_by_depth: int | None = None,
        canary: int = 0,
        watch: Duration | None = None,
        stop_at: float | None = None,
        unknown: Unknown = Unknown.STOP,
        edit: Edit | None = None,
        patch: str | None = None,
        force: bool = False,
        reason: str = "",
        journal: LocalJournal | None = None,
        job: str | None = None,
        on_progress: Progress | None = None,
        on_notice: Notice | None = None,
        cancel: Cancel | None = None,
    ) -> AsyncJob:
        """Requeue failed messages to their main queue, each with a fresh retry budget.

        Takes the same arguments as `FailedQueue.requeue`. If the task is cancelled, messages in
        flight are settled before it raises. `where` and `edit` are called on another thread,
        `on_progress` and `on_notice` on the event loop. `cancel` may be an asyncio or a threading
        event.

        Raises:
            ConfigurationError: there is no such queue, leaving messages in it would make the broker
                delete them, or an argument is invalid; see `FailedQueue.requeue`.
            BrokerUnavailable: the connection was lost and did not come back. Unconfirmed messages
                are still in the failed queue.
        """
        order = order_of(
            where,
            limit,
            to=to,
            via=via,
            unchecked=unchecked,
            rate=rate,
            pace_by_depth=pace_by_depth,
            canary=canary,
            watch=watch,
            stop_at=stop_at,
            unknown=unknown,
            edit=edit,
            patch=patch,
            force=force,
        )
        plan = None
        if is_looked_at_before(order, journal):
            plan = await to_its_end(lambda: plan_order(self._failed, order))
        tell_people = on_loop(on_notice)
        return AsyncJob(
            await run_out(
                lambda tell, stop: carry_out(
                    self._failed,
                    order,
                    plan,
                    reason=reason,
                    journal=journal,
                    job=job,
                    on_progress=tell,
                    on_notice=tell_people,
                    cancel=stop,
                ),
                on_progress,
                cancel,
            )
        )

    async def job(self, id_: str, journal: LocalJournal) -> AsyncJob:
        """Return a requeue of this queue from a journal, as `FailedQueue.job` does."""
        return AsyncJob(await on_thread(lambda: self._failed.job(id_, journal)))

    async def discard(
        self,
        where: Where = None,
        limit: int | None = None,
        *,
        on_progress: Progress | None = None,
        cancel: Cancel | None = None,
    ) -> DiscardReport:
        """Delete failed messages for good. The remaining messages keep their order.

        Args:
            where: which messages, as for `requeue`; None deletes all.
            limit: how many at most, oldest first.
            on_progress: called with the progress, about ten times a second.
            cancel: an asyncio or threading event; the deletion stops once it is set.

        Returns:
            How many messages were deleted and how many were left.

        Raises:
            ConfigurationError: there is no such queue, leaving messages in it would make the broker
                delete them, or a function is async.
            BrokerUnavailable: the connection was lost and did not come back.
        """
        return await run_out(
            lambda tell, stop: self._failed.discard(where, limit, on_progress=tell, cancel=stop),
            on_progress,
            cancel,
        )

    async def restore(self, deliveries: Iterable[Delivery]) -> PublishReport:
        """Put failed messages back into the failed queue from a copy; see `FailedQueue.restore`.

        The deliveries are read on another thread.

        Raises:
            ConfigurationError: there is no such queue.
            BrokerUnavailable: no broker answered.
        """
        return await to_its_end(lambda: self._failed.restore(deliveries))

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
        watch = self._failed.watch(job, queue, arrivals)
        await on_thread(watch.__enter__)
        try:
            yield watch
        finally:
            await to_its_end(watch.__exit__)

    async def purge(self) -> int:
        """Delete all ready messages of the failed queue for good.

        Returns:
            How many messages were deleted.

        Raises:
            ConfigurationError: there is no such queue.
            PermissionDenied: the user may not purge the queue.
        """
        return await on_thread(self._failed.purge)

    async def _listen(self, job: str) -> None:
        await on_thread(lambda: self._failed._listen(job))

    async def _heard(self, job: str) -> list[Outcomes]:
        return await on_thread(lambda: self._failed._heard(job))

    def __repr__(self) -> str:
        return repr(self._failed).replace("FailedQueue", "AsyncFailedQueue", 1)


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
