"""What the services of the frameworks handle, how their handlers fail, and how they say what they
have done."""

import os
import sys
from collections.abc import Iterator
from typing import NamedTuple

URL = os.environ.get("PEER_URL", "")
"""The broker's address."""
QUEUE = os.environ.get("PEER_QUEUE", "")
"""The main queue."""
DEAD_LETTERS = os.environ.get("PEER_DEAD_LETTERS", "")
"""The dead-letter queue, where the framework lets one choose its name."""
COUNT = int(os.environ.get("PEER_COUNT", "0"))
"""How many messages to fail, or to handle."""
FAILS = sys.argv[1:2] == ["fail"]
"""Whether handlers fail for good, or succeed."""

DEAD_LETTER_ARGUMENTS = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": DEAD_LETTERS}


class Order(NamedTuple):
    """A message's content."""

    id: str
    number: int
    cause: str


CAUSES = ("item", "amount", "bank")


def orders() -> Iterator[Order]:
    """The orders that are published to fail, of each cause in turn."""
    for number in range(COUNT):
        yield Order(f"order-{number}", number, CAUSES[number % len(CAUSES)])


def fail(order: Order) -> None:
    """Raises the error that is the order's cause."""
    match order.cause:
        case "item":
            raise LookupError(f"there is no item {order.number}")
        case "amount":
            raise ValueError(f"the amount {order.number}.50 is refused")
        case _:
            raise TimeoutError("the bank did not answer")


class Progress:
    """Counts what is done, and says so."""

    def __init__(self) -> None:
        self._tried: set[str] = set()
        self._done = 0

    @property
    def is_complete(self) -> bool:
        """Whether all messages are done with."""
        return self._done >= COUNT

    def handle(self, order: Order) -> None:
        """Handles an order as a service does that has no retries of its own."""
        self._done += 1
        if FAILS:
            fail(order)
        print(order.id, flush=True)

    def handle_at_second_attempt(self, order: Order) -> None:
        """Handles an order as a service does that retries once: also where it succeeds, it takes
        its retry, so a message without one left fails for good."""
        is_first = order.id not in self._tried
        self._tried.add(order.id)
        if is_first:
            fail(order)
        self.handle(order)
