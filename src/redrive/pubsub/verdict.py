"""Verdicts: calls the pure decision functions with the time, the host and new ids."""

import random
import socket
import uuid
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from typing import Literal, NamedTuple

from redrive.errors import ConfigurationError, HandlerTimeout
from redrive.pubsub.handler_error import raised, traceback_of
from redrive.topology.broker_version import BrokerVersion
from redrive.topology.decision import (
    Ack,
    AckIt,
    DecisionContext,
    Discard,
    Drop,
    Handle,
    MoveToFailed,
    Outcome,
    Overtaken,
    Raised,
    RejectIt,
    RetryByLadder,
    ReturnIt,
    Settlement,
    Step,
    decide,
    is_suspect,
    on_arrival,
    put_back,
    rejection,
    route,
    step_aside,
    whereabouts,
    without_ladder,
)
from redrive.topology.headers import Delivery
from redrive.topology.model import Subscription
from redrive.topology.parked_keys import ParkedPlace
from redrive.topology.rewrite import ErrorReport, MoveContext, Publish


class Verdict(NamedTuple):
    """How a message is settled, the step that does it, the error that its handler failed with, and
    a note for its log line."""

    settlement: Settlement
    step: Step
    error: ErrorReport | None = None
    note: str = ""


_DONE = Verdict(Ack(), AckIt())

OutageSeen = Literal["known", "likely"] | None
"""Whether an outage failed an attempt: see `Raised`."""


class Decider:
    """Decides for one subscription on one connection."""

    def __init__(self, subscription: Subscription, broker: BrokerVersion, frame_max: int) -> None:
        self._subscription = subscription
        self._broker = broker
        self._frame_max = frame_max
        self._host = socket.gethostname()

    def arrival(self, delivery: Delivery) -> Handle | Verdict:
        """Decide whether the handler runs."""
        decision = on_arrival(delivery, self._subscription)
        return decision if isinstance(decision, Handle) else self._routed(decision, delivery, None)

    def is_suspect(self, delivery: Delivery) -> bool:
        """Check whether its handler should run alone in this process, because the message may have
        killed an earlier worker."""
        return isinstance(on_arrival(delivery, self._subscription), Handle) and is_suspect(
            delivery, self._subscription
        )

    @property
    def counts_what_is_returned(self) -> bool:
        """Whether the broker counts messages that return to their queue without a verdict."""
        return put_back(self._subscription, self._broker).to_end

    def step_aside(self, delivery: Delivery) -> Publish:
        """Return the publish that moves a message to the end of its queue, with its counts."""
        return step_aside(delivery, self._subscription, self._frame_max)

    def success(self) -> Verdict:
        """Return the verdict for a handler that returned."""
        return _DONE

    def failure(
        self, delivery: Delivery, error: BaseException, outage: OutageSeen = None
    ) -> Verdict:
        """Decide after the handler, or reading its argument, raised an error."""
        outcome = raised(error, datetime.now(UTC), self._subscription.retry, outage)
        if outcome.after is not None:
            try:
                self._subscription.check_delay(outcome.after)
            except ConfigurationError as too_long:
                outcome = raised(too_long, datetime.now(UTC), self._subscription.retry)
        return self._verdict(delivery, outcome, lambda: traceback_of(error))

    def overtaken(self, delivery: Delivery) -> Verdict:
        """Return the verdict for a message whose key is parked."""
        return self._verdict(delivery, Overtaken())

    def parked(self, delivery: Delivery, verdict: Verdict, place: ParkedPlace) -> Verdict:
        """Return the verdict for a message that is set aside, with its place in its headers."""
        assert isinstance(verdict.settlement, MoveToFailed)
        return self._routed(replace(verdict.settlement, place=place), delivery, verdict.error)

    def overdue(
        self, delivery: Delivery, error: HandlerTimeout, stack: str, outage: OutageSeen = None
    ) -> Verdict:
        """Decide after a handler timed out; `stack` shows where it hangs."""
        outcome = raised(error, datetime.now(UTC), self._subscription.retry, outage)
        return self._verdict(delivery, outcome, lambda: stack)

    def without_ladder(self, delivery: Delivery, verdict: Verdict, why: str) -> Verdict | None:
        """Return a verdict for the same retry through the retry queue, for when the delay ladder is
        not available; None if this verdict does not need the ladder."""
        postponed = verdict.settlement
        if not isinstance(postponed, RetryByLadder):
            return None
        instead = without_ladder(postponed, delivery, self._subscription, self._broker)
        note = f"it can't wait {postponed.delay.total_seconds():g} s on the delay ladder: {why}"
        return self._routed(instead, delivery, verdict.error)._replace(note=note)

    def rejection(self, delivery: Delivery) -> RejectIt | ReturnIt | None:
        """Return the step that retries a message without a publish; None if there is none."""
        return rejection(delivery, self._subscription, self._broker)

    def whereabouts(self, settlement: Settlement) -> str:
        """Describe where a message is after a settlement."""
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
        if isinstance(settlement, Drop | Discard):
            return Verdict(settlement, AckIt(), error)
        failure_id = ""
        if isinstance(settlement, MoveToFailed):
            error = settlement.error
            failure_id = str(uuid.uuid4())  # a system call: only when it is needed
        context = MoveContext(datetime.now(UTC), failure_id, self._host, self._frame_max)
        return Verdict(settlement, route(settlement, delivery, self._subscription, context), error)


def _now() -> DecisionContext:
    return DecisionContext(datetime.now(UTC), random.random())
