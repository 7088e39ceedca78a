"""Hands things from any thread to the connection's thread, many at a time."""

from collections import deque
from collections.abc import Callable
from typing import Generic, TypeVar

from redrive.pubsub.lifecycle import Link

Item = TypeVar("Item")


class Mailbox(Generic[Item]):
    """What is put in is handled on the connection's thread, in order; waking it costs once for all
    that has gathered."""

    def __init__(
        self, link: Link, handle: Callable[[Item], None], emptied: Callable[[], None]
    ) -> None:
        self._link = link
        self._handle = handle
        self._emptied = emptied
        self._items: deque[Item] = deque()
        self._called = False

    def put(self, item: Item) -> None:
        """Hands over an item; from any thread."""
        self._items.append(item)
        # Only after the append: an item is either seen by a drain that is on its way, or calls for
        # the next.
        if not self._called:
            self._called = True
            self._link.call(self._drain)

    def _drain(self) -> None:
        self._called = False
        items = self._items
        while items:
            self._handle(items.popleft())
        self._emptied()
