"""Handle SIGTERM and SIGINT: the first one stops what runs, the second one ends it at once."""

import contextlib
import logging
import signal
import threading
from collections.abc import Callable, Iterator
from types import FrameType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import asyncio

logger = logging.getLogger("redrive")

_SIGNALS = (signal.SIGTERM, signal.SIGINT)


class _Answers:
    """Call `stop` at the first signal, and `abort` at each further one."""

    def __init__(self, stop: Callable[[], object], abort: Callable[[], object]) -> None:
        self._stop, self._abort = stop, abort
        self._is_stopping = False

    def answer(self, number: int) -> None:
        name = signal.Signals(number).name
        if self._is_stopping:
            logger.warning("%s again: ending at once; unacked messages are redelivered", name)
            self._abort()
            return
        self._is_stopping = True
        logger.info("%s: finishing running handlers; a second signal ends at once", name)
        self._stop()


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
    answers = _Answers(stop, abort)
    try:
        start()
        while not done():
            # Outside of the signal handler, which may have interrupted anything, even code that
            # holds a lock.
            while received:
                answers.answer(received.pop(0))
    finally:
        for number, handler in before.items():
            signal.signal(number, handler if handler is not None else signal.SIG_DFL)


@contextlib.contextmanager
def on_the_loop(*, stop: Callable[[], object], abort: Callable[[], object]) -> Iterator[None]:
    """During the block, answer signals on the running event loop.

    The previous handlers are restored afterwards. Outside the main thread, signals are left alone.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    import asyncio  # whose import takes a blocking program a while

    loop = asyncio.get_running_loop()
    answers = _Answers(stop, abort)
    before = {number: signal.getsignal(number) for number in _SIGNALS}
    for number in _SIGNALS:
        _listen(loop, number, answers.answer)
    try:
        yield
    finally:
        for number, handler in before.items():
            with contextlib.suppress(NotImplementedError):
                loop.remove_signal_handler(number)
            signal.signal(number, handler if handler is not None else signal.SIG_DFL)


def _listen(loop: "asyncio.AbstractEventLoop", number: int, answer: Callable[[int], None]) -> None:
    try:
        loop.add_signal_handler(number, answer, number)
    except NotImplementedError:  # Windows: a signal interrupts anything, so only notify the loop
        signal.signal(number, lambda number, _: loop.call_soon_threadsafe(answer, number))
