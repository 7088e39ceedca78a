"""Runs until it is done, or until somebody wants it to end."""

import logging
import signal
import threading
from collections.abc import Callable
from types import FrameType

logger = logging.getLogger("redrive")

_SIGNALS = (signal.SIGTERM, signal.SIGINT)


def until_signalled(
    done: Callable[[], bool],
    *,
    stop: Callable[[], object],
    abort: Callable[[], object],
    start: Callable[[], object] = lambda: None,
) -> None:
    """Calls `start`, and asks `done` until it says yes. The first SIGTERM or SIGINT from the
    beginning on calls `stop`, the second `abort`, both once `start` has returned.

    The handlers that were set before are set again afterwards. In any other thread than the main
    one, signals are left alone. `done` waits a moment itself: Python runs a signal's handler
    between two of its calls.
    """
    if threading.current_thread() is not threading.main_thread():
        start()
        while not done():
            pass
        return
    received: list[int] = []

    def on_signal(number: int, _: FrameType | None) -> None:
        received.append(number)

    before = {number: signal.signal(number, on_signal) for number in _SIGNALS}
    answered = 0
    try:
        start()
        while not done():
            # Outside of the signal handler, which may have interrupted anything, a lock's holder
            # included.
            while answered < len(received):
                name = signal.Signals(received[answered]).name
                answered += 1
                if answered == 1:
                    logger.info("%s: finishing what runs; a second signal ends at once", name)
                    stop()
                else:
                    logger.warning("%s again: leaving at once; what runs is delivered again", name)
                    abort()
    finally:
        for number, handler in before.items():
            signal.signal(number, handler if handler is not None else signal.SIG_DFL)
