"""One run of a subscriber whose handlers are coroutine functions."""

import asyncio
import logging
from collections.abc import Callable

from redrive.pubsub import telemetry
from redrive.pubsub.aio import outcome_reporter
from redrive.pubsub.aio.connection import Connector, Link
from redrive.pubsub.aio.declarer import declare_on_thread
from redrive.pubsub.aio.workers import Workers
from redrive.pubsub.codec import argument_of
from redrive.pubsub.engine import Engine
from redrive.pubsub.handler import Handler, awaitable_of, check_result
from redrive.pubsub.message import Message
from redrive.pubsub.work import ConsumeOptions, DropCount, WorkItem
from redrive.topology.headers import Delivery
from redrive.topology.model import Subscription

logger = logging.getLogger("redrive")


class TaskEngine(Engine):
    """One run of a subscriber. `known` is set once the broker delivers, or it is clear that it will
    not; `finished` at the end."""

    def __init__(
        self,
        subscription: Subscription,
        connector: Connector,
        handler: Handler,
        options: ConsumeOptions,
        *,
        dropped: DropCount,
        longest: Callable[[float], None],
    ) -> None:
        self.known = asyncio.Event()
        self.finished = asyncio.Event()
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
        self._handler = handler
        self._argument = argument_of(handler)
        link = Link(
            connector,
            self,
            prepare=self.prepare if options.declares else None,
            patience=options.patience,
        )
        self.use(
            link, Workers(options.concurrency, f"redrive-{subscription.queue}", self._work, longest)
        )

    def _finish(self) -> None:
        self._outcomes.leave()
        self.finished.set()
        self.known.set()

    def begun(self) -> None:
        """The broker delivers."""
        super().begun()
        self.known.set()

    async def _work(self, item: WorkItem) -> None:
        verdict = self.arrived(item)
        if verdict is None:
            verdict = self.attempted(item, await self._attempt(item))
        self.settle(item, verdict)

    async def _attempt(self, item: WorkItem) -> BaseException | None:
        """Runs the handler; returns what it raised."""
        assert item.delivery is not None
        with telemetry.attempt(self._subscription.queue, item.delivery) as attempt:
            error = await self._handle(item, item.delivery)
            if error is not None:
                attempt.failed(error)
        return error

    async def _handle(self, item: WorkItem, delivery: Delivery) -> BaseException | None:
        try:
            called = awaitable_of(self._handler, self._handler(self._argument(Message(delivery))))
            check_result("handler", self._handler, await called)
        except asyncio.CancelledError as error:
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                self.leave(item)
                raise
            return error  # something that the handler awaited was cancelled, not the handler
        except BaseException as error:  # noqa: BLE001 - SystemExit in a handler ends the attempt, not the worker
            return error
        return None
