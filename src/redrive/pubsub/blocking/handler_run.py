"""One run of a subscriber whose handlers are plain functions, on threads."""

import threading
from collections.abc import Callable

from redrive.pubsub import telemetry
from redrive.pubsub.blocking.connection import Connector, Link
from redrive.pubsub.blocking.declarer import declare
from redrive.pubsub.blocking.outcome_reporter import OutcomeReporter
from redrive.pubsub.blocking.workers import Workers
from redrive.pubsub.codec import argument_of
from redrive.pubsub.engine import Engine
from redrive.pubsub.handler import Handler, check_result
from redrive.pubsub.message import Message
from redrive.pubsub.work import ConsumeOptions, DropCount, WorkItem
from redrive.topology.model import Subscription


class ThreadEngine(Engine):
    """One run of a subscriber, from its start to its end. `finished` is set at its end."""

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
        self.finished = threading.Event()
        self._outcomes = OutcomeReporter(connector, subscription.exchanges, subscription.queue)
        super().__init__(
            subscription,
            options,
            declare=(lambda levels, again: declare(connector, subscription, levels, again=again))
            if options.declares
            else None,
            dropped=dropped,
            ended=self._finish,
            note=self._outcomes.note,
        )
        self._handler = handler
        self._argument = argument_of(handler)
        link = Link(connector, self, prepare=self.prepare, patience=options.patience)
        workers: Workers[WorkItem] = Workers(
            options.concurrency, f"redrive-{subscription.queue}", self._work, longest
        )
        self.use(link, workers)

    def _finish(self) -> None:
        self._outcomes.close()
        self.finished.set()

    def _work(self, item: WorkItem) -> None:
        verdict = self.arrived(item)
        if verdict is None:
            verdict = self.attempted(item, self._attempt(item))
        self.settle(item, verdict)

    def _attempt(self, item: WorkItem) -> BaseException | None:
        """Runs the handler; returns what it raised."""
        assert item.delivery is not None
        with telemetry.attempt(self._subscription.queue, item.delivery) as attempt:
            try:
                check_result(
                    "handler", self._handler, self._handler(self._argument(Message(item.delivery)))
                )
            except BaseException as error:  # noqa: BLE001 - SystemExit in a handler ends the attempt, not the worker
                attempt.failed(error)
                return error
        return None
