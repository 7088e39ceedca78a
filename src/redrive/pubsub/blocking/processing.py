"""One run of a subscriber whose handlers are plain functions, on threads."""

import threading
from collections.abc import Callable
from datetime import timedelta

from redrive.pubsub import processing, telemetry
from redrive.pubsub.blocking.connection import Connector, Link
from redrive.pubsub.blocking.declare import declare
from redrive.pubsub.blocking.outcomes import OutcomeReporter
from redrive.pubsub.blocking.workers import Workers
from redrive.pubsub.codec import argument_of
from redrive.pubsub.handler import Handler, check_result
from redrive.pubsub.jobs import Job, Tally
from redrive.pubsub.message import Message
from redrive.pubsub.processing import Where
from redrive.topology.model import Subscription


class Processing(processing.Processing):
    """One run of a subscriber, from its start to its end. `finished` is set at its end."""

    def __init__(
        self,
        subscription: Subscription,
        connector: Connector,
        handler: Handler,
        *,
        concurrency: int,
        prefetch: int,
        declares: bool,
        handler_timeout: float | None,
        where: Where | None,
        tally: Tally,
        patience: timedelta,
        longest: Callable[[float], None],
    ) -> None:
        self.finished = threading.Event()
        self._outcomes = OutcomeReporter(connector, subscription.exchanges, subscription.queue)
        super().__init__(
            subscription,
            concurrency=concurrency,
            prefetch=prefetch,
            declare=(lambda levels, again: declare(connector, subscription, levels, again=again)) if declares else None,
            handler_timeout=handler_timeout,
            where=where,
            tally=tally,
            ended=self._finish,
            note=self._outcomes.note,
        )
        self._handler = handler
        self._argument = argument_of(handler)
        link = Link(connector, self, prepare=self.prepare, patience=patience)
        workers: Workers[Job] = Workers(concurrency, f"redrive-{subscription.queue}", self._work, longest)
        self.use(link, workers)

    def _finish(self) -> None:
        self._outcomes.close()
        self.finished.set()

    def _work(self, job: Job) -> None:
        verdict = self.arrived(job)
        if verdict is None:
            verdict = self.attempted(job, self._attempt(job))
        self.settle(job, verdict)

    def _attempt(self, job: Job) -> BaseException | None:
        """Runs the handler; returns what it raised."""
        assert job.delivery is not None
        with telemetry.attempt(self._subscription.queue, job.delivery) as attempt:
            try:
                check_result("handler", self._handler, self._handler(self._argument(Message(job.delivery))))
            except BaseException as error:  # noqa: BLE001 - SystemExit in a handler ends the attempt, not the worker
                attempt.failed(error)
                return error
        return None
