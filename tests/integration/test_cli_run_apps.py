"""`redrive run` with an app: some of its queues, several processes, and starting over."""

import contextlib
import os
import signal
from pathlib import Path
from typing import NamedTuple

import pytest

from cli_support import Process, depth_of, redrive, run_redrive, running
from contract.plain import plain_channel, wait_for_consumers
from waiting import wait_until

APP = """
import contextlib
import os
from pathlib import Path
from redrive import {app}, Message

app = {app}(retry_via="dead-letter")
HERE = Path(__file__).parent

@app.lifespan
{async_}def life(app):
    (HERE / f"up-{{os.getpid()}}").touch()
    yield
    (HERE / f"down-{{os.getpid()}}").touch()

@app.subscriber("shop@orders", "order.*")
{async_}def on_order(message: Message) -> None:
    (HERE / f"handled-{{message.body.decode()}}").write_text("first")

@app.subscriber("shop@users", "user.*")
{async_}def on_user(message: Message) -> None:
    pass
"""

ORDERED = """
from redrive import App, Message

app = App()

@app.subscriber("shop@ledger", "ledger.*", ordered=True)
def on_ledger(message: Message) -> None: ...

@app.subscriber("shop@orders", "order.*")
def on_order(message: Message) -> None: ...
"""

THIRTY = """
from pathlib import Path
from redrive import App

app = App()
for number in range(30):
    @app.subscriber(f"shop@n{number}", f"n{number}")
    def handle(body: dict) -> None: ...

@app.lifespan
def life(app):
    yield
    status = Path("/proc/self/status").read_text()
    (Path(__file__).parent / "status").write_text(status)
"""


class Shop(NamedTuple):
    """A folder with programs, and the broker that they use."""

    folder: Path
    url: str

    def run(self, *words: str) -> contextlib.AbstractContextManager[Process]:
        """`redrive run`, as a process."""
        return running("run", *words, environment={"REDRIVE_URL": self.url}, cwd=str(self.folder))

    def publish(self, key: str, body: str) -> None:
        """Publishes a message."""
        redrive("publish", key, body, url=self.url)

    def pids(self, state: str) -> set[int]:
        """The processes that have come to a state: `up`, or `down`."""
        return {int(path.name.partition("-")[2]) for path in self.folder.glob(f"{state}-*")}

    def wait_for_handled(self, body: str, how: str = "first") -> None:
        """Waits until a message with this body was handled in this way."""
        path = self.folder / f"handled-{body}"
        wait_until(lambda: path.exists() and path.read_text() == how, f"{body} is handled")


@pytest.fixture
def shop(tmp_path: Path, rabbitmq_url: str) -> Shop:
    (tmp_path / "blocking.py").write_text(APP.format(app="App", async_=""))
    (tmp_path / "aio.py").write_text(APP.format(app="AsyncApp", async_="async "))
    (tmp_path / "ordered.py").write_text(ORDERED)
    (tmp_path / "thirty.py").write_text(THIRTY)
    return Shop(tmp_path, rabbitmq_url)


both_shells = pytest.mark.parametrize("program", ["blocking", "aio"])


@both_shells
def test_an_app_runs_until_a_signal(shop: Shop, program: str) -> None:
    with shop.run(f"{program}:app") as process:
        wait_for_consumers(shop.url, "shop@orders")
        shop.publish("order.paid", "one")
        shop.wait_for_handled("one")
        process.signal(signal.SIGTERM)
        done = process.end()

    assert done.code == 0, done.err
    assert shop.pids("up") == shop.pids("down") != set()
    assert depth_of(shop.url, "shop@orders")["main"] == 0


@both_shells
def test_only_the_queues_that_are_named_are_consumed(shop: Shop, program: str) -> None:
    with shop.run(f"{program}:app", "--only", "shop@orders") as process:
        wait_for_consumers(shop.url, "shop@orders")
        shop.publish("order.paid", "one")
        shop.wait_for_handled("one")
        process.signal(signal.SIGTERM)
        assert process.end().code == 0

    with plain_channel(shop.url) as channel, pytest.raises(Exception, match="NOT_FOUND"):
        channel.queue_declare("shop@users", passive=True)


@both_shells
def test_workers_share_the_queues_and_end_together(shop: Shop, program: str) -> None:
    with shop.run(f"{program}:app", "--workers", "2") as process:
        wait_for_consumers(shop.url, "shop@orders", 2)
        workers = shop.pids("up")
        process.signal(signal.SIGTERM)
        done = process.end()

    assert done.code == 0, done.err
    assert len(workers) == 2
    assert shop.pids("down") == workers
    assert process.pid not in workers


def test_a_worker_that_is_killed_is_started_again(shop: Shop) -> None:
    with shop.run("blocking:app", "--workers", "2") as process:
        wait_for_consumers(shop.url, "shop@orders", 2)
        killed = min(shop.pids("up"))
        os.kill(killed, signal.SIGKILL)
        wait_until(lambda: len(shop.pids("up")) == 3, "a third one runs")
        wait_for_consumers(shop.url, "shop@orders", 2)
        process.signal(signal.SIGTERM)
        done = process.end()

    assert done.code == 0, done.err
    assert shop.pids("down") == shop.pids("up") - {killed}
    assert "was ended by SIGKILL; restarting it in 0.1 s" in done.err


def test_workers_end_with_the_process_that_started_them_however_it_ends(shop: Shop) -> None:
    with shop.run("blocking:app", "--workers", "2") as process:
        wait_for_consumers(shop.url, "shop@orders", 2)
        process.signal(signal.SIGKILL)
        process.end()
        wait_until(lambda: shop.pids("down") == shop.pids("up"), "both workers have ended cleanly")


@pytest.mark.nightly("another worker that ends is tried each time")
def test_workers_that_can_not_run_end_the_command_with_their_code(shop: Shop) -> None:
    declared = redrive(
        "declare",
        "--queue",
        "shop@orders",
        "--routing-key",
        "a",
        "--queue-type",
        "classic",
        url=shop.url,
    )
    assert declared.code == 0
    with shop.run("blocking:app", "--workers", "2") as process:
        done = process.end()

    assert done.code == 1
    assert "shop@orders" in done.err


def test_an_ordered_queue_is_not_given_to_several_workers(shop: Shop) -> None:
    done = run_redrive(
        "run",
        "ordered:app",
        "--workers",
        "2",
        cwd=str(shop.folder),
        environment={"REDRIVE_URL": shop.url},
    )

    assert done.code == 2
    assert "'shop@ledger' is ordered" in done.error_lines[0]
    assert len(done.error_lines) == 2


def test_the_others_of_such_an_app_are(shop: Shop) -> None:
    with shop.run("ordered:app", "--workers", "2", "--only", "shop@orders") as process:
        wait_for_consumers(shop.url, "shop@orders", 2)
        process.signal(signal.SIGTERM)
        assert process.end().code == 0


def test_a_program_that_changes_is_started_over(shop: Shop) -> None:
    file = shop.folder / "blocking.py"
    with shop.run("blocking:app", "--reload") as process:
        wait_for_consumers(shop.url, "shop@orders")
        (first,) = shop.pids("up")
        shop.publish("order.paid", "one")
        shop.wait_for_handled("one")
        file.write_text(file.read_text().replace('"first"', '"second"'))
        wait_until(lambda: len(shop.pids("up")) == 2, "it is started over")
        shop.publish("order.paid", "two")
        shop.wait_for_handled("two", "second")
        process.signal(signal.SIGINT)
        done = process.end()

    assert done.code == 0, done.err
    assert first in shop.pids("down")
    assert "blocking.py changed: starting over" in done.err


@pytest.mark.nightly("another worker that ends is tried each time")
def test_a_program_with_a_mistake_is_waited_for(shop: Shop) -> None:
    file = shop.folder / "blocking.py"
    right = file.read_text()
    with shop.run("blocking:app", "--reload") as process:
        wait_for_consumers(shop.url, "shop@orders")
        file.write_text(right + "\ndef (")
        wait_until(lambda: shop.pids("down"), "it has ended")
        file.write_text(right + "\n")
        wait_until(lambda: len(shop.pids("up")) == 2, "it is started over")
        process.signal(signal.SIGTERM)
        done = process.end()

    assert done.code == 0, done.err


def test_thirty_subscribers_take_little_memory(shop: Shop) -> None:
    with shop.run("thirty:app") as process:
        wait_for_consumers(shop.url, "shop@n29")
        for number in range(30):
            shop.publish(f"n{number}", "{}")
        process.signal(signal.SIGTERM)
        assert process.end().code == 0
    status = dict(line.split(":", 1) for line in (shop.folder / "status").read_text().splitlines())
    megabytes = int(status["VmHWM"].split()[0]) / 1024

    assert megabytes <= 120


@pytest.mark.parametrize(
    ("words", "problem", "remedy"),
    [
        (
            ("blocking:app", "--reload", "--workers", "2"),
            "--reload is for one process",
            "Leave one",
        ),
        (
            ("blocking:app", "--only", "shop@order"),
            "no subscriber of queue 'shop@order'",
            "'shop@orders'",
        ),
        (("blocking:app", "aio:app"), "blocking:app is an app", "by itself"),
        (("blocking:application",), "has no 'application'", "There is blocking:app."),
        (("blocking:HERE",), "PosixPath, not an app or a subscriber", "There is blocking:app."),
    ],
)
def test_what_can_not_be_run_is_said_in_two_lines(
    shop: Shop, words: tuple[str, ...], problem: str, remedy: str
) -> None:
    done = run_redrive("run", *words, cwd=str(shop.folder), environment={"REDRIVE_URL": shop.url})

    assert done.code == 2
    assert problem in done.error_lines[0]
    assert remedy in done.error_lines[1]
    assert len(done.error_lines) == 2


def test_an_app_without_a_url_says_which_variable_is_missing(shop: Shop) -> None:
    done = run_redrive("run", "blocking:app", cwd=str(shop.folder))

    assert done.code == 2
    assert "REDRIVE_URL" in done.error_lines[0]
    assert len(done.error_lines) == 2
