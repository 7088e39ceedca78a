"""Run until done, or until SIGTERM or SIGINT."""

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
    """Call `start`, then call `done` repeatedly until it returns True.

    The first SIGTERM or SIGINT from the beginning on calls `stop`, the second `abort`, both only
    once `start` has returned. The previous handlers are restored afterwards. Outside the main
    thread, signals are left alone. `done` has to wait a moment itself: Python runs signal handlers
    between two calls of it.
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
            # Outside of the signal handler, which may have interrupted anything, even code that
            # holds a lock.
            while answered < len(received):
                name = signal.Signals(received[answered]).name
                answered += 1
                if answered == 1:
                    logger.info(
                        "%s: finishing running handlers; a second signal ends at once", name
                    )
                    stop()
                else:
                    logger.warning(
                        "%s again: ending at once; unacked messages are redelivered", name
                    )
                    abort()
    finally:
        for number, handler in before.items():
            signal.signal(number, handler if handler is not None else signal.SIG_DFL)
