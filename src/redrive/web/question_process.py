"""The process that answers filters and queries written by users; it limits their memory.

It receives one question at a time over a connection whose file descriptor is its argument, and
exits when the console does. `python -m redrive.web.question_process 3` runs it.
"""

import contextlib
import os
import resource
import sys
import threading
import time
import traceback
from dataclasses import replace
from multiprocessing.connection import Connection

from redrive.errors import ConfigurationError, RedriveError
from redrive.redaction import KINDS_VARIABLE, redact_kinds_named
from redrive.web.questions import READY, QuestionResult, QuestionTask, answered

_GLANCE_SECONDS = 0.5
_MEMORY = 1024 * 1024 * 1024
"""Bytes that questions may use beyond what this process uses when it starts."""


def main() -> None:
    """Answer questions until the console is gone."""
    import duckdb  # noqa: F401 - loaded before the memory limit is computed

    redact_kinds_named(os.environ.get(KINDS_VARIABLE, ""))
    connection: Connection[QuestionResult | str, QuestionTask] = Connection(int(sys.argv[1]))
    _limit_memory()
    threading.Thread(target=_end_with, args=(os.getppid(),), daemon=True).start()
    connection.send(READY)
    while True:
        try:
            task = connection.recv()
        except EOFError:
            return
        connection.send(_answer(task))


def _answer(task: QuestionTask) -> QuestionResult:
    try:
        answer, look = answered(task)
        return QuestionResult(answer, replace(look, messages=iter(())))
    except RedriveError as error:
        return QuestionResult(error=error)
    except MemoryError:
        return QuestionResult(error=too_large())
    except RuntimeError as error:
        if "can't start new thread" not in str(error):
            return QuestionResult(defect=traceback.format_exc())
        return QuestionResult(error=too_large())
    except Exception:  # noqa: BLE001 - the console reports it, and this process goes on
        return QuestionResult(defect=traceback.format_exc())


def too_large() -> ConfigurationError:
    """Return the error for a question that needs too much memory."""
    return ConfigurationError(
        "the filter or query needs too much memory",
        "Narrow it down, or use the command line.",
    )


def _end_with(console: int) -> None:
    """End this process, even during a question, once the console is gone."""
    while os.getppid() == console:
        time.sleep(_GLANCE_SECONDS)
    os._exit(1)


def _limit_memory() -> None:
    # Only Linux has this file and enforces the limit.
    with contextlib.suppress(OSError), open("/proc/self/statm") as file:
        most = int(file.read().split()[0]) * resource.getpagesize() + _MEMORY
        resource.setrlimit(resource.RLIMIT_AS, (most, most))


if __name__ == "__main__":
    main()
