"""One run of a subscriber whose handlers are coroutine functions."""

import asyncio
import contextlib
import logging
import time
from collections.abc import Awaitable, Callable
from functools import partial
from typing import cast

from redrive.errors import HandlerTimeout
from redrive.pubsub import lifecycle, telemetry
from redrive.pubsub.aio import outcome_reporter
from redrive.pubsub.aio.connection import Connector, Link, publishing_connection
from redrive.pubsub.aio.declarer import declare_on_thread
from redrive.pubsub.aio.loop_watch import watch_of_loop
from redrive.pubsub.aio.workers import TimedCoroutine, Workers
from redrive.pubsub.attempt import AsyncMiddleware, AsyncMiddlewareCall, Attempt, hook_failed
from redrive.pubsub.control_follower import Controls
from redrive.pubsub.engine import Engine
from redrive.pubsub.handler import awaitable_of, check_result
from redrive.pubsub.handler_table import HandlerTable
from redrive.pubsub.message import Message, begin_handling, end_handling
from redrive.pubsub.own_publisher import Moves
from redrive.pubsub.publishing_connection import SUFFIX, PublishingConnection
from redrive.pubsub.shared_link import LinkBranch, SharedLink
from redrive.pubsub.verdict import Verdict
from redrive.pubsub.work import ConsumeOptions, LossCounter, WorkItem
from redrive.topology.model import Subscription

logger = logging.getLogger("redrive")


class TaskEngine(Engine):
    """One run of a subscriber.

    `known` is set once the broker delivers, or once it is clear that it will not; `finished` is set
    at the end.
    """

    def __init__(
        self,
        subscription: Subscription,
        connector: Connector,
        handlers: HandlerTable,
        options: ConsumeOptions,
        *,
        dropped: LossCounter,
        longest: Callable[[float], None],
        shared: SharedLink | None = None,
        publishing: PublishingConnection | None = None,
    ) -> None:
        self.known = asyncio.Event()
        self.finished = asyncio.Event()
        self._telling: set[asyncio.Future[None]] = set()
        self._outcomes = outcome_reporter.reporter(
            connector, subscription.exchanges, subscription.queue
        )
        super().__init__(
            subscription,
            options,
            declare=(
                lambda levels, again: declare_on_thread(
                    connector, subscription, levels, again=again
                )
            )
            if options.declares
            else None,
            dropped=dropped,
            ended=self._finish,
            note=self._outcomes.note,
        )
        self._call = handlers.call()
        self._handlers = handlers
        prepare = self.prepare if options.declares else None
        link: lifecycle.Link = (
            Link(connector, self, prepare=prepare, patience=options.patience)
            if shared is None
            else LinkBranch(shared, self, prepare=prepare, patience=options.patience)
        )
        publishes = publishing or publishing_connection(connector.beside(SUFFIX))
        self.use(
            link,
            Workers(
                options.concurrency,
                f"redrive-{subscription.queue}",
                self._work,
                longest,
                self.ended_late,
            ),
            Moves(
                partial(publishes.link_for, patience=options.patience),
                publishes.when_closed,
            ),
            controls=Controls(link.call_later) if shared is None else shared.controls,
            owns_controls=shared is None,
        )
        self._loop_watch = watch_of_loop()
        self._loop_watch.enter()

    def _finish(self) -> None:
        self._outcomes.leave()
        self._loop_watch.leave()
        self.finished.set()
        self.known.set()

    def begun(self) -> None:
        """Note that the broker delivers."""
        super().begun()
        self.known.set()

    async def _work(self, item: WorkItem) -> None:
        if self.skips(item):
            return
        limit = self._options.handler_timeout
        try:
            verdict = await (
                self.verdict(item) if limit is None else TimedCoroutine(self.verdict(item), item)
            )
        except asyncio.CancelledError:
            if not item.settled:
                self.leave(item)
            raise
        except BaseException:  # noqa: BLE001 - however this task ends, the message must not be lost
            verdict = self.not_judged()
        self.settle(item, verdict)

    async def verdict(self, item: WorkItem) -> Verdict:
        """Decide about a delivery, running its handler unless its headers decide. Nothing is
        settled yet."""
        verdict = self.arrived(item)
        if verdict is None:
            return await self._attempt(item)
        if self._options.on_give_up and item.delivery is not None:
            await self._tell(Attempt(self.message_of(item.delivery), lambda _: verdict))
        return verdict

    async def _attempt(self, item: WorkItem) -> Verdict:
        """Run the handler with its tracing and hooks."""
        assert item.delivery is not None
        message = self.message_of(item.delivery, item)
        token = begin_handling(message, is_async=True)
        try:
            attempt = Attempt(message, lambda error: self.attempted(item, error))
            watch = None
            if telemetry.active is not None:
                watch = telemetry.active.begun(self._subscription.queue, item.delivery)
            try:
                attempt.error = await self._error_of(item, attempt)
                self.check_process(attempt.error)  # middleware may fork as well
            finally:
                if watch is not None:
                    telemetry.ended(watch, attempt.error)
            if attempt.error is not None and self._options.on_give_up:
                await self._tell(attempt)
            return attempt.verdict
        finally:
            end_handling(token)

    async def _error_of(self, item: WorkItem, attempt: Attempt) -> BaseException | None:
        try:
            if self._options.middleware:
                await self._handle_within(item, attempt)
            else:
                await self._handle(item, attempt.message)
        except BaseException as error:  # SystemExit in a handler ends the attempt, not the worker
            if _is_cancelled(error):
                raise
            return error
        return None

    async def _handle(self, item: WorkItem, message: Message) -> None:
        try:
            called = self._call(message)
            if not isinstance(called, Awaitable):
                called = awaitable_of(self._handlers.named(message), called)
            result = await called
        except BaseException as error:
            self.check_process(error)
            raise
        self.check_process(None)
        if result is not None:
            check_result("handler", self._handlers.named(message), result)
        self._check_held(item)
        for act in self.before_ack(item):
            await cast("Awaitable[object]", act())

    def _check_held(self, item: WorkItem) -> None:
        """Raise HandlerTimeout if a handler has blocked the event loop for longer than its timeout:
        nothing could interrupt it in the meantime."""
        limit = self._options.handler_timeout
        if limit is None:
            return
        held = item.held + time.monotonic() - item.step_began
        if held > limit:
            logger.error(
                "%s: its handler blocked the event loop for %.1f s; its timeout is %g s",
                item.name,
                held,
                limit,
            )
            raise HandlerTimeout(limit)

    async def _handle_within(self, item: WorkItem, attempt: Attempt) -> None:
        """Run the handler inside the middleware."""
        async with contextlib.AsyncExitStack() as stack:
            for middleware in self._options.middleware:
                await stack.enter_async_context(
                    AsyncMiddlewareCall(attempt, cast(AsyncMiddleware, middleware))
                )
            await self._handle(item, attempt.message)

    def gives_up(self, item: WorkItem, verdict: Verdict) -> None:
        """Call the hooks for a message whose handler is abandoned, in a separate task."""
        if item.delivery is not None:
            told = asyncio.ensure_future(
                self._tell(Attempt(self.message_of(item.delivery), lambda _: verdict))
            )
            self._telling.add(told)
            told.add_done_callback(self._telling.discard)

    async def _tell(self, attempt: Attempt) -> None:
        if not attempt.gave_up:
            return
        for hook in self._options.on_give_up:
            try:
                told = hook(attempt)
                if isinstance(told, Awaitable):
                    await told
            except BaseException as error:  # SystemExit in a hook ends only the hook
                if _is_cancelled(error):
                    raise
                hook_failed(hook, error)


def _is_cancelled(error: BaseException) -> bool:
    """Return whether the error is the cancellation of the current task, and not of something it
    awaited."""
    if not isinstance(error, asyncio.CancelledError):
        return False
    task = asyncio.current_task()
    return task is not None and bool(task.cancelling())
