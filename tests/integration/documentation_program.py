"""Runs the blocks of a page one after the other, as one program: pairs of a name and code, as JSON
on standard input. What was printed, and a traceback with the block's own lines, is the output."""

import json
import linecache
import sys
import threading
import time
import traceback
from collections.abc import Callable

_DEADLINE = 60.0
_BETWEEN_LOOKS = 0.02


def wait_until(condition: Callable[[], bool]) -> None:
    """Waits for a condition, a minute at most."""
    deadline = time.monotonic() + _DEADLINE
    while not condition():
        assert time.monotonic() < deadline, "not within a minute"
        time.sleep(_BETWEEN_LOOKS)


def stop_when_ready(name: str) -> None:
    """Stops the subscriber that a block is about to make, and to run, once it consumes."""

    def watch() -> None:
        wait_until(lambda: getattr(names.get(name), "ready", False))
        names[name].stop()  # type: ignore[attr-defined]

    threading.Thread(target=watch, daemon=True).start()


names: dict[str, object] = {
    "__name__": "page",
    "stop_when_ready": stop_when_ready,
    "wait_until": wait_until,
}

if __name__ == "__main__":
    # The interpreter's own traceback would look for the lines in a file.
    sys.excepthook = traceback.print_exception
    for label, code in json.load(sys.stdin):
        linecache.cache[label] = (len(code), None, code.splitlines(keepends=True), label)
        exec(compile(code, label, "exec"), names)
