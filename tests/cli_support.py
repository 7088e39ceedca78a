"""Runs the command `redrive` as people and programs do: in this process where speed matters, else
as a process of its own."""

import codecs
import contextlib
import io
import json
import os
import pty
import re
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any
from unittest import mock
from urllib.parse import urlsplit

import pytest

from redrive import FailedQueue, Message, Publisher, RetryPolicy, Subscriber
from redrive.cli.__main__ import main
from waiting import wait_until

PATIENCE = 90.0
_VARIABLES = ("REDRIVE_URL", "REDRIVE_MANAGEMENT_URL", "REDRIVE_EXCHANGE")
"""What would stand for options that a test does not give."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a command left behind."""

    code: int
    out: str
    err: str

    def json(self) -> Any:
        """What it printed, as JSON."""
        assert self.out, f"it ended with {self.code}, and printed nothing but {self.err!r}"
        return json.loads(self.out)

    @property
    def error_lines(self) -> list[str]:
        """The lines on stderr."""
        return self.err.splitlines()


def give_the_management_api_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Has a busy one waited for: a command says that it does not know what takes three seconds."""
    for place in ("redrive.cli.status", "redrive.failures.queue.failed_count"):
        monkeypatch.setattr(f"{place}.QUICK_TIMEOUT", timedelta(seconds=PATIENCE))


def find_the_management_api(monkeypatch: pytest.MonkeyPatch, management_url: str) -> None:
    """Have commands of this process find it without an option, as on its usual port."""
    port = urlsplit(management_url).port
    monkeypatch.setattr("redrive.pubsub.admin.management_api._PORTS", {False: port, True: port})


def redrive(*arguments: str, url: str | None = None, stdin: bytes = b"") -> Outcome:
    """Runs the command in this process, with nobody at a terminal."""
    out, err = (io.TextIOWrapper(io.BytesIO(), "utf-8") for _ in range(2))
    with (
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
        mock.patch.object(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin), "utf-8")),
        mock.patch.dict(os.environ),
    ):
        for variable in _VARIABLES:
            os.environ.pop(variable, None)
        os.environ.pop(
            "COLUMNS", None
        )  # pytest-xdist sets it: what is printed is for a file, and as wide as it is
        code = main(_with_url(arguments, url))
        out.flush()
        err.flush()
    return Outcome(code, _text(out), _text(err))


def run_redrive(
    *arguments: str,
    url: str | None = None,
    stdin: bytes = b"",
    environment: Mapping[str, str] | None = None,
    cwd: str | None = None,
) -> Outcome:
    """Runs the command as a process of its own, until its end or that of the test's time: on a busy
    machine Spark takes minutes."""
    done = subprocess.run(
        _command(arguments, url),
        input=stdin,
        capture_output=True,
        env=_environment(environment),
        cwd=cwd,
        check=False,
    )
    return Outcome(done.returncode, done.stdout.decode(), done.stderr.decode())


@contextlib.contextmanager
def running(
    *arguments: str,
    url: str | None = None,
    environment: Mapping[str, str] | None = None,
    cwd: str | None = None,
) -> Iterator["Process"]:
    """The command as a process that goes on."""
    popen = subprocess.Popen(
        _command(arguments, url),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=_environment(environment),
        cwd=cwd,
    )
    with popen:
        try:
            yield Process(popen)
        except BaseException as error:
            popen.kill()
            error.add_note(f"the command has printed: {popen.communicate()}")
            raise
        finally:
            popen.kill()


class Process:
    """A running command."""

    def __init__(self, popen: subprocess.Popen[bytes]) -> None:
        self._popen = popen

    def signal(self, number: signal.Signals) -> None:
        """Sends it a signal."""
        self._popen.send_signal(number)

    @property
    def pid(self) -> int:
        """The number of its process."""
        return self._popen.pid

    @property
    def has_ended(self) -> bool:
        """Whether it has ended by itself."""
        return self._popen.poll() is not None

    def end(self, seconds: float = PATIENCE) -> Outcome:
        """Waits for its end."""
        out, err = self._popen.communicate(timeout=seconds)
        return Outcome(self._popen.returncode, out.decode(), err.decode())


class Terminal:
    """The command at a terminal of its own."""

    def __init__(
        self,
        *arguments: str,
        url: str | None = None,
        columns: int = 80,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self._screen = b""
        self._pid, self._terminal = pty.fork()
        if self._pid == 0:  # the command
            command = _command(arguments, url)
            os.execve(
                command[0],
                command,
                {**_environment(environment), "COLUMNS": str(columns), "TERM": "xterm"},
            )

    def __enter__(self) -> "Terminal":
        return self

    def __exit__(self, *_: object) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(self._pid, signal.SIGKILL)
        with contextlib.suppress(ChildProcessError):
            os.waitpid(self._pid, 0)
        os.close(self._terminal)

    @property
    def screen(self) -> str:
        """What it has written."""
        # What was read last may end within a letter, and a terminal echoes a key within one.
        decoder = codecs.getincrementaldecoder("utf-8")("replace")
        return decoder.decode(self._screen).replace("\r\n", "\n")

    @property
    def words(self) -> str:
        """What it has written, without colours. A line of progress that was written over is a line:
        a look that lasts shows some."""
        return re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", self.screen.replace("\r", "\n"))

    def wait_for(self, text: str) -> None:
        """Waits until it has written a text."""
        deadline = time.monotonic() + PATIENCE
        while text not in self.screen:
            assert time.monotonic() < deadline, (
                f"{text!r} never came; the screen is:\n{self.screen}"
            )
            if not self._read(0.1):
                raise AssertionError(
                    f"it ended before {text!r} came; the screen is:\n{self.screen}"
                )

    def type(self, text: str) -> None:
        """Types a text; \\x03 is Ctrl-C."""
        os.write(self._terminal, text.encode())

    def end(self) -> int:
        """Waits for its end; returns its exit code."""
        deadline = time.monotonic() + PATIENCE
        while self._read(0.1):
            assert time.monotonic() < deadline, f"it does not end; the screen is:\n{self.screen}"
        _, status = os.waitpid(self._pid, 0)
        return os.waitstatus_to_exitcode(status)

    def _read(self, timeout: float) -> bool:
        """Reads what there is; False once the command has ended."""
        ready, _, _ = select.select([self._terminal], [], [], timeout)
        if ready:
            try:
                piece = os.read(self._terminal, 65536)
            except OSError:  # Linux says EIO when the other side is closed
                return False
            self._screen += piece
            return bool(piece)
        return True


def declare(url: str, queue: str) -> None:
    """Declares a subscription to `user.*` with a short delay."""
    assert (
        redrive(
            "declare",
            "--queue",
            queue,
            "--routing-key",
            "user.*",
            "--retry-delay",
            "200ms",
            url=url,
        ).code
        == 0
    )


def give_up_on(
    url: str, queue: str, bodies: list[object], error: Exception | None = None
) -> list[str]:
    """Publishes messages whose handler fails, and waits until each is in the failed queue; returns
    their ids."""
    subscriber = Subscriber(
        url, queue, ["user.*"], retry=RetryPolicy(0, timedelta(milliseconds=200))
    )

    @subscriber.handler
    def fail(_: Message) -> None:
        raise error or ValueError("no plan for 'gold'")

    subscriber.declare()
    with Publisher(url) as publisher:
        ids = [
            publisher.publish(body, "user.create", headers={"tenant": "acme"}) for body in bodies
        ]
    failed = FailedQueue(url, queue)
    before = failed.depth()
    subscriber.start()
    try:
        wait_until(lambda: failed.depth() == before + len(bodies), "giving up")
    finally:
        subscriber.stop()
        subscriber.wait()
    return ids


def depth_of(url: str, queue: str) -> dict[str, int | None]:
    """How many messages are in main, retry and failed, as `redrive status` says."""
    found = redrive("status", queue, "--output", "json", url=url).json()[0]
    return {
        place: found[place] and found[place]["messages"] for place in ("main", "retry", "failed")
    }


def _with_url(arguments: tuple[str, ...], url: str | None) -> list[str]:
    return [*arguments, "--url", url] if url else list(arguments)


def _command(arguments: tuple[str, ...], url: str | None) -> list[str]:
    return [sys.executable, "-m", "redrive.cli", *_with_url(arguments, url)]


def _environment(more: Mapping[str, str] | None) -> dict[str, str]:
    mine = {
        name: value
        for name, value in os.environ.items()
        if name not in {*_VARIABLES, "COLUMNS", "FORCE_COLOR", "NO_COLOR"}
    }
    return {**mine, "PYTHONWARNINGS": "error", **(more or {})}


def _text(stream: io.TextIOWrapper) -> str:
    buffer = stream.buffer
    assert isinstance(buffer, io.BytesIO)
    return buffer.getvalue().decode()
