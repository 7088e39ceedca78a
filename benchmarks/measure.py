"""What a contender is given to work with, and what is measured meanwhile."""

import resource
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from types import TracebackType
from typing import Self

from redrive.topology.model import QueueType

RETRY_SECONDS = 1
"""How long a message waits that is to fail once."""
_ID_DIGITS = 16


@dataclass(frozen=True, slots=True)
class Place:
    """Where a run takes place.

    Args:
        url: the broker's address with a virtual host that belongs to this run alone.
        management_url: the management API's address.
        prefetch: unsettled deliveries; None for the contender's own default.
        queue_type: of the queue.
    """

    url: str
    management_url: str
    prefetch: int | None
    queue_type: QueueType = "quorum"
    exchange: str = "master"
    queue: str = "bench"
    routing_key: str = "bench.created"
    pattern: str = "bench.#"


@dataclass(frozen=True, slots=True)
class Load:
    """The messages of a run: ASCII of one size, each beginning with its number, so that JSON wraps
    them without growth."""

    count: int
    size: int

    def bodies(self) -> Iterator[bytes]:
        """The bodies, made one at a time."""
        filler = b"." * (self.size - _ID_DIGITS)
        for number in range(self.count):
            yield b"%016d" % number + filler

    def texts(self) -> Iterator[str]:
        """The same for contenders whose messages are JSON."""
        filler = "." * (self.size - _ID_DIGITS)
        for number in range(self.count):
            yield f"{number:016d}{filler}"


class Clock:
    """Measures wall time and this process's CPU time, all threads included, while it is entered."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self.cpu_seconds = 0.0

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    def start(self) -> None:
        """The work begins."""
        self._cpu_at = time.process_time()
        self._at = time.perf_counter()

    def stop(self) -> None:
        """The work is done."""
        self.seconds = time.perf_counter() - self._at
        self.cpu_seconds = time.process_time() - self._cpu_at


class Ledger:
    """Notes which messages a handler was given; the clock runs from the first to the last."""

    def __init__(self, expected: int) -> None:
        self.clock = Clock()
        self.complete = threading.Event()
        self.expected = expected
        self._numbers: list[int] = []
        self._tried: set[int] = set()
        self._begun = False
        self._when_complete: Callable[[], None] | None = None

    def note(self, body: bytes | str) -> None:
        """A handler was given this body; from any thread."""
        numbers = self._numbers
        self._begin()
        numbers.append(int(body[:_ID_DIGITS]))
        if len(numbers) >= self.expected and not self.complete.is_set():
            self.clock.stop()
            self.complete.set()
            if self._when_complete is not None:
                self._when_complete()

    def is_tried_first(self, body: bytes | str) -> bool:
        """Whether a handler was given this body for the first time: then it is to fail. From any
        thread."""
        self._begin()
        number = int(body[:_ID_DIGITS])
        if number in self._tried:
            return False
        self._tried.add(number)
        return True

    def _begin(self) -> None:
        if not self._begun:
            self._begun = True
            self.clock.start()

    def when_complete(self, function: Callable[[], None]) -> None:
        """Has `function` called on the handler's thread, inside the last handler."""
        self._when_complete = function

    def take_over(self, distinct: int, seconds: float, cpu_seconds: float) -> None:
        """Another program has handled the messages, and measured itself."""
        self._numbers = list(range(distinct))
        self.clock.seconds, self.clock.cpu_seconds = seconds, cpu_seconds

    @property
    def distinct(self) -> int:
        """How many different messages were handled."""
        return len(set(self._numbers))


def peak_memory_mb() -> float:
    """The most resident memory that this process has had, in MB (1024 * 1024 bytes).

    On Linux not `ru_maxrss`: a program inherits the peak of the process that started it. Source:
    Linux, fs/exec.c, `exec_mmap`.
    """
    try:
        with open("/proc/self/status") as status:
            return next(int(line.split()[1]) for line in status if line.startswith("VmHWM:")) / 1024
    except OSError:
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return peak / (1024 * 1024 if sys.platform == "darwin" else 1024)
