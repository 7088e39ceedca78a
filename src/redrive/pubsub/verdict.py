"""What a shell does with a message: the pure decision, told the time, the host and a new
identity."""

import random
import socket
import uuid
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from typing import NamedTuple

from redrive.errors import ConfigurationError, HandlerTimeout
from redrive.pubsub.handler_error import raised, traceback_of
from redrive.topology.broker_version import BrokerVersion
from redrive.topology.decision import (
    Ack,
    AckIt,
    DecisionContext,
    Drop,
    Handle,
    MoveToFailed,
    Outcome,
    Raised,
    RejectIt,
    RetryByLadder,
    ReturnIt,
    Settlement,
    Step,
    decide,
    is_suspect,
    on_arrival,
    rejection,
    route,
    step_aside,
    whereabouts,
    without_ladder,
)
from redrive.topology.headers import Delivery
from redrive.topology.model import Subscription
from redrive.topology.rewrite import ErrorReport, MoveContext, Publish


class Verdict(NamedTuple):
    """How a message is settled, what the shell does for it, what its handler failed with, and what
    else its log line says."""

    settlement: Settlement
    step: Step
    error: ErrorReport | None = None
    note: str = ""


_DONE = Verdict(Ack(), AckIt())


class Decider:
    """Decides for one subscription on one connection."""

    def __init__(self, subscription: Subscription, broker: BrokerVersion, frame_max: int) -> None:
        self._subscription = subscription
        self._broker = broker
        self._frame_max = frame_max
        self._host = socket.gethostname()

    def arrival(self, delivery: Delivery) -> Handle | Verdict:
        """Whether the handler runs."""
        decision = on_arrival(delivery, self._subscription)
        return decision if isinstance(decision, Handle) else self._routed(decision, delivery, None)

    def is_suspect(self, delivery: Delivery) -> bool:
        """Whether its handler is to run alone in this process: who had it before may have died of
        it."""
        return isinstance(on_arrival(delivery, self._subscription), Handle) and is_suspect(
            delivery, self._subscription
        )

    @property
    def counts_what_is_returned(self) -> bool:
        """Whether the broker counts what goes back to its queue without a verdict."""
        return self._broker.counts_what_is_returned

    def step_aside(self, delivery: Delivery) -> Publish:
        """The publish that takes a message to the end of its queue, with all that was counted."""
        return step_aside(delivery, self._subscription, self._frame_max)

    def success(self) -> Verdict:
        """The handler returned."""
        return _DONE

    def failure(self, delivery: Delivery, error: BaseException) -> Verdict:
        """The handler, or reading its argument, raised."""
        outcome = raised(error, datetime.now(UTC), self._subscription.retry)
        if outcome.after is not None:
            try:
                self._subscription.check_delay(outcome.after)
            except ConfigurationError as too_long:
                outcome = raised(too_long, datetime.now(UTC), self._subscription.retry)
        return self._verdict(delivery, outcome, lambda: traceback_of(error))

    def overdue(self, delivery: Delivery, seconds: float, stack: str) -> Verdict:
        """The handler ran for longer than it may; `stack` is where it hangs."""
        outcome = raised(HandlerTimeout(seconds), datetime.now(UTC), self._subscription.retry)
        return self._verdict(delivery, outcome, lambda: stack)

    def without_ladder(self, delivery: Delivery, verdict: Verdict, why: str) -> Verdict | None:
        """What to do where the delay ladder can't be had: the same retry, by the retry queue. None
        for what needs no ladder."""
        postponed = verdict.settlement
        if not isinstance(postponed, RetryByLadder):
            return None
        instead = without_ladder(postponed, delivery, self._subscription, self._broker)
        note = f"it was to wait {postponed.delay.total_seconds():g} s, which can't be had: {why}"
        return self._routed(instead, delivery, verdict.error)._replace(note=note)

    def rejection(self, delivery: Delivery) -> RejectIt | ReturnIt | None:
        """What has a message tried again without a publish; None where nothing does."""
        return rejection(delivery, self._subscription, self._broker)

    def whereabouts(self, settlement: Settlement) -> str:
        """Where the message is once the verdict was carried out."""
        return whereabouts(settlement, self._subscription)

    def _verdict(
        self, delivery: Delivery, outcome: Outcome, traceback: Callable[[], str] = str
    ) -> Verdict:
        decision = decide(delivery, self._subscription, outcome, self._broker, _now())
        assert not isinstance(decision, Handle)
        if isinstance(decision, MoveToFailed):
            decision = replace(decision, error=replace(decision.error, traceback=traceback()))
        return self._routed(
            decision, delivery, outcome.error if isinstance(outcome, Raised) else None
        )

    def _routed(
        self, settlement: Settlement, delivery: Delivery, error: ErrorReport | None
    ) -> Verdict:
        if isinstance(settlement, Ack):
            return _DONE
        if isinstance(settlement, Drop):
            return Verdict(settlement, AckIt(), error)
        failure_id = ""
        if isinstance(settlement, MoveToFailed):
            error = settlement.error
            failure_id = str(uuid.uuid4())  # a system call: only where it is written
        circumstances = MoveContext(datetime.now(UTC), failure_id, self._host, self._frame_max)
        return Verdict(
            settlement, route(settlement, delivery, self._subscription, circumstances), error
        )


def _now() -> DecisionContext:
    return DecisionContext(datetime.now(UTC), random.random())
