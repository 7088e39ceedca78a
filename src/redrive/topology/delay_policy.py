"""Policies that set the delay of failed messages that the broker holds back.

Unlike an argument, a policy can change the delay while the queue is in use.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from redrive.errors import ConfigurationError

_PREFIX = "redrive.delay."
_LEAST, _MOST, _TYPE = "delayed-retry-min", "delayed-retry-max", "delayed-retry-type"
_ON_QUORUM_QUEUES = frozenset({"all", "queues", "quorum_queues"})


@dataclass(frozen=True, slots=True)
class Policy:
    """A policy of a virtual host, as the management API describes it.

    Args:
        name: its name.
        pattern: a regular expression; the policy applies to each queue whose name contains a match.
        definition: the settings.
        priority: if several policies match a queue, only the one with the highest priority applies.
        apply_to: the kind of object that it applies to: `all`, `queues`, `quorum_queues`, …
    """

    name: str
    pattern: str
    definition: Mapping[str, object]
    priority: int = 0
    apply_to: str = "all"

    def covers(self, queue: str) -> bool:
        """Return whether the policy matches the quorum queue of this name."""
        if self.apply_to not in _ON_QUORUM_QUEUES:
            return False
        try:
            return re.search(self.pattern, queue) is not None
        except re.error as error:
            raise ConfigurationError(
                f"can't tell whether policy {self.name!r} is for queue {queue!r}: its pattern "
                f"{self.pattern!r} is not valid in Python ({error})",
                "Simplify the pattern.",
            ) from error


@dataclass(frozen=True, slots=True)
class DelayPolicy:
    """The delay that a policy should set for a queue.

    Args:
        queue: the queue, which was declared with `x-delayed-retry-type` and without a delay.
        least: the delay after the first failure, in milliseconds.
        most: the longest delay, in milliseconds; each failure adds `least` to the delay, up to
            this.
    """

    queue: str
    least: int
    most: int

    @property
    def name(self) -> str:
        """The policy's name."""
        return f"{_PREFIX}{self.queue}"

    @property
    def settings(self) -> dict[str, object]:
        """The policy's settings."""
        return {_LEAST: self.least, _MOST: self.most}

    def over(self, other: Policy | None = None) -> Policy:
        """Return the policy that sets the delay and keeps all other settings of the policy that it
        replaces: only one policy applies to a queue. Source:
        https://www.rabbitmq.com/docs/policies"""
        return Policy(
            self.name,
            f"^{re.escape(self.queue)}$",
            self.settings if other is None else {**other.definition, **self.settings},
            0 if other is None else other.priority + 1,
            "quorum_queues",
        )


@dataclass(frozen=True, slots=True)
class PolicyChange:
    """A policy to be created or changed.

    Args:
        policy: the wanted policy.
        found: the policy on the broker; None if there is none.
        merged: the policy that applies without it, whose settings it takes over; None if no other
            applies.
    """

    policy: Policy
    found: Policy | None
    merged: str | None

    def __str__(self) -> str:
        before = {} if self.found is None else self.found.definition
        keys = sorted({*before, *self.policy.definition})
        changes = [
            f"{key} {_shown(before.get(key))} → {_shown(self.policy.definition.get(key))}"
            for key in keys
            if before.get(key) != self.policy.definition.get(key)
        ]
        if self.found is not None and self.found.priority != self.policy.priority:
            changes.append(f"priority {self.found.priority} → {self.policy.priority}")
        if not changes:
            changes.append("its pattern or what it applies to")
        merged = f", plus the settings of policy {self.merged}" if self.merged else ""
        return f"policy {self.policy.name}: {', '.join(changes)}{merged}"


def change_for(delay: DelayPolicy, policies: Iterable[Policy]) -> PolicyChange | None:
    """Return the policy change that gives the queue this delay; None if the queue has it
    already."""
    found = list(policies)
    own = next((policy for policy in found if policy.name == delay.name), None)
    other = holding((policy for policy in found if policy is not own), delay.queue)
    if other is not None and _sets_another_delay(other, delay):
        raise ConfigurationError(
            f"policy {other.name!r} sets {_delay_in(other)} for queue {delay.queue!r}, but the "
            f"requested delay is {_words(delay.settings)}",
            "Remove the delay from that policy, or request the delay that it sets.",
        )
    if own is None and other is not None and delay.settings.items() <= other.definition.items():
        return None
    wanted = delay.over(other)
    return None if own == wanted else PolicyChange(wanted, own, other.name if other else None)


def holding(policies: Iterable[Policy], queue: str) -> Policy | None:
    """Return the policy that applies to a quorum queue; None if no policy does."""
    covering = [policy for policy in policies if policy.covers(queue)]
    highest = max((policy.priority for policy in covering), default=0)
    covering = [policy for policy in covering if policy.priority == highest]
    if len(covering) > 1:
        raise ConfigurationError(
            f"policies {' and '.join(sorted(repr(policy.name) for policy in covering))} are for "
            f"queue {queue!r} with the same priority, so either one may apply",
            "Give one of them a higher priority.",
        )
    return covering[0] if covering else None


def delay_of(queue: str, policies: Iterable[Policy]) -> DelayPolicy | None:
    """Return the delay that policies set for a queue without a delay of its own; None if they set
    none, or it can't be determined."""
    try:
        policy = holding((one for one in policies if _surely_covers(one, queue)), queue)
    except ConfigurationError:
        return None
    if policy is None:
        return None
    least, most = (policy.definition.get(key) for key in (_LEAST, _MOST))
    if not isinstance(least, int) or not isinstance(most, int):
        return None
    return DelayPolicy(queue, least, most)


def queue_of(policy: Policy) -> str | None:
    """Return the queue whose delay one of redrive's policies sets; None for any other policy."""
    return policy.name.removeprefix(_PREFIX) if policy.name.startswith(_PREFIX) else None


def _surely_covers(policy: Policy, queue: str) -> bool:
    try:
        return policy.covers(queue)
    except ConfigurationError:
        return False


def _sets_another_delay(policy: Policy, delay: DelayPolicy) -> bool:
    asked = {**delay.settings, _TYPE: "failed"}
    return any(policy.definition.get(key, value) != value for key, value in asked.items())


def _delay_in(policy: Policy) -> str:
    return _words(
        {key: policy.definition[key] for key in (_TYPE, _LEAST, _MOST) if key in policy.definition}
    )


def _words(settings: Mapping[str, object]) -> str:
    return ", ".join(f"{key}={value}" for key, value in settings.items())


def _shown(value: object) -> str:
    return "none" if value is None else str(value)
