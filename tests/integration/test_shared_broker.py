"""One broker for several processes: there until the last has left, and no longer than they live."""

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from redrive.testing.address import Address

PROGRAM = """
import sys
from pathlib import Path
from redrive.testing.shared_broker import shared_broker

with shared_broker(Path(sys.argv[1]), sys.argv[2]) as shared:
    print(shared.broker.url, flush=True)
    sys.stdin.readline()
"""


@contextmanager
def process(folder: Path, name: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A process that shares the broker, until a line comes or it is killed; and the broker's
    URL."""
    command = [sys.executable, "-c", PROGRAM, str(folder), name]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as popen:
        assert popen.stdout is not None
        try:
            yield popen, popen.stdout.readline().strip()
        finally:
            popen.kill()


def leave(popen: subprocess.Popen[str]) -> None:
    assert popen.stdin is not None
    popen.stdin.write("\n")
    popen.stdin.flush()


def answers(url: str) -> bool:
    address = Address.parse(url)
    try:
        socket.create_connection((address.host, address.port), 5).close()
    except OSError:
        return False
    return True


@pytest.mark.nightly("the next one has that, and a process that was killed besides")
def test_it_is_there_until_the_last_has_left(tmp_path: Path) -> None:
    with process(tmp_path, "first") as (first, url), process(tmp_path, "second") as (second, same):
        assert same == url
        leave(first)
        with pytest.raises(subprocess.TimeoutExpired):
            first.wait(3)
        assert answers(url)
        leave(second)
        assert (second.wait(60), first.wait(90)) == (0, 0)
        assert not answers(url)


@pytest.mark.nightly("another is tried each time that kills the one that started it")
def test_a_process_that_was_killed_is_not_waited_for(tmp_path: Path) -> None:
    with process(tmp_path, "first") as (first, url), process(tmp_path, "second") as (second, _):
        os.kill(second.pid, signal.SIGKILL)
        leave(first)
        assert first.wait(90) == 0
        assert not answers(url)


@pytest.mark.nightly("every run of the tests shares one")
def test_after_the_one_that_started_it_was_killed_another_is_started(tmp_path: Path) -> None:
    with process(tmp_path, "first") as (first, url):
        os.kill(first.pid, signal.SIGKILL)
        first.wait(60)
        with process(tmp_path, "second") as (second, another):
            assert answers(another)
            assert another != url
            leave(second)
            assert second.wait(90) == 0
