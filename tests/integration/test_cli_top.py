"""`redrive top` on a real broker, and in a real terminal."""

import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import uuid
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from cli_support import PATIENCE, declare, give_up_on, redrive
from contract.plain import plain_channel
from contract.support import Recorder, Service, retrying
from prerequisites import unavailable
from redrive.testing.proxy import Proxy
from waiting import DEADLINE, wait_until

QUEUE = "ucenter@user"
PATIENT = Path(__file__).with_name("patient_program.py")


class Tmux:
    """A terminal of 110 columns in a tmux of the test's own."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._socket = str(directory / f"tmux-{uuid.uuid4().hex[:6]}")
        # pytest-xdist says how large its own terminal is.
        other = {"COLUMNS", "LINES"}
        environment = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith("TMUX") and name not in other
        }
        self._environment = {
            **environment,
            "TERM": "xterm-256color",
            "LC_ALL": "C.UTF-8",
            "PS1": "$ ",
        }
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

    @property
    def seconds(self) -> int | None:
        """The seconds of the clock that stands on the screen."""
        found = re.search(r"— \d\d:\d\d:(\d\d) —", self.screen)
        return int(found[1]) if found else None

    def see_the_clock_tick(self) -> None:
        """Waits until the clock on the screen has gone on by a second, twice: a view that stands
        still jumps."""
        seen: list[int] = []

        def ticked_twice() -> bool:
            second = self.seconds
            if second is not None and seen[-1:] != [second]:
                seen.append(second)
            return any(
                seen[i : i + 3] == [seen[i], (seen[i] + 1) % 60, (seen[i] + 2) % 60]
                for i in range(len(seen) - 2)
            )

        wait_until(ticked_twice, "a clock that ticks on the screen")

    def resize(self, columns: int, lines: int) -> None:
        """Makes it another size."""
        self._run("resize-window", "-x", str(columns), "-y", str(lines))

    def record(self, path: Path) -> None:
        """From now on, appends what is written on it to a file."""
        self._run("pipe-pane", f"cat >> {path}")

    def close(self) -> None:
        """Ends it."""
        self._run("kill-server")

    def _run(self, *arguments: str) -> str:
        command = ["tmux", "-S", self._socket, *arguments]
        return subprocess.run(
            command,
            env=self._environment,
            capture_output=True,
            text=True,
            check=True,
            timeout=PATIENCE,
        ).stdout


@pytest.fixture
def tmux(tmp_path: Path) -> Iterator[Tmux]:
    if shutil.which("tmux") is None:
        unavailable("tmux")
    terminal = Tmux(tmp_path)
    yield terminal
    terminal.close()


@pytest.fixture
def wire(rabbitmq_management_url: str) -> Iterator[Proxy]:
    """A wire to the management API that can be slow, frozen and cut."""
    with Proxy(rabbitmq_management_url.replace("http", "amqp", 1)) as proxy:
        yield proxy


def through(wire: Proxy) -> str:
    """The management API's address at the near end of a wire."""
    return f"http://127.0.0.1:{urlsplit(wire.url).port}"


def begin(tmux: Tmux, url: str, management_url: str, program: str = "-m redrive.cli") -> str:
    """Runs the view, in a shell that says when it was left; returns the state of the terminal
    before."""
    before = tmux.state
    command = (
        f"{sys.executable} {program} top --interval 0.3 --management-url "
        f"{management_url} --url {url}"
    )
    told = tmux.directory / "process"
    tmux.type(
        f"clear; echo before; sh -c 'echo $$ >{told}; exec {command}'; echo left with $?", "Enter"
    )
    tmux.wait_for("redrive top —")
    return before


def assert_it_is_clean(tmux: Tmux, state: str) -> None:
    """That the view has left nothing on the terminal, and that the terminal echoes what is
    typed."""
    tmux.wait_for("left with 0")
    assert tmux.state == state
    assert tmux.screen.startswith("before\nleft with 0\n")
    tmux.type("stty -a", "Enter")
    tmux.wait_for(" echo ")


@pytest.mark.parametrize("key", ["q", "C-c"])
def test_it_draws_each_second_and_leaves_the_terminal_clean(
    tmux: Tmux, rabbitmq_url: str, rabbitmq_management_url: str, key: str
) -> None:
    give_up_on(rabbitmq_url, QUEUE, [1, 2, 3])
    before = begin(tmux, rabbitmq_url, rabbitmq_management_url)
    tmux.wait_for(QUEUE)
    wait_until(
        lambda: any(QUEUE in line and " 3 " in line for line in tmux.screen.splitlines()),
        "the three failed messages",
    )
    assert "guest:guest" not in tmux.screen
    tmux.see_the_clock_tick()
    tmux.type(key)
    assert_it_is_clean(tmux, before)


def test_sigterm_leaves_the_terminal_clean(
    tmux: Tmux, rabbitmq_url: str, rabbitmq_management_url: str
) -> None:
    declare(rabbitmq_url, QUEUE)
    before = begin(tmux, rabbitmq_url, rabbitmq_management_url)
    tmux.wait_for(QUEUE)
    os.kill(int((tmux.directory / "process").read_text()), signal.SIGTERM)
    assert_it_is_clean(tmux, before)


@pytest.mark.nightly("drawing is tried each time")
def test_a_management_api_that_answers_slowly_does_not_stop_the_view(
    tmux: Tmux, rabbitmq_url: str, wire: Proxy
) -> None:
    declare(rabbitmq_url, QUEUE)
    wire.delay(1.5)  # each way: an answer takes three seconds
    begin(tmux, rabbitmq_url, through(wire))
    tmux.see_the_clock_tick()
    tmux.wait_for(QUEUE)
    tmux.see_the_clock_tick()
    wait_until(
        lambda: (
            re.search(r"the management API is slow: these numbers are \d+ s old", tmux.screen)
            is not None
        ),
        "how old it is",
    )


@pytest.mark.parametrize("key", ["q", "C-c"])
def test_a_key_ends_it_while_the_management_api_does_not_answer(
    tmux: Tmux, rabbitmq_url: str, wire: Proxy, key: str
) -> None:
    declare(rabbitmq_url, QUEUE)
    # It gives up the management API after an hour: so it has not left because of that.
    before = begin(tmux, rabbitmq_url, through(wire), str(PATIENT))
    tmux.wait_for(QUEUE)
    wire.freeze()
    tmux.wait_for("the management API is slow")
    tmux.type(key)
    assert_it_is_clean(tmux, before)


@pytest.mark.nightly("drawing is tried each time")
def test_where_nothing_changes_little_is_written(
    tmux: Tmux, rabbitmq_url: str, rabbitmq_management_url: str, tmp_path: Path
) -> None:
    for number in range(10):
        declare(rabbitmq_url, f"shop@orders-{number}")
    begin(tmux, rabbitmq_url, rabbitmq_management_url)
    tmux.wait_for("10 subscriptions")
    # The numbers of a new queue come bit by bit.
    wait_until(lambda: tmux.screen.count(" 0.0 ") >= 4 * 10, "all rates")
    written = tmp_path / "written"
    tmux.record(written)
    tmux.see_the_clock_tick()
    tmux.see_the_clock_tick()
    assert 0 < written.stat().st_size < 10 * 110  # the ten lines once


def test_it_says_that_the_management_api_is_away_and_goes_on_once_it_is_back(
    tmux: Tmux, rabbitmq_url: str, wire: Proxy
) -> None:
    declare(rabbitmq_url, QUEUE)
    begin(tmux, rabbitmq_url, through(wire))
    tmux.wait_for("1 subscription;")
    wire.refuse()
    wire.cut()
    tmux.wait_for("its management API does not answer")
    wait_until(
        lambda: (
            re.search(r"Asking again; these numbers are [1-9]\d* s old\.", tmux.screen) is not None
        ),
        "how old it is",
    )
    assert QUEUE in tmux.screen
    wire.accept()
    tmux.wait_for("1 subscription;")
    assert "does not answer" not in tmux.screen


def test_all_numbers_stand_in_80_columns(
    tmux: Tmux, rabbitmq_url: str, rabbitmq_management_url: str
) -> None:
    declare(rabbitmq_url, QUEUE)
    tmux.resize(80, 20)
    begin(tmux, rabbitmq_url, rabbitmq_management_url)
    wait_until(
        lambda: (
            re.search(rf"^{QUEUE}( +0){{3}} +none( +0\.0){{5}}$", tmux.screen, re.MULTILINE)
            is not None
        ),
        "the subscription",
    )
    assert "…" not in tmux.screen


def test_arrow_keys_show_the_subscriptions_for_which_there_is_no_line(
    tmux: Tmux, rabbitmq_url: str, rabbitmq_management_url: str
) -> None:
    queues = [f"shop@orders-{number:02}" for number in range(30)]
    with plain_channel(rabbitmq_url) as channel:
        for queue in queues:
            channel.queue_declare(f"{queue}@failed")
    begin(tmux, rabbitmq_url, rabbitmq_management_url)

    def shows(first: int, last: int) -> None:
        tmux.wait_for(f"showing {first}–{last}; arrow keys scroll")
        assert re.findall(r"shop@orders-\d\d", tmux.screen) == queues[first - 1 : last]

    tmux.wait_for("30 subscriptions;")
    shows(1, 13)
    tmux.type("Down", "Down")
    shows(3, 15)
    tmux.type("NPage")
    shows(16, 28)
    tmux.type("NPage", "Down")
    shows(18, 30)
    tmux.type("Up")
    shows(17, 29)
    tmux.resize(110, 40)
    wait_until(lambda: re.findall(r"shop@orders-\d\d", tmux.screen) == queues, "all subscriptions")
    assert "showing" not in tmux.screen


@pytest.mark.versions("what a consumer may tell the broker")
def test_handlers_that_hang_are_shown(rabbitmq_url: str, rabbitmq_management_url: str) -> None:
    released = threading.Event()
    service = Service(rabbitmq_url, retry=retrying(0))

    def hung() -> int | None:
        arguments = ("top", "--output", "json", "--management-url", rabbitmq_management_url)
        found = redrive(*arguments, url=rabbitmq_url).json()["subscriptions"]
        return None if found[0]["hung"] is None else int(found[0]["hung"])

    recorder = Recorder(lambda _: released.wait(DEADLINE))
    with service.subscriber(recorder, handler_timeout=0.5):
        service.publish()
        wait_until(lambda: hung() == 1, "one is shown")
        released.set()
        wait_until(lambda: hung() is None, "it has ended")


def test_once_prints_a_table_and_leaves(rabbitmq_url: str, rabbitmq_management_url: str) -> None:
    give_up_on(rabbitmq_url, QUEUE, [1])
    arguments = ("top", "--once", "--management-url", rabbitmq_management_url)

    def consumers() -> object:
        found = redrive(*arguments, "--output", "json", url=rabbitmq_url).json()
        return found["subscriptions"][0]["consumers"]

    # The management API is up to five seconds late.
    wait_until(lambda: consumers() == 0, "the one that set it aside is gone")
    done = redrive(*arguments, url=rabbitmq_url)
    assert done.code == 0
    rates = ["in/s", "done/s", "retried/s", "failed/s", "requeued/s"]
    assert done.out.splitlines()[0].split() == [
        "subscription",
        "main",
        "retry",
        "failed",
        "consumers",
        *rates,
        "state",
    ]
    assert done.out.splitlines()[2].split()[4] == "none"
    assert "1 subscription; 0 messages on delay ladders" in done.out
    wait_until(
        lambda: (
            redrive(*arguments, "--output", "json", url=rabbitmq_url).json()["subscriptions"][0][
                "failed"
            ]
            == 1
        ),
        "the failed message",
    )


def test_without_a_terminal_it_says_to_give_once(
    rabbitmq_url: str, rabbitmq_management_url: str
) -> None:
    done = redrive("top", "--management-url", rabbitmq_management_url, url=rabbitmq_url)
    assert (done.code, done.error_lines) == (
        2,
        ["Error: there is no terminal to draw in", "Give --once."],
    )


def test_without_the_management_api_it_says_how_to_have_it(rabbitmq_url: str) -> None:
    done = redrive("top", "--once", "--management-url", "http://127.0.0.1:9", url=rabbitmq_url)
    assert done.code == 2
    assert "rabbitmq-plugins enable rabbitmq_management" in done.error_lines[1]
