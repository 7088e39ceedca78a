"""Runs the blocks of a page one after the other, as one program: a name, its code, and whether each
of its lines has to run, as JSON on standard input. What was printed, and a traceback with the
block's own lines, is the output; lines that no thread has come to are an error.

The management API is where REDRIVE_TEST_MANAGEMENT_URL says, as if that were its usual port.
"""

import json
import linecache
import os
import sys
import threading
import time
import traceback
from collections.abc import Callable
from urllib.parse import urlsplit

from line_trace import LineTrace
from redrive.pubsub.admin import management_api

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
    "__name__": "__main__",
    "stop_when_ready": stop_when_ready,
    "wait_until": wait_until,
}

if __name__ == "__main__":
    # The interpreter's own traceback would look for the lines in a file.
    sys.excepthook = traceback.print_exception
    lines = LineTrace()
    lines.start()
    if address := os.environ.get("REDRIVE_TEST_MANAGEMENT_URL"):
        port = urlsplit(address).port
        vars(management_api)["_PORTS"] = {False: port, True: port}
    for label, text, is_to_run_whole in json.load(sys.stdin):
        linecache.cache[label] = (len(text), None, text.splitlines(keepends=True), label)
        code = compile(text, label, "exec")
        if is_to_run_whole:
            lines.add(code)
        exec(code, names)
    never_run = lines.never_run()
    if never_run:
        sys.exit("\n".join(["these lines never ran:", *never_run]))
