"""A preview of what an order would do."""

import hashlib
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta

from redrive.failures.message.cause import Cause, cause_of
from redrive.failures.message.direction import Direction
from redrive.failures.message.edit import difference
from redrive.failures.message.failed_message import FailedMessage
from redrive.failures.message.groups import SharedIds
from redrive.failures.message.route import Route, Verdict, WayBack
from redrive.failures.queue.canary import time_of_retries
from redrive.failures.queue.order import Order
from redrive.failures.store.filter import OpenFilter
from redrive.failures.store.kept_messages import KeptMessages, matching
from redrive.pubsub.reports import MOST_IDS
from redrive.redaction import redact

_FEW = 5
_MOST_CAUSES = 20
_MOST_CHARACTERS = 200
"""Length at which a cause's texts are cut in the journal."""
_OF_A_CAUSE = ("group_id", "error_type", "message", "count")


@dataclass(slots=True)
class Plan:
    """What an order would send.

    Args:
        looked_at: number of messages read.
        total: number of messages in the queue.
        missing: number of messages that somebody else held, so they were not read; None if unknown.
        is_cut: whether the order's limit was reached, so that further messages were not read.
        count: number of messages that would be sent.
        groups: how many of them have each cause.
        first: the first few of them.
        routes: number of matching messages by route, with the reason for it, or the reason to stay.
        direction: where the order sends messages.
        arrivals: the exchanges and keys by which the messages arrived where they are.
        too_often: number of messages that stay because they were requeued too often.
        found_again_ids: the failure ids of the messages in `found_again`, at most a thousand.
        found_again: number of messages that an earlier run had in flight and that are in the failed
            queue.
        shared_ids: number of failure ids shared by different messages.
        came_back: number of messages that the job has sent before and that are in the failed queue
            again, whether or not they match.
        changes: the differences between old and new bodies, for the first few messages that change.
        changed: number of messages whose body changes.
        retries: the most retries of one message that would be sent.
        retried_for: the longest time that one of them was retried.
        digests: the digests of the messages that would be sent, if requested.
        fingerprint: a hash of these digests, equal for plans of the same messages; empty if not
            requested.
    """

    looked_at: int = 0
    is_cut: bool = False
    count: int = 0
    groups: Counter[Cause] = field(default_factory=Counter)
    first: list[FailedMessage] = field(default_factory=list)
    routes: Counter[Route] = field(default_factory=Counter)
    direction: Direction = field(default_factory=Direction)
    arrivals: set[WayBack] = field(default_factory=set)
    too_often: int = 0
    found_again: int = 0
    found_again_ids: list[str] = field(default_factory=list)
    shared_ids: int = 0
    came_back: int = 0
    changes: list[list[str]] = field(default_factory=list)
    changed: int = 0
    retries: int = 0
    retried_for: timedelta = timedelta(0)
    total: int = 0
    missing: int | None = 0
    digests: set[str] = field(default_factory=set, repr=False)
    fingerprint: str = ""

    @property
    def matching(self) -> int:
        """Number of messages that match the order, including those that stay."""
        return self.count + self.too_often + self.left.total()

    @property
    def ways(self) -> Counter[WayBack]:
        """Number of messages that would be sent, by way."""
        ways: Counter[WayBack] = Counter()
        for route, count in self.routes.items():
            if route.way is not None and self.direction.goes(route):
                ways[route.way] += count
        return ways

    @property
    def left(self) -> Counter[Route]:
        """Number of messages that stay because of the verdict on their route, by route."""
        return Counter(
            {route: n for route, n in self.routes.items() if not self.direction.goes(route)}
        )

    def stay_for(self, verdict: Verdict) -> int:
        """Return how many messages stay because of this verdict."""
        return sum(count for route, count in self.left.items() if route.verdict is verdict)

    @property
    def no_way_back(self) -> int:
        """Number of messages that stay because nothing tells which queue they failed in."""
        return self.stay_for(Verdict.UNKNOWN)

    @property
    def contradicted(self) -> int:
        """Number of messages that stay because the topology contradicts them."""
        return self.stay_for(Verdict.CONTRADICTED)

    @property
    def unchecked(self) -> int:
        """Number of messages that stay because the broker could not confirm their route."""
        return self.stay_for(Verdict.UNCHECKED)

    def noted(self) -> dict[str, object]:
        """Return the part of the plan that the journal records, as JSON values.

        It has numbers of messages by cause and by reason to stay, but no messages or bodies.
        """
        causes = self.groups.most_common(_MOST_CAUSES)
        stay = {
            "requeued_too_often": self.too_often,
            "no_way_back": self.no_way_back,
            "contradicted": self.contradicted,
            "unchecked": self.unchecked,
        }
        return {
            "looked_at": self.looked_at,
            "is_cut": self.is_cut,
            "causes": [
                {
                    "group_id": cause.group_id,
                    "error_type": _shortened(cause.error_type),
                    "message": _shortened(cause.message),
                    "count": count,
                }
                for cause, count in causes
            ],
            "other_causes": len(self.groups) - len(causes),
            "stay": {why: count for why, count in stay.items() if count},
            "not_meant": self.looked_at - self.matching,
            **({"fingerprint": self.fingerprint} if self.fingerprint else {}),
        }

    @property
    def queues(self) -> list[str]:
        """The destination queues, the one that gets most messages first. Queues behind an exchange
        are not included."""
        return [way.queue for way, _ in self.ways.most_common() if way.queue is not None]


def plan_of(
    order: Order,
    messages: Iterable[FailedMessage],
    under_way: set[str] | frozenset[str] = frozenset(),
    job: str = "",
    *,
    direction: Direction | None = None,
    with_fingerprint: bool = False,
) -> Plan:
    """Plan what an order would send of these messages, without those that this job has sent before.

    Args:
        order: what to send, and where to.
        messages: the messages in the queue.
        under_way: the digests of messages that were in flight when the job ended.
        job: the job's id; empty if it has sent nothing yet.
        direction: where to, as checked at the broker; None for the order's own.
        with_fingerprint: whether to identify the planned messages.

    Raises:
        ConfigurationError: the filter's expression can't be used, or a body can't be changed as
            ordered.
    """
    if isinstance(messages, KeptMessages):
        messages.check(order.filter)
    direction = direction or order.direction
    plan = Plan(direction=direction)
    edit = order.edit()
    if (
        isinstance(messages, KeptMessages)
        and edit is None
        and not (under_way or job or with_fingerprint or direction.via)
        and order.limit is None
    ):
        with OpenFilter(order.filter) as open_filter:
            meant = matching(messages, open_filter)
            if isinstance(meant, KeptMessages):
                return _plan_of_kept(order, direction, messages.count(), meant)
    shared = SharedIds()
    digests: list[str] = []

    def was_sent(message: FailedMessage) -> bool:
        return bool(job) and message.job == job

    def counted() -> Iterable[FailedMessage]:
        for message in messages:
            plan.looked_at += 1
            plan.came_back += was_sent(message)
            yield message

    with OpenFilter(order.filter) as open_filter:
        for message in open_filter.of(counted()):
            if order.limit is not None and plan.count >= order.limit and not under_way:
                plan.is_cut = True
                break  # a queue of millions need not be read to its end
            if was_sent(message):
                continue
            if under_way and (message.digest in under_way or message.failure_id in under_way):
                plan.found_again += 1
                plan.found_again_ids += [message.failure_id][: MOST_IDS - len(plan.found_again_ids)]
            route = direction.route_of(message)
            if not order.may_go(message):
                plan.too_often += 1
            elif not direction.goes(route):
                plan.routes[route] += 1
            elif order.limit is None or plan.count < order.limit:
                plan.count += 1
                plan.routes[route] += 1
                plan.arrivals.add(WayBack(message.delivery.exchange, message.delivery.routing_key))
                plan.groups[cause_of(message)] += 1
                shared.add(message)
                if with_fingerprint:
                    digests.append(message.digest)
                if order.guards.canary:
                    plan.retries = max(plan.retries, message.retries)
                    plan.retried_for = max(plan.retried_for, time_of_retries(message))
                if len(plan.first) < _FEW:
                    plan.first.append(message)
                if edit is not None:
                    _note_change(plan, message, edit(message))
    plan.shared_ids = len(shared)
    if with_fingerprint:
        plan.digests = set(digests)
        plan.fingerprint = _fingerprint(digests)
    return plan


def _shortened(text: str) -> str:
    """Return an error's text as the journal has it."""
    return redact(text[:_MOST_CHARACTERS])


def names_same_causes(plan: Plan, noted: Mapping[str, object]) -> bool:
    """Check whether a plan in the journal names the largest causes of this plan."""
    told = noted.get("causes")
    if not isinstance(told, list) or not all(isinstance(one, dict) for one in told):
        return False
    named = [tuple(one.get(name) for name in _OF_A_CAUSE) for one in told]
    if not all(type(value) in (str, int) for one in named for value in one):
        return False
    own = Counter(
        (cause.group_id, _shortened(cause.error_type), _shortened(cause.message), count)
        for cause, count in plan.groups.items()
    )
    largest = sorted((count for _, count in plan.groups.most_common(_MOST_CAUSES)), reverse=True)
    return (
        Counter(named) <= own
        and sorted((one[-1] for one in named), reverse=True) == largest
        and noted.get("other_causes") == len(plan.groups) - len(named)
    )


def _fingerprint(digests: list[str]) -> str:
    """Return a hash of the messages' digests that doesn't depend on their order."""
    together = hashlib.sha256()
    for digest in sorted(digests):
        together.update(bytes.fromhex(digest))
    return together.hexdigest()


def _plan_of_kept(order: Order, direction: Direction, looked_at: int, meant: KeptMessages) -> Plan:
    """Plan an order without an edit from kept messages, without parsing each of them."""
    found = meant.plan_counts(direction, order.most_redrives, _FEW)
    shared = SharedIds()
    for message in found.sharing:
        shared.add(message)
    is_watched = bool(order.guards.canary)
    return Plan(
        looked_at=looked_at,
        count=found.going,
        groups=found.groups,
        first=found.first,
        routes=found.routes,
        direction=direction,
        arrivals=found.arrivals,
        too_often=found.too_often,
        shared_ids=len(shared),
        retries=found.retries if is_watched else 0,
        retried_for=found.retried_for if is_watched else timedelta(0),
    )


def _note_change(plan: Plan, message: FailedMessage, after: bytes) -> None:
    if message.body != after:
        plan.changed += 1
        if len(plan.changes) < _FEW:
            plan.changes.append(difference(message, after, message.failure_id))
