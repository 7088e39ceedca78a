"""Waiting for what has to happen, and not for a time."""

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

DEADLINE = 90.0


def wait_for_count(count: Callable[[], int], wanted: int, what: str, seconds: float) -> None:
    """Waits until there are so many; for as long as they become more, and then `seconds`."""
    seen, deadline = -1, 0.0
    while True:
        asked = time.monotonic()
        found = count()
        if found >= wanted:
            return
        if found > seen:
            seen, deadline = found, time.monotonic() + seconds
        assert time.monotonic() < deadline, f"{found} for {seconds:g} s, and not {wanted}: {what}"
        _pause(asked)


def wait_until(condition: Callable[[], T], what: str, seconds: float = DEADLINE) -> T:
    """Asks `condition` until it says something true, and returns that."""
    deadline = time.monotonic() + seconds
    while True:
        asked = time.monotonic()
        found = condition()
        if found:
            return found
        assert time.monotonic() < deadline, f"not within {seconds:g} s: {what}"
        _pause(asked)


def _pause(asked: float) -> None:
    """Asking may be a connection of its own. Most of the time is for what is waited for."""
    time.sleep(min(max(0.01, 8 * (time.monotonic() - asked)), 0.5))
