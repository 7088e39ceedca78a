"""A problem that the doctor reports."""

from dataclasses import dataclass
from typing import Literal

Kind = Literal[
    "not-there",
    "not-held-back",
    "foreign-consumer",
    "dead-letter-target",
    "dead-lettering-stuck",
    "republishing-consumer",
    "copies-of-retries",
    "delivery-limit",
    "drop-head",
    "message-ttl",
    "no-delay",
    "message-size",
    "different-tags",
    "consumer-timeout",
    "single-active-consumer",
    "classic-in-cluster",
    "one-member",
    "mirroring-policy",
    "delayed-message-plugin",
    "alarm",
    "stale-binding",
    "permission",
    "topic-permission",
]


@dataclass(frozen=True, slots=True)
class Finding:
    """A problem that the doctor found.

    Args:
        kind: the kind of problem.
        where: the affected object.
        problem: what was found.
        meaning: the consequences.
        remedy: the command that fixes it, and what to know about it.
    """

    kind: Kind
    where: str
    problem: str
    meaning: str
    remedy: str
