"""One run of a subscriber whose handlers are plain functions, on threads."""

import contextlib
import threading
from collections.abc import Callable
from functools import partial
from typing import cast

from redrive.pubsub import lifecycle, telemetry
from redrive.pubsub.attempt import Attempt, Middleware, MiddlewareCall, hook_failed
from redrive.pubsub.blocking.connection import Connector, Link, publishing_connection
from redrive.pubsub.blocking.declarer import declare
from redrive.pubsub.blocking.outcome_reporter import OutcomeReporter
from redrive.pubsub.blocking.workers import Workers
from redrive.pubsub.control_follower import Controls
from redrive.pubsub.engine import Engine
from redrive.pubsub.handler import check_result
from redrive.pubsub.handler_table import HandlerTable
from redrive.pubsub.message import Message, begin_handling, end_handling
from redrive.pubsub.own_publisher import Moves
from redrive.pubsub.publishing_connection import SUFFIX, PublishingConnection
from redrive.pubsub.shared_link import LinkBranch, SharedLink
from redrive.pubsub.verdict import Verdict
from redrive.pubsub.work import ConsumeOptions, LossCounter, WorkItem
from redrive.topology.model import Subscription


class ThreadEngine(Engine):
    """One run of a subscriber, from start to end.

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
        self.known = threading.Event()
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
        self._call = handlers.call()
        self._handlers = handlers
        prepare = self.prepare if options.declares else None
        link: lifecycle.Link = (
            Link(connector, self, prepare=prepare, patience=options.patience)
            if shared is None
            else LinkBranch(shared, self, prepare=prepare, patience=options.patience)
        )
        workers: Workers[WorkItem] = Workers(
            options.concurrency,
            f"redrive-{subscription.queue}",
            self._work,
            longest,
            self.ended_late,
        )
        publishes = publishing or publishing_connection(connector.beside(SUFFIX))
        self.use(
            link,
            workers,
            Moves(
                partial(publishes.link_for, patience=options.patience),
                publishes.when_closed,
            ),
            controls=Controls(link.call_later) if shared is None else shared.controls,
            owns_controls=shared is None,
        )

    def begun(self) -> None:
        """Note that the broker delivers."""
        super().begun()
        self.known.set()

    def _finish(self) -> None:
        self.known.set()
        # Not on the connection's thread, which others may be waiting for.
        self._outcomes.when_told(self.finished.set)

    def _work(self, item: WorkItem) -> None:
        if self.skips(item):
            return
        try:
            verdict = self.verdict(item)
        except BaseException:  # noqa: BLE001 - however this ends, the message must not be lost
            verdict = self.not_judged()
        self.settle(item, verdict)

    def verdict(self, item: WorkItem) -> Verdict:
        """Decide about a delivery, running its handler unless its headers decide. Nothing is
        settled yet."""
        verdict = self.arrived(item)
        if verdict is None:
            return self._attempt(item)
        if self._options.on_give_up and item.delivery is not None:
            self._tell(Attempt(self.message_of(item.delivery), lambda _: verdict))
        return verdict

    def _attempt(self, item: WorkItem) -> Verdict:
        """Run the handler with its tracing and hooks."""
        assert item.delivery is not None
        message = self.message_of(item.delivery, item)
        token = begin_handling(message, is_async=False)
        try:
            attempt = Attempt(message, lambda error: self.attempted(item, error))
            watch = None
            if telemetry.active is not None:
                watch = telemetry.active.begun(self._subscription.queue, item.delivery)
            try:
                if self._options.middleware:
                    self._handle_within(item, attempt)
                else:
                    self._handle(item, message)
            except BaseException as error:  # noqa: BLE001 - SystemExit in a handler ends the attempt, not the worker
                attempt.error = error
            self.check_process(attempt.error)  # middleware may fork as well
            if watch is not None:
                telemetry.ended(watch, attempt.error)
            if attempt.error is not None and self._options.on_give_up:
                self._tell(attempt)
            return attempt.verdict
        finally:
            end_handling(token)

    def _handle(self, item: WorkItem, message: Message) -> None:
        try:
            result = self._call(message)
        except BaseException as error:
            self.check_process(error)
            raise
        self.check_process(None)
        if result is not None:
            check_result("handler", self._handlers.named(message), result)
        for act in self.before_ack(item):
            act()

    def _handle_within(self, item: WorkItem, attempt: Attempt) -> None:
        """Run the handler inside the middleware."""
        with contextlib.ExitStack() as stack:
            for middleware in self._options.middleware:
                stack.enter_context(MiddlewareCall(attempt, cast(Middleware, middleware)))
            self._handle(item, attempt.message)

    def gives_up(self, item: WorkItem, verdict: Verdict) -> None:
        """Call the hooks for a message whose handler is abandoned, on a separate thread."""
        if item.delivery is not None:
            attempt = Attempt(self.message_of(item.delivery), lambda _: verdict)
            threading.Thread(
                target=self._tell, args=(attempt,), name="redrive-give-up", daemon=True
            ).start()

    def _tell(self, attempt: Attempt) -> None:
        if not attempt.gave_up:
            return
        for hook in self._options.on_give_up:
            try:
                check_result("hook", hook, hook(attempt))
            except BaseException as error:  # noqa: BLE001 - SystemExit in a hook ends only the hook
                hook_failed(hook, error)
