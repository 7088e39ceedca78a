"""Decide what happens to a message: `decide` returns the decision, `route` what to publish where.

Both are pure functions. A shell runs the handler, publishes with confirm, acks or rejects; it
contains no policy, header name or delay.
"""

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Literal, assert_never, get_args

from redrive.topology import headers, names, rewrite
from redrive.topology.backoff import Linear
from redrive.topology.broker_version import BrokerVersion
from redrive.topology.headers import Delivery
from redrive.topology.ladder import Ladder
from redrive.topology.model import Subscription
from redrive.topology.parked_keys import ParkedPlace
from redrive.topology.policy import THE_USUAL, ErrorRule, RetryPolicy, most_retries_of
from redrive.topology.rewrite import ErrorReport, MoveContext, Publish

Reason = Literal[
    "retries-exhausted",
    "not-retryable",
    "gave-up",
    "invalid-message",
    "crashed",
    "too-old",
    "behind",
]
REASONS: tuple[Reason, ...] = get_args(Reason)
"""The reasons to set a message aside."""


# --- what a shell reports -------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Arrived:
    """The message has arrived; its handler has not run yet."""


@dataclass(frozen=True, slots=True)
class Handled:
    """The handler returned."""


@dataclass(frozen=True, slots=True)
class Raised:
    """The handler failed.

    Args:
        error: what it raised.
        give_up: None if the retry budget decides; otherwise why no retry can help.
        rule: the policy's rule for the exception.
        after: how long the handler wants the message to wait; None leaves it to the policy.
        outage: whether the message is not to blame, because something that handlers need is down:
            `known` if that was known before this attempt failed, `likely` if this attempt found it
            out, or tried whether it is over.
    """

    error: ErrorReport
    give_up: Literal["gave-up", "invalid-message"] | None = None
    rule: ErrorRule = THE_USUAL
    after: timedelta | None = None
    outage: Literal["known", "likely"] | None = None


@dataclass(frozen=True, slots=True)
class Overtaken:
    """It is the message's turn, but an earlier one of its key is in the failed queue."""


Outcome = Arrived | Handled | Raised | Overtaken


# --- decisions ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Handle:
    """Run the handler.

    Args:
        retries: the retries made before this attempt.
    """

    retries: int


_FIRST_ATTEMPT = Handle(0)
"""A message that neither came back nor was delivered before has no history, whatever its headers
say."""


@dataclass(frozen=True, slots=True)
class Ack:
    """The message is done: ack it."""


@dataclass(frozen=True, slots=True)
class RetryByReject:
    """Reject the message: the broker itself moves it to the retry queue and counts.

    Args:
        retry: the number of this retry, from 1.
        delay: how long it waits.
        allowed: how many retries this failure is allowed.
    """

    retry: int
    delay: timedelta
    allowed: int


@dataclass(frozen=True, slots=True)
class RetryByRepublish:
    """Publish the message to the retry queue: other clients share the topology and do so too, or
    the broker must not go on counting in its `x-death`.

    Args:
        retry: the number of this retry, from 1.
        delay: how long it waits.
        allowed: how many retries this failure is allowed.
        counts_on: whether the broker goes on counting in the message's `x-death`.
    """

    retry: int
    delay: timedelta
    allowed: int
    counts_on: bool = False


@dataclass(frozen=True, slots=True)
class RetryByLadder:
    """Publish the message to the delay ladder: its delay differs from the retry queue's.

    Args:
        retry: the number of this retry, from 1.
        delay: how long it waits.
        allowed: how many retries this failure is allowed.
    """

    retry: int
    delay: timedelta
    allowed: int


@dataclass(frozen=True, slots=True)
class RetryByBroker:
    """Reject the message with requeueing: the broker itself counts it and holds it back in its
    queue.

    Args:
        retry: the number of this retry, from 1.
        delay: how long it is held back.
        allowed: how many retries this failure is allowed.
    """

    retry: int
    delay: timedelta
    allowed: int


@dataclass(frozen=True, slots=True)
class RetryInPlace:
    """Hold the message for a while, then return it: the broker counts the return and redelivers it
    at once, before all others. Later messages of its key wait meanwhile.

    Args:
        retry: the number of this retry, from 1.
        delay: how long it is held.
        allowed: how many retries this failure is allowed.
    """

    retry: int
    delay: timedelta
    allowed: int


@dataclass(frozen=True, slots=True)
class PutBack:
    """Return the message to its queue as if it had not been tried.

    Args:
        to_end: whether it goes to the end of its queue, by a publish that keeps its counts. A
            return to its place would be counted as a crash, or bring it back at once.
    """

    to_end: bool


@dataclass(frozen=True, slots=True)
class MoveToFailed:
    """Set the message aside in the failed queue.

    Args:
        reason: why there is no further retry.
        error: the last attempt's error.
        retries: the retries that were made.
        place: its key and its place among the messages that are parked for it; None if it is not
            parked.
        kind: which failed queue, if its error's rule names one.
    """

    reason: Reason
    error: ErrorReport
    retries: int
    place: ParkedPlace | None = None
    kind: str = ""


@dataclass(frozen=True, slots=True)
class Discard:
    """Ack the message although it failed, because its error's rule says so: nothing is set aside.

    Args:
        reason: why there is no further retry.
        retries: the retries that were made.
    """

    reason: Reason
    retries: int


@dataclass(frozen=True, slots=True)
class Drop:
    """Ack the message although it failed: broadcast messages are not retried."""


Retried = RetryByReject | RetryByRepublish | RetryByLadder | RetryByBroker | RetryInPlace
Settlement = Ack | Retried | PutBack | MoveToFailed | Discard | Drop
Decision = Handle | Settlement
WithoutLadder = RetryByReject | RetryByRepublish | RetryByBroker


def retries_made(delivery: Delivery) -> int:
    """Return how many retries of this message were made before this delivery.

    A message that did not come through a retry can't have been retried here: headers that say so
    are copied or forged. In an ordered queue, and where the broker holds messages back, each return
    counts, whoever made it: a worker that died had tried the message, or it would have returned it.
    """
    noted = headers.counted(delivery.note(headers.RETRIES)) if delivery.came_back else 0
    if delivery.held_back:
        # A message may have been rejected into a retry queue before; the broker goes on counting
        # from there, so its returns include those rejections.
        return noted + max(deaths_of(delivery), _returns_of(delivery))
    return noted + (_returns_of(delivery) if delivery.in_place else deaths_of(delivery))


def deaths_of(delivery: Delivery) -> int:
    """Return how many failed attempts the broker itself has counted."""
    return headers.death_count(delivery.deaths, delivery.queue) if delivery.came_back else 0


def crashes_seen(delivery: Delivery) -> int:
    """Return how many times the message went back to the queue without a verdict, because its
    worker died or returned it. Quorum queues only.

    If a message was never delivered before, a count in it can only come from its publisher.
    """
    are_retries = delivery.in_place or delivery.held_back
    noted = headers.counted(delivery.note(headers.CRASHES)) if delivery.came_back else 0
    returns = max(0, _returns_of(delivery) - (0 if are_retries else deaths_of(delivery)))
    return min(noted + returns, headers.MAX_COUNT)


def times_taken_back(delivery: Delivery) -> int:
    """Return how many times the broker has taken the message back into its queue, which tells the
    order of messages that come back together: it took an older one back at least as often.

    RabbitMQ 4.3 counts that itself, while its count of failures can be forged before the first
    one. Source: measured on RabbitMQ 4.3.6.
    """
    values = delivery.properties.headers
    acquired = values.scalar(headers.ACQUIRED_COUNT)
    return headers.counted(values.scalar(headers.DELIVERY_COUNT) if acquired is None else acquired)


def is_suspect(delivery: Delivery, subscription: Subscription) -> bool:
    """Return whether the message may have killed the worker that had it before. If so, its handler
    runs alone in its process, so that another crash is not blamed on other messages.

    Where the broker counts retries and crashes together, a crash is certain only after more returns
    than there are allowed retries.
    """
    if subscription.queue_type != "quorum" or subscription.broadcast:
        return False
    crashes = crashes_seen(delivery)
    return crashes > (most_retries_of(subscription.retry) if _counts_both(subscription) else 0)


def step_aside(delivery: Delivery, subscription: Subscription, frame_max: int) -> Publish:
    """Return the publish that moves a message to the end of its queue with all its counts.
    Returning it instead would count as a crash."""
    return rewrite.relocate(
        delivery,
        subscription.queue,
        retries=retries_made(delivery),
        crashes=crashes_seen(delivery),
        frame_max=frame_max,
    )


def _counts_both(subscription: Subscription) -> bool:
    """Return whether the broker's count of returns includes both retries and crashes."""
    return subscription.ordered or subscription.retry_via == "broker"


def _returns_of(delivery: Delivery) -> int:
    """Return how many times the broker has taken the message back into its queue as failed.

    Where the broker holds messages back, it does not count a nack, and it keeps a count that a
    publisher made up. But it also writes how often it has delivered the message, so a count beyond
    that is made up. Source: measured on RabbitMQ 4.3.6, which restarts the count of deliveries
    after a dead-lettering.
    """
    if not delivery.redelivered:
        return 0
    values = delivery.properties.headers
    returns = headers.counted(values.scalar(headers.DELIVERY_COUNT))
    if delivery.held_back:
        delivered = headers.counted(values.scalar(headers.ACQUIRED_COUNT))
        return returns if returns <= delivered + deaths_of(delivery) else 0
    return returns


@dataclass(frozen=True, slots=True)
class DecisionContext:
    """Time and chance at the moment of a decision.

    Args:
        now: the time, aware.
        chance: a random number from 0 to 1.
    """

    now: datetime
    chance: float


def decide(
    delivery: Delivery,
    subscription: Subscription,
    outcome: Outcome,
    broker: BrokerVersion,
    moment: DecisionContext,
) -> Decision:
    """Decide what happens to a message, before its handler runs (`Arrived`) or after it (`Handled`,
    `Raised`)."""
    policy = subscription.retry
    match outcome:
        case Arrived():
            return on_arrival(delivery, subscription)
        case Handled():
            return Ack()
        case Overtaken():
            return MoveToFailed("behind", _BEHIND, retries_made(delivery))
        case Raised() if subscription.broadcast:
            return Drop()
        case Raised(error, give_up, rule, after, outage):
            if outage == "known":
                return put_back(subscription, broker)
            retries = retries_made(delivery)
            reason = give_up or _no_retry(delivery, policy, rule, retries, moment)
            if reason == "retries-exhausted" and outage == "likely":
                return PutBack(to_end=True)  # an outage does not cost a message its last attempt
            if reason is not None and rule.discard:
                return Discard(reason, retries)
            if reason is not None:
                return MoveToFailed(reason, error, retries, kind=rule.failed_queue)
            delay = policy.delay_of(rule, retries + 1, moment.chance) if after is None else after
            return _retry(
                delivery, subscription, retries + 1, delay, policy.max_retries_of(rule), broker
            )
        case _:
            assert_never(outcome)


def put_back(subscription: Subscription, broker: BrokerVersion) -> PutBack:
    """Return how a message goes back to its queue uncounted: to its place, or to the end where the
    broker would count that as a crash."""
    return PutBack(to_end=subscription.queue_type == "quorum" and broker.counts_what_is_returned)


def on_arrival(delivery: Delivery, subscription: Subscription) -> Handle | MoveToFailed:
    """Decide what happens to a message before its handler runs; time and broker version don't
    matter."""
    if subscription.broadcast or not (delivery.redelivered or delivery.came_back):
        return _FIRST_ATTEMPT
    retries = retries_made(delivery)
    policy = subscription.retry
    crashes = crashes_seen(delivery) if subscription.queue_type == "quorum" else 0
    among_them = _counts_both(subscription)
    if crashes >= policy.max_crashes + (most_retries_of(policy) if among_them else 0):
        return MoveToFailed("crashed", crash_report(crashes), retries)
    if retries > most_retries_of(policy) and not among_them:
        return MoveToFailed(
            "retries-exhausted", _overdue_report(retries, most_retries_of(policy)), retries
        )
    return Handle(retries)


def _no_retry(
    delivery: Delivery,
    policy: RetryPolicy,
    rule: ErrorRule,
    retries: int,
    moment: DecisionContext,
) -> Literal["retries-exhausted", "not-retryable", "too-old"] | None:
    """Return why a failed message is not retried; None if it is."""
    allowed = policy.max_retries_of(rule)
    if retries >= allowed:
        return "retries-exhausted" if allowed or not policy.max_retries else "not-retryable"
    if policy.max_age is not None and _age(delivery, moment.now) > policy.max_age:
        return "too-old"
    return None


def _age(delivery: Delivery, now: datetime) -> timedelta:
    """Return how long ago a message was published or, if it doesn't say, failed first. The age of a
    message that a person requeued is zero."""
    if headers.counted(delivery.note(headers.COUNT)):
        return timedelta(0)
    published = headers.moment(delivery.properties.timestamp)
    begun = published or headers.first_failure_time(delivery.deaths, delivery.queue) or now
    return now - begun


def _retry(
    delivery: Delivery,
    subscription: Subscription,
    retry: int,
    delay: timedelta,
    allowed: int,
    broker: BrokerVersion,
) -> Settlement:
    """Choose how a message gets to its next attempt: through its retry queue if that has the wanted
    delay, otherwise through the ladder."""
    if subscription.ordered:
        return RetryInPlace(retry, delay, allowed)
    usual = (
        _held_back_for(delivery, subscription)
        if subscription.retry_via == "broker"
        else subscription.retry.delay
    )
    if delay != usual and subscription.can_be_delayed:
        return RetryByLadder(retry, delay, allowed)
    return _by_the_retry_queue(delivery, subscription, retry, allowed, broker)


def _by_the_retry_queue(
    delivery: Delivery, subscription: Subscription, retry: int, allowed: int, broker: BrokerVersion
) -> WithoutLadder:
    """Choose how a message gets to its retry queue, or is held back by the broker, with the usual
    delay of either."""
    if subscription.retry_via == "broker":
        return RetryByBroker(retry, _held_back_for(delivery, subscription), allowed)
    usual = subscription.retry.delay
    anew = must_start_x_death_anew(delivery, broker)
    if anew or subscription.retry_via == "republish":
        return RetryByRepublish(
            retry, usual, allowed, counts_on=broker.continues_client_x_death and not anew
        )
    return RetryByReject(retry, usual, allowed)


def without_ladder(
    postponed: RetryByLadder, delivery: Delivery, subscription: Subscription, broker: BrokerVersion
) -> WithoutLadder:
    """Return the same retry without the delay ladder, for use when the ladder is not available: it
    counts the same, and has the usual delay."""
    return _by_the_retry_queue(delivery, subscription, postponed.retry, postponed.allowed, broker)


def _held_back_for(delivery: Delivery, subscription: Subscription) -> timedelta:
    """Return how long the broker holds back a message that is rejected now: the least delay times
    the returns that it has counted, including this one. Source: measured on RabbitMQ 4.3.6."""
    least, most = subscription.held_back_for
    return Linear(least, most).delay(_returns_of(delivery) + 1, 0.0)


def rejection(
    delivery: Delivery, subscription: Subscription, broker: BrokerVersion
) -> "RejectIt | ReturnIt | None":
    """Return how to retry a message without a publish; None if that is impossible, and rejecting
    would lose it."""
    if subscription.ordered or subscription.broadcast:
        return None
    match _by_the_retry_queue(delivery, subscription, 0, 0, broker):
        case RetryByReject():
            return RejectIt()
        case RetryByBroker():
            return ReturnIt()
        case _:
            return None


def must_start_x_death_anew(delivery: Delivery, broker: BrokerVersion) -> bool:
    """Return whether rejecting the message would go wrong because of an `x-death` that did not come
    from this broker.

    This matters only if the broker goes on counting in what a client published. Source: measured on
    3.10.8, which loses a message that is rejected with an unreadable `x-death`.
    """
    if not broker.continues_client_x_death or headers.X_DEATH not in delivery.properties.headers:
        return False
    if not delivery.deaths.are_well_formed:
        return True
    return not delivery.came_back and headers.names_queue(delivery.deaths, delivery.queue)


_BEHIND = ErrorReport(
    "redrive.Behind", "an earlier message of its key was set aside; requeue both, in their order"
)


def crash_report(crashes: int) -> ErrorReport:
    """Return the error of a message whose workers died."""
    return ErrorReport(
        "redrive.Crashed",
        f"delivered {crashes} times without a verdict: each time its worker died or ran into a "
        "limit",
    )


def _overdue_report(retries: int, max_retries: int) -> ErrorReport:
    return ErrorReport(
        "redrive.RetriesExhausted", f"arrived after {retries} retries; {max_retries} are allowed"
    )


# --- steps of a shell -----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class AckIt:
    """Ack the delivery."""


@dataclass(frozen=True, slots=True)
class RejectIt:
    """Reject the delivery without requeueing, one at a time: RabbitMQ 4.3 does not count a nack."""


@dataclass(frozen=True, slots=True)
class ReturnIt:
    """Reject the delivery with requeueing, one at a time: the broker counts it and holds it back,
    and does neither for a nack."""


@dataclass(frozen=True, slots=True)
class NackIt:
    """Return the delivery to its place with a nack, which is not counted. Stop consuming first, or
    it comes again at once."""


@dataclass(frozen=True, slots=True)
class PublishThenAck:
    """Publish as mandatory, and ack the delivery only after the publish is confirmed.

    Args:
        publish: the message and where it goes.
        levels: the levels of the delay ladder that it needs.
    """

    publish: Publish
    levels: int = 0


@dataclass(frozen=True, slots=True)
class HoldThenReturn:
    """Keep the delivery unsettled for a while, then reject it with requeueing, which an ordered
    queue counts.

    Args:
        delay: how long.
    """

    delay: timedelta


Step = AckIt | RejectIt | ReturnIt | NackIt | PublishThenAck | HoldThenReturn


def route(
    settlement: Settlement,
    delivery: Delivery,
    subscription: Subscription,
    context: MoveContext,
) -> Step:
    """Return the step that carries a settlement out."""
    match settlement:
        case Ack() | Discard() | Drop():
            return AckIt()
        case RetryByReject():
            return RejectIt()
        case RetryByBroker():
            return ReturnIt()
        case RetryInPlace(_, delay):
            return HoldThenReturn(delay)
        case PutBack(to_end):
            publish = step_aside(delivery, subscription, context.frame_max)
            return PublishThenAck(publish) if to_end and publish.complete else NackIt()
        case RetryByRepublish(retry, _, _, counts_on):
            return PublishThenAck(
                rewrite.republish(
                    delivery,
                    subscription.exchanges,
                    retries=retry - 1,
                    counts_on=counts_on,
                    frame_max=context.frame_max,
                )
            )
        case RetryByLadder(retry, delay, _):
            return PublishThenAck(
                rewrite.postpone(
                    delivery,
                    subscription.exchanges,
                    retry=retry,
                    delay=delay,
                    context=context,
                ),
                Ladder(subscription.exchanges).levels_for(delay),
            )
        case MoveToFailed(reason, error, retries, place, kind):
            return PublishThenAck(
                rewrite.give_up(
                    delivery,
                    subscription.exchanges,
                    reason=reason,
                    error=error,
                    retries=retries,
                    place=place,
                    kind=kind,
                    context=context,
                )
            )
        case _:
            assert_never(settlement)


def whereabouts(settlement: Settlement, subscription: Subscription) -> str:
    """Say where a message is after a settlement, for a log line."""
    match settlement:
        case Ack():
            return "handled"
        case Discard(reason, retries):
            return f"gone: its error's rule discards it ({reason} after {_retries(retries)})"
        case Drop():
            return f"gone: {subscription.queue} is a broadcast queue, which has no retries"
        case RetryByReject(retry, delay, allowed) | RetryByRepublish(retry, delay, allowed):
            return (
                f"in {subscription.retry_queue} for {delay.total_seconds():g} s (retry {retry} "
                f"of {allowed})"
            )
        case RetryByLadder(retry, delay, allowed):
            return (
                f"on the delay ladder for {delay.total_seconds():g} s (retry {retry} of {allowed})"
            )
        case RetryByBroker(retry, delay, allowed):
            return (
                f"held back in {subscription.queue} for {delay.total_seconds():g} s (retry {retry} "
                f"of {allowed})"
            )
        case RetryInPlace(retry, delay, allowed):
            return (
                f"in its place in {subscription.queue}, held for {delay.total_seconds():g} s "
                f"(retry {retry} of {allowed})"
            )
        case PutBack(to_end):
            place = "at the end of" if to_end else "in"
            return f"{place} {subscription.queue} again, uncounted"
        case MoveToFailed(reason, _, retries, _, kind):
            place = names.failed_queue(subscription.queue, kind)
            return f"in {place} ({reason} after {_retries(retries)})"
        case _:
            assert_never(settlement)


def _retries(number: int) -> str:
    return "1 retry" if number == 1 else f"{number} retries"
