"""Processes that each run the same program: started again where they die, ended together."""

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
from redrive.pubsub.blocking.signals import until_signalled

logger = logging.getLogger("redrive")

_MOMENT = 0.1
_FIRST_PAUSE = 0.1
"""Short, since one message that kills has five workers started again before it is set aside."""
_LONGEST_PAUSE = 30.0
_LIVED_WELL = 60.0
"""Seconds after which a worker that dies is started again as soon as the first time."""
_OWN_GROUP: dict[str, Any] = (
    {"creationflags": 0x200}  # CREATE_NEW_PROCESS_GROUP, which subprocess has only there
    if sys.platform == "win32"
    else {"start_new_session": True}
)
"""Ctrl-C at a terminal is the group's, which ends its workers in their own order."""


class WorkerProcess:
    """A process that runs a program, and ends with whoever started it."""

    def __init__(self, words: Sequence[str], name: str) -> None:
        self.name = name
        self.began = time.monotonic()
        # -P: modules in the current directory must not stand in for those that redrive needs.
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-m", "redrive.cli", *words],
            stdin=subprocess.PIPE,
            **_OWN_GROUP,
        )
        logger.info("%s runs as process %d", name, self._process.pid)

    @property
    def code(self) -> int | None:
        """Its exit code, negative for a signal; None as long as it runs."""
        return self._process.poll()

    def stop(self) -> None:
        """Has it finish what runs, and end."""
        assert self._process.stdin is not None
        self._process.stdin.close()

    def leave(self) -> None:
        """Has it end at once; it must have been told to stop before."""
        self._process.terminate()

    def kill(self) -> None:
        """Ends it whatever it does."""
        self.stop()
        self._process.kill()
        self._process.wait()


def end_with_parent() -> None:
    """In a worker: ends as by SIGTERM when its standard input ends, which the process that started
    it closes, or leaves to the system where it is killed."""

    def wait() -> None:
        # Not by sys.stdin, whose lock this thread would hold when the interpreter ends.
        while os.read(0, 4096):
            pass
        signal.raise_signal(signal.SIGTERM)

    threading.Thread(target=wait, name="redrive-parent", daemon=True).start()


class WorkerGroup:
    """Several workers of one program.

    A worker that dies is started again, after a pause that doubles each time until it has lived for
    a minute. One that is done ends all of them, as does one that says at its first start that it
    can't run: later, the broker may be away for a while.
    """

    def __init__(self, count: int, words: Callable[[int], Sequence[str]]) -> None:
        self._words = words
        self._workers: dict[int, WorkerProcess] = {}
        self._due = dict.fromkeys(range(1, count + 1), 0.0)
        """When each that does not run is to be started."""
        self._pauses: dict[int, float] = {}
        self._is_ending = False
        self._code = DONE

    def run(self) -> int:
        """Runs them until SIGTERM or Ctrl-C, or until one ends by itself; gives the exit code."""
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
            logger.info("%s has ended with code %d: all of them end", worker.name, code)
            self._stop()
        else:
            lived = time.monotonic() - worker.began
            pause = _FIRST_PAUSE if lived >= _LIVED_WELL else self._pauses.get(number, _FIRST_PAUSE)
            self._pauses[number] = min(2 * pause, _LONGEST_PAUSE)
            self._due[number] = time.monotonic() + pause
            logger.error(
                "%s was ended by %s; it is started again in %g s", worker.name, _cause(code), pause
            )

    def _stop(self) -> None:
        self._is_ending = True
        for worker in self._workers.values():
            worker.stop()

    def _leave(self) -> None:
        for worker in self._workers.values():
            worker.leave()


def _cause(code: int) -> str:
    """What ended a process, by its exit code."""
    if code >= 0:
        return f"exit code {code}"
    try:
        return signal.Signals(-code).name
    except ValueError:
        return f"signal {-code}"
