"""How a framework says that a message has failed, and what it takes as new."""

from collections.abc import Callable
from dataclasses import dataclass

from redrive.failures.dialects.clues import Clues
from redrive.failures.dialects.failure_notes import FailureNotes
from redrive.topology.headers import Delivery


def unchanged(delivery: Delivery) -> Delivery:
    """Returns the message as it is: its framework writes nothing into one that has failed."""
    return delivery


@dataclass(frozen=True, slots=True)
class Dialect:
    """The words of one framework. Neither function raises, whatever the message holds.

    Args:
        name: whose words these are.
        read: reads what the framework leaves; None where the message is not of that framework.
        renew: the message as the framework takes it as new: what says that it has failed is taken
            off, and what is needed to handle it is kept. A message that can't be renewed comes back
            as it is.
    """

    name: str
    read: Callable[[Clues], FailureNotes | None]
    renew: Callable[[Delivery], Delivery] = unchanged
