"""Handling of Ctrl-C in commands that have something to finish first, or that run until then."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


@contextmanager
def interruptible() -> Iterator[threading.Event]:
    """Yield an event that the first Ctrl-C sets; the second one interrupts at once."""
    cancel = threading.Event()

    def on_signal(_: int, __: FrameType | None) -> None:
        if cancel.is_set():
            raise KeyboardInterrupt
        cancel.set()

    if threading.current_thread() is not threading.main_thread():
        yield cancel
        return
    before = signal.signal(signal.SIGINT, on_signal)
    try:
        yield cancel
    finally:
        signal.signal(signal.SIGINT, before)


@contextmanager
def ended_by_signals() -> Iterator[threading.Event]:
    """Yield an event that Ctrl-C or SIGTERM sets; a second signal interrupts at once."""
    ended = threading.Event()

    def end(_: int, __: FrameType | None) -> None:
        if ended.is_set():
            raise KeyboardInterrupt
        ended.set()

    if threading.current_thread() is not threading.main_thread():
        yield ended
        return
    before = [(one, signal.signal(one, end)) for one in (signal.SIGINT, signal.SIGTERM)]
    try:
        yield ended
    finally:
        for one, handler in before:
            signal.signal(one, handler)
