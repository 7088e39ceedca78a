"""Says in the log which handler keeps an event loop from running: as long as it does, no heartbeat
is sent, no other handler goes on, and nothing is acked."""

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
"""Seconds that an event loop may take to answer."""
_BETWEEN_BEATS = 1.0
_BETWEEN_WARNINGS = 60.0
_IN_TIME = 1.5
"""A wait that took so many times as long as it should have: the whole process stood still, or the
machine did, and no handler is to blame."""
_RUNS_HANDLERS = "redrive.pubsub.aio.handler_run"


class LoopWatch:
    """Watches the event loop that it is made in, by a thread that has it answer once a second."""

    def __init__(self) -> None:
        self._thread = threading.get_ident()
        self._users = 0
        self._over = threading.Event()
        self._warned_at = float("-inf")

    def enter(self) -> None:
        """One more subscriber runs on the loop."""
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
        """One fewer does; with the last one, nobody watches."""
        self._users -= 1
        if not self._users:
            self._over.set()

    def _watch(self, loop: asyncio.AbstractEventLoop, over: threading.Event) -> None:
        while not over.wait(_BETWEEN_BEATS):
            answered = threading.Event()
            try:
                loop.call_soon_threadsafe(answered.set)
            except RuntimeError:
                return  # it is closed
            began = time.monotonic()
            if answered.wait(LONGEST_STANDSTILL):
                continue
            frame = sys._current_frames().get(self._thread)
            if time.monotonic() - began < _IN_TIME * LONGEST_STANDSTILL:
                self._warn(frame)
            while not (answered.wait(_BETWEEN_BEATS) or over.is_set() or loop.is_closed()):
                pass  # it is said once, however long it takes

    def _warn(self, frame: FrameType | None) -> None:
        stack = stack_of_handler(frame)
        now = time.monotonic()
        if stack is None or now - self._warned_at < _BETWEEN_WARNINGS:
            return
        self._warned_at = now
        logger.warning(
            "a handler has kept the event loop from running for more than %g s: no heartbeat is "
            "sent and no other handler goes on. Await what it waits for, or run it by "
            "asyncio.to_thread. It is here:\n%s",
            LONGEST_STANDSTILL,
            stack,
        )


def stack_of_handler(frame: FrameType | None) -> str | None:
    """What a thread runs of a handler, from the handler's own code on; None where it runs none."""
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
    """The watch of the loop that runs here."""
    loop = asyncio.get_running_loop()
    watch = _watches.get(loop)
    if watch is None:
        watch = _watches[loop] = LoopWatch()
    return watch
