"""Worker processes that each run the same program: restarted if they die, and ended together."""

import logging
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

from redrive.cli.__main__ import COULD_NOT, DONE, WRONG
from redrive.pubsub.signals import until_signalled

logger = logging.getLogger("redrive")

_MOMENT = 0.1
_FIRST_PAUSE = 0.1
"""Short, since a message that kills workers does so five times before it is set aside."""
_LONGEST_PAUSE = 30.0
_LIVED_WELL = 60.0
"""Seconds of life after which a worker that dies is restarted as quickly as the first time."""
_OWN_GROUP: dict[str, Any] = (
    {"creationflags": 0x200}  # CREATE_NEW_PROCESS_GROUP, which subprocess only has on Windows
    if sys.platform == "win32"
    else {"start_new_session": True}
)
"""Keeps a terminal's Ctrl-C from the workers: only their parent gets it, and ends them in order."""


class WorkerProcess:
    """A process that runs a program, and ends when the process that started it does."""

    def __init__(self, words: Sequence[str], name: str) -> None:
        self.name = name
        self.began = time.monotonic()
        # -P: modules in the current directory must not shadow those that redrive needs.
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-m", "redrive.cli", *words],
            stdin=subprocess.PIPE,
            **_OWN_GROUP,
        )
        logger.info("%s runs as process %d", name, self._process.pid)

    @property
    def code(self) -> int | None:
        """Its exit code, negative for a signal; None while it runs."""
        return self._process.poll()

    def stop(self) -> None:
        """Let it finish what is running, and end."""
        assert self._process.stdin is not None
        self._process.stdin.close()

    def leave(self) -> None:
        """Make it end at once; `stop` must have been called before."""
        self._process.terminate()

    def kill(self) -> None:
        """Kill it, whatever it is doing."""
        self.stop()
        self._process.kill()
        self._process.wait()


def end_with_parent() -> None:
    """In a worker: end as if by SIGTERM when standard input ends. The process that started the
    worker closes it, or the system does when that process is killed."""

    def wait() -> None:
        # Not through sys.stdin: this thread would hold its lock when the interpreter exits.
        while os.read(0, 4096):
            pass
        signal.raise_signal(signal.SIGTERM)

    threading.Thread(target=wait, name="redrive-parent", daemon=True).start()


class WorkerGroup:
    """Several workers of one program.

    A worker that dies is restarted, after a pause that doubles each time until it has lived for a
    minute. If one finishes, or reports at its first start that it can't run, all of them end. A
    later failure to run is retried: the broker may be down for a while.
    """

    def __init__(self, count: int, words: Callable[[int], Sequence[str]]) -> None:
        self._words = words
        self._workers: dict[int, WorkerProcess] = {}
        self._due = dict.fromkeys(range(1, count + 1), 0.0)
        """When to start each worker that is not running."""
        self._pauses: dict[int, float] = {}
        self._is_ending = False
        self._code = DONE

    def run(self) -> int:
        """Run them until SIGTERM or Ctrl-C, or until one ends by itself; return the exit code."""
        try:
            until_signalled(self._is_done, stop=self._stop, abort=self._leave)
        finally:
            for worker in self._workers.values():
                worker.kill()
        return self._code

    def _is_done(self) -> bool:
        now = time.monotonic()
        for number, due in list(self._due.items()):
            if due <= now and not self._is_ending:
                del self._due[number]
                self._workers[number] = WorkerProcess(self._words(number), f"worker {number}")
        for number, worker in list(self._workers.items()):
            code = worker.code
            if code is not None:
                worker.stop()
                del self._workers[number]
                self._ended(number, worker, code)
        if self._is_ending and not self._workers:
            return True
        time.sleep(_MOMENT)
        return False

    def _ended(self, number: int, worker: WorkerProcess, code: int) -> None:
        if self._is_ending:
            self._code = self._code or max(code, 0)
        elif code == DONE or (code in (WRONG, COULD_NOT) and number not in self._pauses):
            self._code = code
            logger.info("%s has ended with code %d: stopping all workers", worker.name, code)
            self._stop()
        else:
            lived = time.monotonic() - worker.began
            pause = _FIRST_PAUSE if lived >= _LIVED_WELL else self._pauses.get(number, _FIRST_PAUSE)
            self._pauses[number] = min(2 * pause, _LONGEST_PAUSE)
            self._due[number] = time.monotonic() + pause
            logger.error(
                "%s was ended by %s; restarting it in %g s", worker.name, _cause(code), pause
            )

    def _stop(self) -> None:
        self._is_ending = True
        for worker in self._workers.values():
            worker.stop()

    def _leave(self) -> None:
        for worker in self._workers.values():
            worker.leave()


def _cause(code: int) -> str:
    """Return what ended a process, by its exit code."""
    if code >= 0:
        return f"exit code {code}"
    try:
        return signal.Signals(-code).name
    except ValueError:
        return f"signal {-code}"
