"""How to read a framework's failure notes, and how to renew its messages."""

from collections.abc import Callable
from dataclasses import dataclass

from redrive.failures.message.dialects.clues import Clues
from redrive.failures.message.dialects.failure_notes import FailureNotes
from redrive.topology.headers import Delivery


def unchanged(delivery: Delivery) -> Delivery:
    """Return the message unchanged, for frameworks that write nothing into a failed message."""
    return delivery


@dataclass(frozen=True, slots=True)
class Dialect:
    """How one framework marks failed messages. Neither function raises, whatever the message holds.

    Args:
        name: the name of the framework.
        read: returns the failure notes of a message, or None if it isn't from this framework.
        renew: returns the message as new to the framework: its failure notes are removed, and
            whatever is needed to handle it is kept. A message that can't be renewed is returned
            unchanged.
    """

    name: str
    read: Callable[[Clues], FailureNotes | None]
    renew: Callable[[Delivery], Delivery] = unchanged
