"""Hands items from any thread to the connection's thread, many at a time."""

from collections import deque
from collections.abc import Callable
from typing import Generic, TypeVar

from redrive.pubsub.lifecycle import Link

Item = TypeVar("Item")


class Mailbox(Generic[Item]):
    """Items to be handled on the connection's thread, in order; one wake-up serves all that have
    gathered."""

    def __init__(
        self, link: Link, handle: Callable[[Item], None], emptied: Callable[[], None]
    ) -> None:
        self._link = link
        self._handle = handle
        self._emptied = emptied
        self._items: deque[Item] = deque()
        self._called = False

    def put(self, item: Item) -> None:
        """Hand over an item; from any thread."""
        self._items.append(item)
        # Must come after the append, so that the item is either seen by a pending drain or triggers
        # the next one.
        if not self._called:
            self._called = True
            self._link.call(self._drain)

    def _drain(self) -> None:
        self._called = False
        items = self._items
        while items:
            self._handle(items.popleft())
        self._emptied()
