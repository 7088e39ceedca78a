"""Handle SIGTERM and SIGINT while something runs on an event loop."""

import asyncio
import contextlib
import logging
import signal
import threading
from collections.abc import Callable, Iterator

logger = logging.getLogger("redrive")

_SIGNALS = (signal.SIGTERM, signal.SIGINT)


@contextlib.contextmanager
def signals(*, stop: Callable[[], object], abort: Callable[[], object]) -> Iterator[None]:
    """During the block, call `stop` at the first SIGTERM or SIGINT, and `abort` at the second.

    The previous handlers are restored afterwards. Outside the main thread, signals are left alone.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    loop = asyncio.get_running_loop()
    answered = 0

    def answer(number: int) -> None:
        nonlocal answered
        answered += 1
        name = signal.Signals(number).name
        if answered == 1:
            logger.info("%s: finishing running handlers; a second signal ends at once", name)
            stop()
        else:
            logger.warning("%s again: ending at once; unacked messages are redelivered", name)
            abort()

    before = {number: signal.getsignal(number) for number in _SIGNALS}
    for number in _SIGNALS:
        _listen(loop, number, answer)
    try:
        yield
    finally:
        for number, handler in before.items():
            with contextlib.suppress(NotImplementedError):
                loop.remove_signal_handler(number)
            signal.signal(number, handler if handler is not None else signal.SIG_DFL)


def _listen(loop: asyncio.AbstractEventLoop, number: int, answer: Callable[[int], None]) -> None:
    try:
        loop.add_signal_handler(number, answer, number)
    except NotImplementedError:  # Windows: a signal interrupts anything, so only notify the loop
        signal.signal(number, lambda number, _: loop.call_soon_threadsafe(answer, number))
