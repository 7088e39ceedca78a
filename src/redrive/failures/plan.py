"""What an order would do, before it is carried out."""

import hashlib
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from datetime import timedelta

from redrive.failures.canary import time_of_retries
from redrive.failures.cause import Cause, cause_of
from redrive.failures.direction import Direction
from redrive.failures.edit import difference
from redrive.failures.failed_message import FailedMessage
from redrive.failures.filter import OpenFilter
from redrive.failures.kept_messages import KeptMessages, matching
from redrive.failures.order import Order
from redrive.failures.route import Route, Verdict
from redrive.failures.shared_ids import SharedIds
from redrive.failures.way_back import WayBack
from redrive.pubsub.reports import MOST_IDS, RequeueProgress
from redrive.redaction import redact

_FEW = 5
_MOST_CAUSES = 20
_MOST_CHARACTERS = 200
"""Of a cause, in the journal."""
Progress = Callable[[RequeueProgress], None]


@dataclass(slots=True)
class Plan:
    """What an order would send.

    Args:
        looked_at: how many messages were looked at.
        total: how many were there.
        missing: how many somebody else held, so that they were not looked at; None if it is unknown
            how many.
        is_cut: whether the order's limit ended it, so that further messages were not looked at.
        count: how many of them would go.
        groups: how many of each cause.
        first: the first few.
        routes: which way how many of those go that the order means, and why, or why they stay.
        direction: where the order sends messages.
        arrivals: by which exchanges and keys they came to where they are.
        too_often: how many stay because they were requeued too often.
        found_again_ids: the failure ids of these, a thousand at most.
        found_again: how many that an earlier run had under way are in the failed queue.
        shared_ids: how many failure ids stand for several of them that differ.
        came_back: how many that the job has sent before are in the failed queue again, whether or
            not they are of those that it means.
        changes: of the first few that another body is made of, the difference.
        changed: how many those are.
        retries: the most retries that one of those that would go had.
        retried_for: the longest that one of them was retried.
        digests: those of the messages that would go, where that was asked for.
        fingerprint: of those that would go: two plans of the same messages have the same; empty
            where it was not asked for.
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
        """How many the order means, those included that stay."""
        return self.count + self.too_often + self.left.total()

    @property
    def ways(self) -> Counter[WayBack]:
        """How many go which way."""
        ways: Counter[WayBack] = Counter()
        for route, count in self.routes.items():
            if route.way is not None and self.direction.goes(route):
                ways[route.way] += count
        return ways

    @property
    def left(self) -> Counter[Route]:
        """How many stay for which verdict on their way, and why."""
        return Counter(
            {route: n for route, n in self.routes.items() if not self.direction.goes(route)}
        )

    def stay_for(self, verdict: Verdict) -> int:
        """How many stay because this is the verdict on their way."""
        return sum(count for route, count in self.left.items() if route.verdict is verdict)

    @property
    def no_way_back(self) -> int:
        """How many stay because nothing says which queue they failed in."""
        return self.stay_for(Verdict.UNKNOWN)

    @property
    def contradicted(self) -> int:
        """How many stay because the topology says otherwise than they do."""
        return self.stay_for(Verdict.CONTRADICTED)

    @property
    def unchecked(self) -> int:
        """How many stay because the broker could not confirm what they say."""
        return self.stay_for(Verdict.UNCHECKED)

    def noted(self) -> dict[str, object]:
        """What of it stands in the journal, as JSON values: how many of which cause, and how many
        stay and why. No message and no body."""
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
                    "error_type": redact(cause.error_type[:_MOST_CHARACTERS]),
                    "message": redact(cause.message[:_MOST_CHARACTERS]),
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
        """The queues that they go to, the one that gets most first; without what an exchange
        chooses."""
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
    """What an order would send of these messages; those that this job has sent before do not count.

    Args:
        order: what is to be sent, and where to.
        messages: those of the queue.
        under_way: what the job was sending when it ended.
        job: its id; empty where it has sent nothing yet.
        direction: where to, with what the broker says of it; None for the order's own.
        with_fingerprint: whether the plan is to tell which messages it is about.

    Raises:
        ConfigurationError: its expression can't be used, or a body can't be changed as it says.
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
                break  # a queue of millions need not be looked at to its end
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


def _fingerprint(digests: list[str]) -> str:
    """Return one text for the digests of messages, in whatever order they were read."""
    together = hashlib.sha256()
    for digest in sorted(digests):
        together.update(bytes.fromhex(digest))
    return together.hexdigest()


def _plan_of_kept(order: Order, direction: Direction, looked_at: int, meant: KeptMessages) -> Plan:
    """What an order without an edit would send of what was kept: counted, and not made one by
    one."""
    found = meant.prospects(direction, order.most_redrives, _FEW)
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
