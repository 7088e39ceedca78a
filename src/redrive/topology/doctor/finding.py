"""Something that will hurt, in words."""

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
    """Something that will hurt.

    Args:
        kind: which of the findings it is.
        where: the object that it is about.
        problem: what was found.
        meaning: what will come of it.
        remedy: the command that mends it, and what to know about it.
    """

    kind: Kind
    where: str
    problem: str
    meaning: str
    remedy: str
