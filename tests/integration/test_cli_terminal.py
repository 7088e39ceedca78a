"""The command line as people meet it: at a terminal, with pipes, with Ctrl-C."""

import subprocess
import sys

import pytest

from cli_support import PATIENCE, Terminal, depth_of, give_up_on, redrive, run_redrive
from dead_letters import DeadLetters
from effort import nightly
from redrive import Publisher
from waiting import wait_until

QUEUE = "ucenter@user"


def fill(url: str, count: int) -> None:
    """Puts messages straight into the failed queue, through the failed exchange."""
    redrive(
        "declare", "--queue", QUEUE, "--routing-key", "user.*", "--queue-type", "classic", url=url
    )
    with Publisher(url, "master.failed", declare=False) as publisher:
        report = publisher.publish_many(
            ((f"message {number}", QUEUE) for number in range(count)), mandatory=True
        )
    assert report.confirmed == count


def test_a_yes_at_the_terminal_sends_the_messages(rabbitmq_url: str) -> None:
    give_up_on(rabbitmq_url, QUEUE, [1, 2])
    with Terminal("failed", "requeue", QUEUE, url=rabbitmq_url) as terminal:
        terminal.wait_for("Requeue 2 messages? [y/N]")
        assert (
            "2 messages of ucenter@user@failed would be requeued to ucenter@user:"
            in terminal.screen
        )
        terminal.type("y\n")
        assert terminal.end() == 0
        assert "2 of 2 messages requeued" in terminal.screen
    assert depth_of(rabbitmq_url, QUEUE) == {"main": 2, "retry": 0, "failed": 0}


def test_what_nobody_could_check_is_asked_for_with_the_reason(rabbitmq_url: str) -> None:
    dead = DeadLetters(rabbitmq_url)
    dead.declare()
    ids = dead.fail(2)
    nowhere = ("--management-url", "http://127.0.0.1:1")
    with Terminal("failed", "requeue", dead.place, *nowhere, url=rabbitmq_url) as terminal:
        terminal.wait_for("Include what could not be confirmed? [y/N]")
        assert "nobody could ask the management API" in terminal.screen
        terminal.type("y\n")
        terminal.wait_for("Requeue 2 messages? [y/N]")
        terminal.type("y\n")
        assert terminal.end() == 0
    assert [id_ for id_, _ in dead.drain()] == ids


QUESTIONS = {
    "requeue": "Requeue 2 messages? [y/N]",
    "purge": "Delete 2 messages of ucenter@user@failed for good? [y/N]",
}


@pytest.mark.parametrize(
    ("command", "answer", "code"),
    [
        ("requeue", "\n", 1),
        ("purge", "\x03", 130),
        *(
            nightly(command, answer, code, why="the same question, or the same answer")
            for command in QUESTIONS
            for answer, code in (("n\n", 1), ("\n", 1), ("\x04", 1), ("\x03", 130))
            if (command, answer) not in {("requeue", "\n"), ("purge", "\x03")}
        ),
    ],
)
def test_anything_but_a_yes_leaves_the_messages_where_they_are(
    rabbitmq_url: str, command: str, answer: str, code: int
) -> None:
    give_up_on(rabbitmq_url, QUEUE, [1, 2])
    with Terminal("failed", command, QUEUE, url=rabbitmq_url) as terminal:
        terminal.wait_for(QUESTIONS[command])
        terminal.type(answer)
        assert terminal.end() == code
        assert "Traceback" not in terminal.screen
    assert depth_of(rabbitmq_url, QUEUE)["failed"] == 2


def test_with_a_limit_the_messages_that_were_shown_are_sent(rabbitmq_url: str) -> None:
    give_up_on(rabbitmq_url, QUEUE, list(range(10)))
    redrive(
        "failed", "list", QUEUE, url=rabbitmq_url
    )  # from now on, a quorum queue puts what was looked at behind the rest
    with Terminal("failed", "requeue", QUEUE, "--limit", "2", url=rabbitmq_url) as terminal:
        terminal.wait_for("[y/N]")
        shown = [line.split()[0] for line in terminal.screen.splitlines() if "user.create" in line]
        terminal.type("y\n")
        assert terminal.end() == 0
    left = redrive("failed", "list", QUEUE, "--output", "json", url=rabbitmq_url).json()["messages"]
    assert len(shown) == 2
    assert len(left) == 8
    assert not {str(message["failure_id"])[:8] for message in left} & set(shown)


@pytest.mark.parametrize(
    "columns", [40, *(nightly(width, why="it is as wide as there is room") for width in (80, 120))]
)
def test_a_table_fits_the_terminal(rabbitmq_url: str, columns: int) -> None:
    give_up_on(rabbitmq_url, QUEUE, [1], ValueError("a long story " * 20))
    with Terminal("failed", "list", QUEUE, url=rabbitmq_url, columns=columns) as terminal:
        assert terminal.end() == 0
        assert max(map(len, terminal.words.splitlines())) <= columns


@pytest.mark.parametrize(("environment", "coloured"), [({}, True), ({"NO_COLOR": "1"}, False)])
def test_no_colour_is_no_colour(
    rabbitmq_url: str, environment: dict[str, str], coloured: bool
) -> None:
    give_up_on(rabbitmq_url, QUEUE, [1])
    with Terminal("status", QUEUE, url=rabbitmq_url, environment=environment) as terminal:
        assert terminal.end() == 0
        assert ("\x1b[1;33m" in terminal.screen) is coloured


@pytest.mark.nightly("a table is printed each time")
def test_the_causes_so_far_are_shown_while_a_look_goes_on(rabbitmq_url: str) -> None:
    fill(rabbitmq_url, 20_000)
    with Terminal("failed", "groups", QUEUE, "--index", "off", url=rabbitmq_url) as terminal:
        terminal.wait_for("no error recorded")
        assert "of ucenter@user@failed in 1 group." not in terminal.words
        assert terminal.end() == 0
        assert "20,000 messages of ucenter@user@failed in 1 group." in terminal.words


def test_what_is_no_terminal_gets_no_escapes(rabbitmq_url: str) -> None:
    give_up_on(rabbitmq_url, QUEUE, [1])
    done = run_redrive("status", QUEUE, url=rabbitmq_url)
    assert "\x1b" not in done.out


def test_a_closed_pipe_is_quiet(rabbitmq_url: str) -> None:
    give_up_on(rabbitmq_url, QUEUE, ["x" * 100_000] * 3)
    command = [
        sys.executable,
        "-m",
        "redrive.cli",
        "failed",
        "list",
        QUEUE,
        "--output",
        "json",
        "--url",
        rabbitmq_url,
    ]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.read(1)
        process.stdout.close()
        assert process.stderr.read() == b""
        assert process.wait(PATIENCE) == 141


def test_ctrl_c_finishes_what_is_on_its_way_and_says_how_far_it_got(rabbitmq_url: str) -> None:
    count = 30_000
    fill(rabbitmq_url, count)
    with Terminal(
        "failed", "requeue", QUEUE, "--yes", "--rate", "1000/s", url=rabbitmq_url
    ) as terminal:
        terminal.wait_for("requeueing")
        wait_until(lambda: (depth_of(rabbitmq_url, QUEUE)["main"] or 0) > 0, "the first message")
        terminal.type("\x03")
        code = terminal.end()
        assert "Traceback" not in terminal.screen
    found = depth_of(rabbitmq_url, QUEUE)
    assert code == 130
    assert (found["main"] or 0) + (found["failed"] or 0) == count
    assert (
        f"Stopped: {found['main']:,} of 30,000 messages requeued to ucenter@user" in terminal.screen
    )
