"""`redrive top` on a real broker, and in a real terminal."""

import os
import subprocess
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from cli_support import PATIENCE, give_up_on, redrive, wait_until

QUEUE = "ucenter@user"


class Tmux:
    """A terminal of 110 columns in a tmux of the test's own."""

    def __init__(self, directory: Path) -> None:
        self._socket = str(directory / f"tmux-{uuid.uuid4().hex[:6]}")
        # pytest-xdist says how large its own terminal is.
        other = {"COLUMNS", "LINES"}
        environment = {name: value for name, value in os.environ.items() if not name.startswith("TMUX") and name not in other}
        self._environment = {**environment, "TERM": "xterm-256color", "LC_ALL": "C.UTF-8", "PS1": "$ "}
        self._run("-f", "/dev/null", "new-session", "-d", "-x", "110", "-y", "20", "sh")

    def type(self, *keys: str) -> None:
        """Presses keys."""
        self._run("send-keys", *keys)

    @property
    def screen(self) -> str:
        """What stands on the screen."""
        return self._run("capture-pane", "-p")

    @property
    def state(self) -> str:
        """Whether the alternate screen is on, and whether the cursor is shown."""
        return self._run("display-message", "-p", "#{alternate_on} #{cursor_flag}").strip()

    def wait_for(self, text: str) -> None:
        """Waits until a text stands on the screen."""
        wait_until(lambda: text in self.screen, f"{text!r} on the screen")

    def close(self) -> None:
        """Ends it."""
        self._run("kill-server")

    def _run(self, *arguments: str) -> str:
        command = ["tmux", "-S", self._socket, *arguments]
        return subprocess.run(command, env=self._environment, capture_output=True, text=True, check=True, timeout=PATIENCE).stdout


@pytest.fixture
def tmux(tmp_path: Path) -> Iterator[Tmux]:
    terminal = Tmux(tmp_path)
    yield terminal
    terminal.close()


@pytest.mark.parametrize("key", ["q", "C-c"])
def test_it_draws_each_second_and_leaves_the_terminal_clean(tmux: Tmux, rabbitmq_url: str, rabbitmq_management_url: str, key: str) -> None:
    give_up_on(rabbitmq_url, QUEUE, [1, 2, 3])
    before = tmux.state
    command = f"{sys.executable} -m redrive.cli top --interval 0.3 --management-url {rabbitmq_management_url} --url {rabbitmq_url}"
    tmux.type(f"clear; echo before; {command}; echo left with $?", "Enter")
    tmux.wait_for("q ends it")
    tmux.wait_for(QUEUE)
    wait_until(lambda: any(QUEUE in line and " 3 " in line for line in tmux.screen.splitlines()), "the three failed messages")
    assert "guest:guest" not in tmux.screen
    tmux.type(key)
    tmux.wait_for("left with 0")
    assert tmux.state == before
    assert tmux.screen.startswith("before\nleft with 0\n")
    tmux.type("stty -a", "Enter")
    tmux.wait_for(" echo ")


def test_once_prints_a_table_and_leaves(rabbitmq_url: str, rabbitmq_management_url: str) -> None:
    give_up_on(rabbitmq_url, QUEUE, [1])
    arguments = ("top", "--once", "--interval", "0.2", "--management-url", rabbitmq_management_url)
    done = redrive(*arguments, url=rabbitmq_url)
    assert done.code == 0
    assert done.out.splitlines()[0].split() == [
        "subscription", "main", "retry", "failed", "consumers", "in/s", "done/s", "retried/s", "failed/s", "redriven/s"
    ]  # fmt: skip
    assert "1 subscriptions; 0 messages on delay ladders" in done.out
    wait_until(
        lambda: redrive(*arguments, "--output", "json", url=rabbitmq_url).json()["subscriptions"][0]["failed"] == 1, "the failed message"
    )


def test_without_a_terminal_it_says_to_give_once(rabbitmq_url: str, rabbitmq_management_url: str) -> None:
    done = redrive("top", "--management-url", rabbitmq_management_url, url=rabbitmq_url)
    assert (done.code, done.error_lines) == (2, ["Error: there is no terminal to draw in", "Give --once."])


def test_without_the_management_api_it_says_how_to_have_it(rabbitmq_url: str) -> None:
    done = redrive("top", "--once", "--management-url", "http://127.0.0.1:9", url=rabbitmq_url)
    assert done.code == 2
    assert "rabbitmq-plugins enable rabbitmq_management" in done.error_lines[1]
