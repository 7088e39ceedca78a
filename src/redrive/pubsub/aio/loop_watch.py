"""Log which handler blocks an event loop.

Meanwhile no heartbeat is sent, no other handler runs, and nothing is acked.
"""

import asyncio
import logging
import sys
import threading
import time
import traceback
from types import FrameType
from weakref import WeakKeyDictionary

logger = logging.getLogger("redrive")

LONGEST_STANDSTILL = 1.0
"""How many seconds an event loop may take to respond."""
_BETWEEN_BEATS = 1.0
_BETWEEN_WARNINGS = 60.0
_IN_TIME = 1.5
"""If a wait took this many times longer than it should have, the whole process or the machine stood
still, and no handler is to blame."""
_RUNS_HANDLERS = "redrive.pubsub.aio.handler_run"


class LoopWatch:
    """A watch on the event loop that it is created in: a thread checks once a second that the loop
    responds."""

    def __init__(self) -> None:
        self._thread = threading.get_ident()
        self._users = 0
        self._over = threading.Event()
        self._warned_at = float("-inf")

    def enter(self) -> None:
        """Note one more subscriber on the loop; the first one starts the watch."""
        self._users += 1
        if self._users == 1:
            over = self._over = threading.Event()
            threading.Thread(
                target=self._watch,
                args=(asyncio.get_running_loop(), over),
                name="redrive-loop-watch",
                daemon=True,
            ).start()

    def leave(self) -> None:
        """Note that a subscriber has left the loop; the last one ends the watch."""
        self._users -= 1
        if not self._users:
            self._over.set()

    def _watch(self, loop: asyncio.AbstractEventLoop, over: threading.Event) -> None:
        while not over.wait(_BETWEEN_BEATS):
            answered = threading.Event()
            try:
                loop.call_soon_threadsafe(answered.set)
            except RuntimeError:
                return  # the loop is closed
            began = time.monotonic()
            if answered.wait(LONGEST_STANDSTILL):
                continue
            frame = sys._current_frames().get(self._thread)
            if time.monotonic() - began < _IN_TIME * LONGEST_STANDSTILL:
                self._warn(frame)
            while not (answered.wait(_BETWEEN_BEATS) or over.is_set() or loop.is_closed()):
                pass  # warn only once, however long it takes

    def _warn(self, frame: FrameType | None) -> None:
        stack = stack_of_handler(frame)
        now = time.monotonic()
        if stack is None or now - self._warned_at < _BETWEEN_WARNINGS:
            return
        self._warned_at = now
        logger.warning(
            "a handler has blocked the event loop for more than %g s: no heartbeat is "
            "sent and no other handler runs. Await what it waits for, or run it with "
            "asyncio.to_thread. It is at:\n%s",
            LONGEST_STANDSTILL,
            stack,
        )


def stack_of_handler(frame: FrameType | None) -> str | None:
    """Return the stack that a thread runs inside a handler, starting at the handler's own code;
    None if it runs no handler."""
    frames: list[FrameType] = []
    while frame is not None:
        if frame.f_globals.get("__name__") == _RUNS_HANDLERS:
            lines = traceback.StackSummary.extract(
                (one, one.f_lineno) for one in reversed(frames)
            ).format()
            return "".join(lines).rstrip() if lines else None
        frames.append(frame)
        frame = frame.f_back
    return None


_watches: "WeakKeyDictionary[asyncio.AbstractEventLoop, LoopWatch]" = WeakKeyDictionary()


def watch_of_loop() -> LoopWatch:
    """Return the running loop's watch, creating it if necessary."""
    loop = asyncio.get_running_loop()
    watch = _watches.get(loop)
    if watch is None:
        watch = _watches[loop] = LoopWatch()
    return watch
