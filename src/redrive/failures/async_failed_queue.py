"""Looking at a failed queue without taking from it, and requeueing, from an event loop.

The blocking `FailedQueue` does it, on a thread: what may be held, what keeps its order, and what a
lost connection means is then the same.
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
        """The messages that a filter means, from the oldest on, as `FailedQueue.messages` gives
        them: `async for message in failed.messages("error_type = 'KeyError'")`.

        Raises:
            ConfigurationError: there is no such queue, or the expression can't be used.
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
        """What the messages have failed for, as `FailedQueue.causes` tells it."""
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
        """The answer to a SELECT from the table `failed`, as `FailedQueue.query` gives it."""
        told = on_loop(on_progress)
        return await to_its_end(
            lambda: self._failed.query(sql, look_at=look_at, max_age=max_age, on_progress=told)
        )

    async def snapshot(
        self, path: Path | str, where: Where = None, *, on_progress: OnLook | None = None
    ) -> int:
        """Copies messages to a file, as `FailedQueue.snapshot` does; returns how many."""
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
        """What `requeue` with the same arguments would send, as `FailedQueue.plan` tells it."""
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
        """Requeues failed messages to their main queue, each with a fresh retry budget, as
        `FailedQueue.requeue` does, whose arguments these are.

        Where it is cancelled, what is on its way is settled before it raises. `where` and `edit`
        are called on another thread; `on_progress` and `on_notice` on the event loop. `cancel` may
        be an event of asyncio's or of threading's.

        Raises:
            ConfigurationError: there is no such queue, leaving messages in it would make the broker
                delete them, or an argument can't be used; `FailedQueue.requeue` says more.
            BrokerUnavailable: the connection was lost and did not come back. What was not confirmed
                is in the failed queue.
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
        """A requeue of this queue that a journal has, as `FailedQueue.job` finds it."""
        return AsyncJob(await on_thread(lambda: self._failed.job(id_, journal)))

    async def discard(
        self,
        where: Where = None,
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
        return await run_out(
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
        return await to_its_end(lambda: self._failed.restore(deliveries))

    @contextlib.asynccontextmanager
    async def watch(
        self, job: str, queue: str | None = None, arrivals: Collection[WayBack] = ()
    ) -> AsyncIterator[Watch | ReturnChecks]:
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
            await to_its_end(watch.__exit__)

    async def purge(self) -> int:
        """Deletes all messages of the failed queue that are ready, for good.

        Returns:
            How many.

        Raises:
            ConfigurationError: there is no such queue.
            PermissionDenied: the user may not.
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
    """The messages, each taken on one thread."""
    loop = asyncio.get_running_loop()
    thread = ThreadPoolExecutor(1, "redrive-browse")
    try:
        while (message := await loop.run_in_executor(thread, next, messages, None)) is not None:
            yield message
    finally:
        # Behind the last look, should that still go on; then all is returned, and what is
        # cancelled waits for it.
        returned = loop.run_in_executor(thread, messages.close)
        thread.shutdown(wait=False)
        await ended(returned)
