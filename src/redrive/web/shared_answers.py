"""What tabs that follow queues are told, made once for all of them."""

import threading
import time
from collections.abc import Callable
from typing import NamedTuple

_FRESH = 0.25
_OF_ITS_COST = 2.0
"""How many times as long as it takes an answer serves whoever asks meanwhile."""


class _SharedAnswer(NamedTuple):
    """An answer, and until when it serves.

    Args:
        values: the answer.
        until: by the monotonic clock.
    """

    values: dict[str, object]
    until: float


class SharedAnswers:
    """Answers that all tabs share: each is made once, however many ask."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._made: dict[object, threading.Lock] = {}
        self._told: dict[object, _SharedAnswer] = {}

    def answer(self, name: object, make: Callable[[], dict[str, object]]) -> dict[str, object]:
        """The answer of this name; made anew where the last one is too old."""
        with self._lock:
            making = self._made.setdefault(name, threading.Lock())
        with making:
            told = self._told.get(name)
            if told is None or time.monotonic() > told.until:
                began = time.monotonic()
                values = make()
                now = time.monotonic()
                told = _SharedAnswer(values, now + max(_FRESH, _OF_ITS_COST * (now - began)))
                self._told[name] = told
            return told.values
