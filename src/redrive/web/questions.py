"""Asks what people have made up in processes that can be ended: after so long, with so much memory,
so many at a time, and when whoever asked has gone."""

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
from redrive.failures.look import CachePolicy, Look
from redrive.failures.mask import Mask
from redrive.failures.masked_messages import masked_look
from redrive.failures.message_source import answer_of
from redrive.topology.names import ExchangeFamily
from redrive.web.look_questions import LookQuestion
from redrive.web.page_request import QueuePlace

READER_IS_GONE: ContextVar[threading.Event] = ContextVar("redrive-reader-is-gone")
"""Set once whoever has sent a request has hung up."""
READY = "ready"
"""What a process says that can be asked."""
_SECONDS = 20.0
_MOST_OF_A_USER = 2
_MOST = 6
_IDLE = 2
"""Processes that are kept for the next question: to start one takes half a second."""
_START_SECONDS = 60.0
_GLANCE_SECONDS = 0.05
_EVER = timedelta(days=36500)
_COMMAND = (sys.executable, "-P", "-m", "redrive.web.question_process")


class TooManyQuestions(RedriveError):
    """So many questions are being answered that this one can't be."""

    def __init__(self, problem: str, remedy: str) -> None:
        super().__init__(problem, remedy)

    def __str__(self) -> str:
        return "\n".join(map(str, self.args))


@dataclass(frozen=True, slots=True)
class QuestionTask:
    """A question, and of what it is asked.

    Args:
        place: the queue.
        url: the broker's address.
        family: the exchange family.
        management_url: where the management API is; None for the usual place.
        mask: what is hidden in bodies.
        keeps_bodies: whether bodies are kept on this machine.
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
    """What came of a question: an answer, an error, or a defect of redrive's.

    Args:
        answer: the answer.
        look: the look that it is of, without its messages.
        error: why there is none.
        defect: the traceback of an exception that nobody has foreseen.
    """

    answer: object = None
    look: Look = field(default_factory=lambda: Look(""))
    error: RedriveError | None = None
    defect: str = ""


def failed_queue_of(task: QuestionTask) -> FailedQueue:
    """Return the queue that a question is of."""
    return FailedQueue(
        task.url,
        task.place.name,
        task.family,
        connection_name=f"redrive console: {task.place.name}"[:100],
        management_url=task.management_url,
        literal=task.place.literal,
    )


def answered(task: QuestionTask, failed: FailedQueue | None = None) -> tuple[object, Look]:
    """Return what an earlier look answers; the queue is not touched."""
    queue = failed or failed_queue_of(task)
    return answer_of(
        queue,
        lambda look: task.question(queue, masked_look(look, task.mask)),
        recall=CachePolicy(_EVER, or_look=False, keeps_bodies=task.keeps_bodies),
    )


class _Process:
    """A process that answers one question after the other."""

    def __init__(self) -> None:
        own, other = Pipe()
        self._connection = own
        # What a question has spilled goes with its process, however that ends.
        self._folder = tempfile.TemporaryDirectory(prefix="redrive-question-")
        try:
            self._process = subprocess.Popen(
                [*_COMMAND, str(other.fileno())],
                # Each of a thread's own pools of memory would count as a part of what it may take.
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
        """Wait until it can be asked."""
        self._received(_START_SECONDS, _died())

    def ask(self, task: QuestionTask) -> QuestionResult:
        """Return its answer."""
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
                    raise TooManyQuestions("nobody waits for the answer", "")
                if time.monotonic() > until:
                    raise late
            found: QuestionResult | str = self._connection.recv()
        except (EOFError, OSError) as error:
            raise _died() from error
        return found

    def kill(self) -> None:
        """Have whoever waits for an answer get none."""
        self._process.kill()

    def end(self) -> None:
        """End it, whatever it does."""
        self._process.kill()
        self._process.wait()
        self._connection.close()
        self._folder.cleanup()


class Questions:
    """The processes that answer what people have made up, for all users of a console."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._idle: list[_Process] = []
        self._busy: list[_Process] = []
        self._asking: list[str] = []
        self._is_closed = False

    def ask(self, user: str, task: QuestionTask) -> tuple[object, Look]:
        """Return what an earlier look answers, and that look."""
        with self._a_place(user), self._a_process() as process:
            found = process.ask(task)
            # One that could not answer may lack the memory for the next question, too.
            if found.error is not None:
                raise found.error
            if found.defect:
                raise RuntimeError(found.defect)
        return found.answer, found.look

    def close(self) -> None:
        """End all of them."""
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
                    "other questions with a filter or a query are being answered",
                    "Wait for their end, and ask again.",
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
    """An environment for a process that is told the broker's address, with its password, by a
    pipe."""
    return {name: value for name, value in environment.items() if name != "REDRIVE_URL"}


def _too_slow() -> ConfigurationError:
    return ConfigurationError(
        f"the question takes longer than {_SECONDS:g} s",
        "Ask for less at a time, or use the command line.",
    )


def _died() -> ConfigurationError:
    return ConfigurationError(
        "the process that was to answer has ended, perhaps for want of memory",
        "Ask for less at a time, or use the command line.",
    )
