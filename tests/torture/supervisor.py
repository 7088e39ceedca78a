"""Processes of a torture run that are started again when they die, as a service manager does."""

import contextlib
import os
import re
import signal
import subprocess
import threading
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from torture.program import Settings

_BETWEEN_LOOKS = 0.2
_STOP_SECONDS = 60.0
_ERROR = re.compile(r"[ |]*[\w.]+: ")
_ROOT = Path(__file__).resolve().parents[1]


@dataclass(frozen=True, slots=True)
class Death:
    """A process that ended without being told to.

    Args:
        name: which one.
        at: when that was seen, in nanoseconds of the monotonic clock.
        code: how it ended.
        last_words: the last error that it printed.
    """

    name: str
    at: int
    code: int
    last_words: str

    def __str__(self) -> str:
        return f"{self.name} ended with {self.code}: {self.last_words}"


class Supervised:
    """One process, over all its lives.

    Args:
        settings: what it is told.
        module: the module of this package that it runs.
    """

    def __init__(self, settings: Settings, module: str) -> None:
        self.name = settings.name
        self._command = settings.command(module)
        self._log = Path(settings.folder) / f"{settings.name}.log"
        self._process: subprocess.Popen[bytes] | None = None
        self._lock = threading.Lock()
        self._killed = False
        self.is_done = False
        self.starts = 0

    def keep(self) -> Death | None:
        """Starts it if it does not run and is not done; returns a death that nobody has caused."""
        with self._lock:
            death = None
            if self._process is not None:
                code = self._process.poll()
                if code is None or self.is_done:
                    return None
                if code == 0:
                    self.is_done = True
                    return None
                if not self._killed:
                    death = Death(self.name, time.monotonic_ns(), code, self._last_words())
                self._forget()
            self._process = started(self._command, self._log)
            self._killed = False
            self.starts += 1
            return death

    def kill(self) -> None:
        """Kills it, as a power cut does."""
        with self._lock:
            if self._process is not None and not self.is_done:
                self._killed = True
                self._process.kill()
                self._process.wait(_STOP_SECONDS)

    def pause(self) -> None:
        """Has it stand still."""
        self._signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Lets it go on."""
        self._signal(signal.SIGCONT)

    def stop(self) -> None:
        """Asks it to leave, and kills it if it does not."""
        with self._lock:
            self.is_done = True
            if self._process is None:
                return
            self._process.send_signal(signal.SIGCONT)
            self._process.terminate()
            try:
                self._process.wait(_STOP_SECONDS)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait(_STOP_SECONDS)
            self._forget()

    def end(self) -> None:
        """Kills it for good."""
        with self._lock:
            self.is_done = True
            if self._process is not None:
                self._process.kill()
                self._process.wait(_STOP_SECONDS)
                self._forget()

    def _signal(self, number: signal.Signals) -> None:
        with self._lock:
            if self._process is not None and self._process.poll() is None:
                self._process.send_signal(number)

    def _last_words(self) -> str:
        lines = self._log.read_text(errors="replace").splitlines()
        return next((line for line in reversed(lines) if _ERROR.match(line)), "")

    def _forget(self) -> None:
        if self._process is not None and self._process.stdin is not None:
            with contextlib.suppress(OSError):
                self._process.stdin.close()
        self._process = None


class Supervisor:
    """Keeps processes running, in a thread of its own, for as long as the block."""

    def __init__(self, processes: Iterable[Supervised]) -> None:
        self.processes = list(processes)
        self.deaths: list[Death] = []
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._keep_all, name="supervisor", daemon=True)

    def _keep_all(self) -> None:
        while not self._over.wait(_BETWEEN_LOOKS):
            for process in self.processes:
                death = process.keep()
                if death is not None:
                    self.deaths.append(death)

    def stop(self) -> None:
        """Asks all processes to leave, and starts none again."""
        self._over.set()
        self._thread.join()
        for process in self.processes:
            process.stop()

    def __enter__(self) -> "Supervisor":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()
        for process in self.processes:
            process.end()


def started(command: list[str], log: Path) -> subprocess.Popen[bytes]:
    """A process that ends with this one, in a session of its own: Ctrl-C is not for it."""
    with log.open("ab") as output:
        return subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=output,
            stderr=output,
            env={**os.environ, "PYTHONPATH": str(_ROOT)},
            start_new_session=True,
        )


def run_to_its_end(settings: Settings, module: str, *arguments: str) -> None:
    """Runs a program of this package once.

    Raises:
        RuntimeError: it failed; the message has what it printed last.
    """
    log = Path(settings.folder) / f"{settings.name}.log"
    process = started(settings.command(module, *arguments), log)
    try:
        code = process.wait(180)
    finally:
        process.kill()
        process.wait()
        assert process.stdin is not None
        process.stdin.close()
    if code:
        tail = "\n".join(log.read_text(errors="replace").splitlines()[-8:])
        raise RuntimeError(f"{module} {' '.join(arguments)} ended with {code}:\n{tail}")
