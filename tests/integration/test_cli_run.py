"""`redrive run` on a real broker, as a process."""

import signal
from pathlib import Path

import pytest

from cli_support import declare, depth_of, redrive, run_redrive, running
from effort import nightly
from waiting import wait_until

SHOP = """
import os
from redrive import Message, Subscriber

class Places:
    second = Subscriber(os.environ["SHOP_URL"], "shop@second", ["second.*"])

first = Subscriber(os.environ["SHOP_URL"], "shop@first", ["first.*"])
nothing = 3

@first.handler
def on_first(message: Message) -> None:
    if message.body == b"bad":
        raise ValueError("no plan \\x1b[31m")

@Places.second.handler
def on_second(message: Message) -> None:
    pass
"""


AIO = """
import os
from redrive import AsyncSubscriber, Message

first = AsyncSubscriber(os.environ["SHOP_URL"], "shop@first", ["first.*"])
second = AsyncSubscriber(os.environ["SHOP_URL"], "shop@second", ["second.*"])

@first.handler
async def on_first(message: Message) -> None: ...

@second.handler
async def on_second(message: Message) -> None: ...
"""


@pytest.fixture
def shop(tmp_path: Path) -> str:
    (tmp_path / "shop.py").write_text(SHOP)
    (tmp_path / "aio.py").write_text(AIO)
    (tmp_path / "raises.py").write_text("1 / 0")
    (tmp_path / "misses.py").write_text("import no_such_library")
    (tmp_path / "wrong.py").write_text("def (")
    (tmp_path / "bare.py").write_text("")
    return str(tmp_path)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize(
    "targets", [("shop:first", "shop:Places.second"), ("aio:first", "aio:second")], ids="ba"
)
def test_subscribers_run_until_a_signal(
    rabbitmq_url: str, shop: str, targets: tuple[str, str], number: signal.Signals
) -> None:
    for queue in ("shop@first", "shop@second"):
        redrive(
            "declare",
            "--queue",
            queue,
            "--routing-key",
            f"{queue.partition('@')[2]}.*",
            url=rabbitmq_url,
        )
    for key in ("first.a", "second.a"):
        redrive("publish", key, "good", url=rabbitmq_url)
    with running("run", *targets, environment={"SHOP_URL": rabbitmq_url}, cwd=shop) as process:
        wait_until(lambda: depth_of(rabbitmq_url, "shop@first")["main"] == 0, "the first message")
        wait_until(lambda: depth_of(rabbitmq_url, "shop@second")["main"] == 0, "the second message")
        process.signal(number)
        done = process.end()
    assert (done.code, done.out) == (0, "")
    assert f"{number.name}: finishing running handlers" in done.err


def test_what_a_message_says_cant_steer_the_terminal_by_the_log(
    rabbitmq_url: str, shop: str
) -> None:
    redrive("declare", "--queue", "shop@first", "--routing-key", "first.*", url=rabbitmq_url)
    redrive("publish", "first.a", "bad", url=rabbitmq_url)
    with running(
        "run",
        "shop:first",
        "--log-level",
        "warning",
        environment={"SHOP_URL": rabbitmq_url},
        cwd=shop,
    ) as process:
        wait_until(lambda: depth_of(rabbitmq_url, "shop@first")["retry"] == 1, "the failed attempt")
        process.signal(signal.SIGTERM)
        done = process.end()
    assert done.code == 0
    assert r"no plan \x1b[31m" in done.err
    assert "\x1b" not in done.err


@pytest.mark.parametrize(
    ("target", "problem"),
    [
        ("shop", "'shop' does not name an app or a subscriber"),
        nightly(
            ":first",
            "':first' does not name an app or a subscriber",
            why="another slip of the same kind",
        ),
        ("no_such:first", "there is no module 'no_such' in"),
        nightly(
            "shop.deeper:first",
            "there is no module 'shop.deeper' in",
            why="another slip of the same kind",
        ),
        ("shop:third", "the module 'shop' has no 'third'"),
        nightly(
            "shop:Places.third",
            "the module 'shop' has no 'Places.third'",
            why="another slip of the same kind",
        ),
        ("shop:nothing", "shop:nothing is of type int, not an app or a subscriber"),
        nightly(
            "bare:first", "the module 'bare' has no 'first'", why="another slip of the same kind"
        ),
        (
            "raises:first",
            "the module 'raises' can't be imported: ZeroDivisionError: division by zero",
        ),
        (
            "misses:first",
            (
                "the module 'misses' can't be imported: ModuleNotFoundError: No module named "
                "'no_such_library'"
            ),
        ),
        nightly(
            "wrong:first",
            "the module 'wrong' can't be imported: SyntaxError: ",
            why="another slip of the same kind",
        ),
    ],
)
def test_a_subscriber_that_is_not_there_is_said_in_two_lines(
    shop: str, target: str, problem: str
) -> None:
    done = run_redrive("run", target, environment={"SHOP_URL": "amqp://localhost/"}, cwd=shop)
    assert done.code == 2
    assert done.error_lines[0].startswith(f"Error: {problem}")
    assert len(done.error_lines) == 2


def test_subscribers_of_both_shells_are_refused_in_one_process(shop: str) -> None:
    done = run_redrive(
        "run", "shop:first", "aio:second", environment={"SHOP_URL": "amqp://localhost/"}, cwd=shop
    )
    assert done.code == 2
    assert done.error_lines == [
        "Error: queue 'shop@first' has a Subscriber, and queue 'shop@second' an AsyncSubscriber",
        "Run them in two processes, each with a `redrive run` of its own.",
    ]


def test_a_wrong_name_comes_with_the_right_ones(shop: str) -> None:
    done = run_redrive("run", "shop:third", environment={"SHOP_URL": "amqp://localhost/"}, cwd=shop)
    assert done.error_lines[1] == "There is shop:first."


def test_the_program_has_its_own_address(shop: str) -> None:
    done = run_redrive(
        "run",
        "shop:first",
        "--url",
        "amqp://localhost/",
        environment={"SHOP_URL": "amqp://localhost/"},
        cwd=shop,
    )
    assert (done.code, done.error_lines[0]) == (
        2,
        "Error: run takes no --url: the program has its own",
    )


def test_a_queue_with_other_arguments_ends_it(rabbitmq_url: str, shop: str) -> None:
    declare(rabbitmq_url, "shop@first")
    done = run_redrive("run", "shop:first", environment={"SHOP_URL": rabbitmq_url}, cwd=shop)
    assert done.code == 1
    assert "queue 'shop@first@retry' is on the broker with x-message-ttl=200" in done.err
