"""Answers that are kept for as long as what they are of stays as it is."""

import threading
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

T = TypeVar("T")


class AnswerCache(Generic[T]):
    """The last few answers, each found once for a state of what was asked; from any thread.

    Args:
        most: how many are kept. The one that was not asked for longest goes first.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._lock = threading.Lock()
        self._known: dict[Hashable, T] = {}

    def of(self, state: Hashable, find: Callable[[], T]) -> T:
        """The answer of a state; found where nobody has asked for it of late."""
        with self._lock:
            if state in self._known:
                found = self._known[state] = self._known.pop(state)
                return found
        found = find()
        with self._lock:
            self._known[state] = found
            while len(self._known) > self._most:
                self._known.pop(next(iter(self._known)))
        return found
