"""One run of a subscriber whose handlers are coroutine functions."""

import asyncio
import logging
from collections.abc import Callable
from datetime import timedelta

from redrive.pubsub import processing, telemetry
from redrive.pubsub.aio import outcomes
from redrive.pubsub.aio.connection import Connector, Link
from redrive.pubsub.aio.workers import Workers
from redrive.pubsub.codec import argument_of
from redrive.pubsub.handler import Handler, awaitable_of, check_result
from redrive.pubsub.jobs import Job, Tally
from redrive.pubsub.message import Message
from redrive.pubsub.processing import Where
from redrive.topology.headers import Delivery
from redrive.topology.model import Subscription

logger = logging.getLogger("redrive")


class Processing(processing.Processing):
    """One run of a subscriber. `known` is set once the broker delivers, or it is clear that it will not; `finished` at the end."""

    def __init__(
        self,
        subscription: Subscription,
        connector: Connector,
        handler: Handler,
        *,
        concurrency: int,
        prefetch: int,
        declare: Callable[[int, bool], object] | None,
        handler_timeout: float | None,
        where: Where | None,
        tally: Tally,
        patience: timedelta,
        longest: Callable[[float], None],
    ) -> None:
        self.known = asyncio.Event()
        self.finished = asyncio.Event()
        self._outcomes = outcomes.reporter(connector, subscription.exchanges, subscription.queue)
        super().__init__(
            subscription,
            concurrency=concurrency,
            prefetch=prefetch,
            declare=declare,
            handler_timeout=handler_timeout,
            where=where,
            tally=tally,
            ended=self._finish,
            note=self._outcomes.note,
        )
        self._handler = handler
        self._argument = argument_of(handler)
        link = Link(connector, self, prepare=self.prepare if declare is not None else None, patience=patience)
        self.use(link, Workers(concurrency, f"redrive-{subscription.queue}", self._work, longest))

    def _finish(self) -> None:
        self._outcomes.leave()
        self.finished.set()
        self.known.set()

    def begun(self) -> None:
        """The broker delivers."""
        self.known.set()

    async def _work(self, job: Job) -> None:
        verdict = self.arrived(job)
        if verdict is None:
            verdict = self.attempted(job, await self._attempt(job))
        self.settle(job, verdict)

    async def _attempt(self, job: Job) -> BaseException | None:
        """Runs the handler; returns what it raised."""
        assert job.delivery is not None
        with telemetry.attempt(self._subscription.queue, job.delivery) as attempt:
            error = await self._handle(job, job.delivery)
            if error is not None:
                attempt.failed(error)
        return error

    async def _handle(self, job: Job, delivery: Delivery) -> BaseException | None:
        try:
            called = awaitable_of(self._handler, self._handler(self._argument(Message(delivery))))
            check_result("handler", self._handler, await called)
        except asyncio.CancelledError as error:
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                self.leave(job)
                raise
            return error  # something that the handler awaited was cancelled, not the handler
        except BaseException as error:  # noqa: BLE001 - SystemExit in a handler ends the attempt, not the worker
            return error
        return None
