"""The delay of failed messages that the broker holds back, set by a policy: so it can be changed
while the queue is used."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from redrive.errors import ConfigurationError

_PREFIX = "redrive.delay."
_LEAST, _MOST, _TYPE = "delayed-retry-min", "delayed-retry-max", "delayed-retry-type"
_ON_QUORUM_QUEUES = frozenset({"all", "queues", "quorum_queues"})


@dataclass(frozen=True, slots=True)
class Policy:
    """A policy of a virtual host, as the management API has it.

    Args:
        name: its name.
        pattern: a regular expression; it holds for each queue in whose name that is found.
        definition: what it sets.
        priority: of several policies for a queue, the one with the highest holds, and no other.
        apply_to: the kind of object that it is for: `all`, `queues`, `quorum_queues`, …
    """

    name: str
    pattern: str
    definition: Mapping[str, object]
    priority: int = 0
    apply_to: str = "all"

    def covers(self, queue: str) -> bool:
        """Whether it is for the quorum queue of this name."""
        if self.apply_to not in _ON_QUORUM_QUEUES:
            return False
        try:
            return re.search(self.pattern, queue) is not None
        except re.error as error:
            raise ConfigurationError(
                f"whether policy {self.name!r} is for queue {queue!r} can't be told: its pattern "
                f"{self.pattern!r} can't be read here ({error})",
                "Write the pattern in a simpler way.",
            ) from error


@dataclass(frozen=True, slots=True)
class DelayPolicy:
    """The delay that a policy is to set for a queue.

    Args:
        queue: the queue, which was declared with `x-delayed-retry-type` and without a delay.
        least: after how many milliseconds a message comes back from its first failure.
        most: after how many at most; each failure waits as long again as the first, up to that.
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
        """What it sets."""
        return {_LEAST: self.least, _MOST: self.most}

    def over(self, other: Policy | None = None) -> Policy:
        """The policy that sets the delay in place of another one, and all else as that does: only
        one policy holds for a queue. Source: https://www.rabbitmq.com/docs/policies"""
        return Policy(
            self.name,
            f"^{re.escape(self.queue)}$",
            self.settings if other is None else {**other.definition, **self.settings},
            0 if other is None else other.priority + 1,
            "quorum_queues",
        )


@dataclass(frozen=True, slots=True)
class PolicyChange:
    """A policy as it is to be, in place of what there is.

    Args:
        policy: as it is to be.
        found: as it is; None where it is not there.
        merged: the policy that holds without it, whose settings it takes over; None where no other
            does.
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
            changes.append("its pattern, and what it is for")
        merged = f", with what policy {self.merged} sets" if self.merged else ""
        return f"policy {self.policy.name}: {', '.join(changes)}{merged}"


def change_for(delay: DelayPolicy, policies: Iterable[Policy]) -> PolicyChange | None:
    """What has the queue wait for so long; None where it does."""
    found = list(policies)
    own = next((policy for policy in found if policy.name == delay.name), None)
    other = holding((policy for policy in found if policy is not own), delay.queue)
    if other is not None and _sets_another_delay(other, delay):
        raise ConfigurationError(
            f"policy {other.name!r} sets {_delay_in(other)} for queue {delay.queue!r}; asked for "
            f"is {_words(delay.settings)}",
            "Take the delay out of that policy, or ask for what it sets.",
        )
    if own is None and other is not None and delay.settings.items() <= other.definition.items():
        return None
    wanted = delay.over(other)
    return None if own == wanted else PolicyChange(wanted, own, other.name if other else None)


def holding(policies: Iterable[Policy], queue: str) -> Policy | None:
    """The policy that holds for a quorum queue; None where none does."""
    covering = [policy for policy in policies if policy.covers(queue)]
    highest = max((policy.priority for policy in covering), default=0)
    covering = [policy for policy in covering if policy.priority == highest]
    if len(covering) > 1:
        raise ConfigurationError(
            f"policies {' and '.join(sorted(repr(policy.name) for policy in covering))} are for "
            f"queue {queue!r} with the same priority, so which one holds is left to chance",
            "Give one of them a higher priority.",
        )
    return covering[0] if covering else None


def delay_of(queue: str, policies: Iterable[Policy]) -> DelayPolicy | None:
    """The delay that policies set for a queue that has none of its own; None where they set
    none, or it can't be told."""
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
    """The queue whose delay a policy of ours sets; None for any other policy."""
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
