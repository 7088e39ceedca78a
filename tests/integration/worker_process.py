"""Workers as processes that can be killed, and what they left behind in their notes."""

import contextlib
import json
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from contract.support import Service
from waiting import wait_until

_PROGRAM = Path(__file__).with_name("worker_program.py")
STOP_SECONDS = 90.0


class Notes:
    """What workers wrote down, over all their lives."""

    def __init__(self, path: Path) -> None:
        self.path = path
        path.touch()

    def of(self, what: str) -> Counter[str]:
        """How often each id was `begun` or `handled`."""
        lines = (line.split() for line in self.path.read_text().splitlines())
        return Counter(message_id for word, message_id in lines if word == what)

    @property
    def begun(self) -> Counter[str]:
        """How often each message was begun, by its id."""
        return self.of("begun")

    @property
    def handled(self) -> Counter[str]:
        """How often each message was handled to the end, by its id."""
        return self.of("handled")

    @property
    def handled_in_order(self) -> list[str]:
        """The ids of what was handled, in its order."""
        return [
            line.split()[1]
            for line in self.path.read_text().splitlines()
            if line.startswith("handled ")
        ]

    @property
    def asked_to_leave(self) -> bool:
        """Whether a worker has answered its first signal."""
        return bool(self.of("asked"))

    @property
    def left_in_order(self) -> int:
        """How many workers have left by themselves."""
        return self.of("left").total()


class Worker:
    """One process that runs the subscription of a service; it is gone at the end of the block,
    however that comes."""

    def __init__(
        self, service: Service, notes: Notes, behaviour: str = "handle", **options: Any
    ) -> None:
        settings = {
            "url": service.url,
            "queue": service.queue,
            "queue_type": service.queue_type,
            "behaviour": behaviour,
            "notes": str(notes.path),
            "shell": service.shell.name,
            "options": options,
        }
        self._command = [sys.executable, "-W", "error", str(_PROGRAM), json.dumps(settings)]
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def process(self) -> subprocess.Popen[bytes]:
        """The process."""
        assert self._process is not None
        return self._process

    def kill(self) -> None:
        """Kills it, as a power cut does."""
        self.process.kill()
        self.process.wait(STOP_SECONDS)

    def terminate(self) -> None:
        """Asks it to leave."""
        self.process.send_signal(signal.SIGTERM)

    def wait(self) -> int:
        """Waits for its end; returns how it ended."""
        return self.process.wait(STOP_SECONDS)

    def __enter__(self) -> Self:
        self._process = subprocess.Popen(
            self._command, stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.kill()


class Supervised:
    """A worker that is started again when it has died, as a service manager does."""

    def __init__(self, service: Service, notes: Notes, behaviour: str, **options: Any) -> None:
        self._new: Callable[[], Worker] = lambda: Worker(service, notes, behaviour, **options)
        self._workers = contextlib.ExitStack()
        self._current: Worker | None = None
        self.deaths = 0

    def wait_until(
        self, condition: Callable[[], object], what: str, seconds: float = 180.0
    ) -> None:
        """Keeps it running until `condition` says something true."""
        wait_until(lambda: self.revived() and condition(), what, seconds)

    def kill(self) -> None:
        """Kills the one that runs; the next one starts when it is looked after again."""
        assert self._current is not None
        self._current.kill()

    def revived(self) -> bool:
        """Starts it where it does not run; returns True."""
        if self._current is None or self._current.process.poll() is not None:
            self.deaths += self._current is not None
            self._current = self._workers.enter_context(self._new())
        return True

    def __enter__(self) -> Self:
        self.revived()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._workers.close()
