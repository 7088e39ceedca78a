"""Runs filters and queries written by users in processes with limits on time, memory and number,
which end when the client hangs up."""

import contextlib
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping
from contextvars import ContextVar
from dataclasses import dataclass, field
from datetime import timedelta
from multiprocessing import Pipe

from redrive.errors import ConfigurationError, RedriveError
from redrive.failures.failed_queue import FailedQueue
from redrive.failures.message.mask import Mask
from redrive.failures.queue.message_source import answer_of
from redrive.failures.store.look import CachePolicy, Look
from redrive.failures.store.masked_messages import masked_look
from redrive.topology.names import ExchangeFamily
from redrive.web.look_questions import LookQuestion
from redrive.web.page_request import QueuePlace

READER_IS_GONE: ContextVar[threading.Event] = ContextVar("redrive-reader-is-gone")
"""Set once the client of the current request has hung up."""
READY = "ready"
"""What a process sends once it is ready for questions."""
_SECONDS = 20.0
_MOST_OF_A_USER = 2
_MOST = 6
_IDLE = 2
"""Processes that are kept for the next question: starting one takes half a second."""
_START_SECONDS = 60.0
_GLANCE_SECONDS = 0.05
_EVER = timedelta(days=36500)
_COMMAND = (sys.executable, "-P", "-m", "redrive.web.question_process")


class TooManyQuestions(RedriveError):
    """Too many questions are being answered to accept this one."""

    def __init__(self, problem: str, remedy: str) -> None:
        super().__init__(problem, remedy)

    def __str__(self) -> str:
        return "\n".join(map(str, self.args))


@dataclass(frozen=True, slots=True)
class QuestionTask:
    """A question, and the queue that it is about.

    Args:
        place: the queue.
        url: the broker's address.
        family: the exchange family.
        management_url: the address of the management API; None for the default.
        mask: what to mask in bodies.
        keeps_bodies: whether bodies are stored on this machine.
        question: the question.
    """

    place: QueuePlace
    url: str = field(repr=False)
    family: ExchangeFamily
    management_url: str | None
    mask: Mask | None
    keeps_bodies: bool
    question: LookQuestion[object]


@dataclass(frozen=True, slots=True)
class QuestionResult:
    """The result of a question: an answer, an error, or a bug in redrive.

    Args:
        answer: the answer.
        look: the look that answered, without its messages.
        error: why there is no answer.
        defect: the traceback of an unexpected exception.
    """

    answer: object = None
    look: Look = field(default_factory=lambda: Look(""))
    error: RedriveError | None = None
    defect: str = ""


def failed_queue_of(task: QuestionTask) -> FailedQueue:
    """Return the queue that a question is about."""
    return FailedQueue(
        task.url,
        task.place.name,
        task.family,
        connection_name=f"redrive console: {task.place.name}"[:100],
        management_url=task.management_url,
        literal=task.place.literal,
    )


def answered(task: QuestionTask, failed: FailedQueue | None = None) -> tuple[object, Look]:
    """Return the answer of an earlier look, and that look; the queue is not touched."""
    queue = failed or failed_queue_of(task)
    return answer_of(
        queue,
        lambda look: task.question(queue, masked_look(look, task.mask)),
        recall=CachePolicy(_EVER, or_look=False, keeps_bodies=task.keeps_bodies),
    )


class _Process:
    """A process that answers one question at a time."""

    def __init__(self) -> None:
        own, other = Pipe()
        self._connection = own
        # Temporary files of queries are deleted with the process, however it ends.
        self._folder = tempfile.TemporaryDirectory(prefix="redrive-question-")
        try:
            self._process = subprocess.Popen(
                [*_COMMAND, str(other.fileno())],
                # Per-thread malloc arenas would count towards the memory limit.
                env={
                    **without_address(os.environ),
                    "MALLOC_ARENA_MAX": "2",
                    "TMPDIR": self._folder.name,
                },
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                start_new_session=True,
                pass_fds=(other.fileno(),),
            )
        finally:
            other.close()

    def wait_for_start(self) -> None:
        """Wait until it is ready for questions."""
        self._received(_START_SECONDS, _died())

    def ask(self, task: QuestionTask) -> QuestionResult:
        """Return the result of a question."""
        self._connection.send(task)
        found = self._received(_SECONDS, _too_slow())
        assert isinstance(found, QuestionResult)
        return found

    def _received(self, seconds: float, late: RedriveError) -> QuestionResult | str:
        gone = READER_IS_GONE.get(None)
        until = time.monotonic() + seconds
        try:
            while not self._connection.poll(_GLANCE_SECONDS):
                if gone is not None and gone.is_set():
                    raise TooManyQuestions("the client has hung up", "")
                if time.monotonic() > until:
                    raise late
            found: QuestionResult | str = self._connection.recv()
        except (EOFError, OSError) as error:
            raise _died() from error
        return found

    def kill(self) -> None:
        """Kill the process; a caller that waits for an answer gets an error."""
        self._process.kill()

    def end(self) -> None:
        """Kill the process and clean up, whatever it is doing."""
        self._process.kill()
        self._process.wait()
        self._connection.close()
        self._folder.cleanup()


class Questions:
    """The processes that answer filters and queries for all users of a console."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._idle: list[_Process] = []
        self._busy: list[_Process] = []
        self._asking: list[str] = []
        self._is_closed = False

    def ask(self, user: str, task: QuestionTask) -> tuple[object, Look]:
        """Return the answer of an earlier look, and that look."""
        with self._a_place(user), self._a_process() as process:
            found = process.ask(task)
            # A process that failed may lack memory for the next question too: it is not reused.
            if found.error is not None:
                raise found.error
            if found.defect:
                raise RuntimeError(found.defect)
        return found.answer, found.look

    def close(self) -> None:
        """End all processes."""
        with self._lock:
            self._is_closed = True
            idle, self._idle = self._idle, []
            busy = list(self._busy)
        for process in idle:
            process.end()
        for process in busy:
            process.kill()

    @contextlib.contextmanager
    def _a_place(self, user: str) -> Iterator[None]:
        with self._lock:
            if len(self._asking) >= _MOST or self._asking.count(user) >= _MOST_OF_A_USER:
                raise TooManyQuestions(
                    "too many filters and queries are running",
                    "Wait a moment, then try again.",
                )
            self._asking.append(user)
        try:
            yield
        finally:
            with self._lock:
                self._asking.remove(user)

    @contextlib.contextmanager
    def _a_process(self) -> Iterator[_Process]:
        with self._lock:
            process = self._idle.pop() if self._idle else None
        is_new, is_well = process is None, False
        process = process or _Process()
        with self._lock:
            self._busy.append(process)
        try:
            if is_new:
                process.wait_for_start()
            yield process
            is_well = True
        finally:
            with self._lock:
                self._busy.remove(process)
                is_kept = is_well and not self._is_closed and len(self._idle) < _IDLE
                if is_kept:
                    self._idle.append(process)
            if not is_kept:
                process.end()


def without_address(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the environment without the broker's address and password, which the process gets
    through a pipe."""
    return {name: value for name, value in environment.items() if name != "REDRIVE_URL"}


def _too_slow() -> ConfigurationError:
    return ConfigurationError(
        f"the filter or query took longer than {_SECONDS:g} s",
        "Narrow it down, or use the command line.",
    )


def _died() -> ConfigurationError:
    return ConfigurationError(
        "the process that ran the filter or query died, perhaps out of memory",
        "Narrow it down, or use the command line.",
    )
