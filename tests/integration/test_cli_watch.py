"""`redrive watch`: once for each time that a failed queue grows."""

import http.server
import json
import os
import signal
import threading
from pathlib import Path

import pytest

from cli_support import declare, give_up_on, redrive, running
from redrive import FailedQueue
from redrive.amqp.properties import Properties
from redrive.testing import Proxy
from redrive.topology.headers import Delivery
from waiting import wait_until

QUEUE = "ucenter@user"


@pytest.mark.parametrize(("above", "code"), [("2", 0), ("1", 1)])
def test_looking_once_says_by_its_exit_code_whether_there_are_more(
    rabbitmq_url: str, above: str, code: int
) -> None:
    give_up_on(rabbitmq_url, QUEUE, [1, 2])
    done = redrive("watch", QUEUE, "--above", above, "--once", url=rabbitmq_url)
    assert done.code == code
    assert done.out == ("2 messages in ucenter@user@failed: more than 1.\n" if code else "")


def test_looking_once_at_a_broker_that_does_not_answer_is_no_quiet_success(
    rabbitmq_url: str,
) -> None:
    with Proxy(rabbitmq_url) as proxy:
        proxy.refuse()
        done = redrive("watch", QUEUE, "--above", "0", "--once", url=proxy.url)
    assert done.code == 2
    assert "connection refused" in done.error_lines[0]
    assert "later" not in done.err


def test_a_command_runs_when_a_queue_grows(rabbitmq_url: str, tmp_path: Path) -> None:
    told = tmp_path / "told"
    tell = tmp_path / "tell"
    tell.write_text(f'#!/bin/sh\necho "$REDRIVE_QUEUE $REDRIVE_FAILED" >> {told}\n')
    tell.chmod(0o700)
    declare(rabbitmq_url, QUEUE)
    failed = FailedQueue(rabbitmq_url, QUEUE)
    with running(
        "watch", QUEUE, "--above", "1", "--every", "20ms", "--command", str(tell), url=rabbitmq_url
    ) as process:
        failed.restore(
            [Delivery(QUEUE, "master.failed", QUEUE, Properties(delivery_mode=2), b"")] * 2
        )
        wait_until(
            lambda: told.exists() and told.read_text().endswith("\n"), "the crossing is told of"
        )
        process.signal(signal.SIGINT)
        assert process.end().code == 130
    assert told.read_text() == f"{QUEUE} 2\n"


@pytest.mark.parametrize("told_by", ["management", "nobody"])
def test_a_look_is_no_crossing(
    rabbitmq_url: str, rabbitmq_management_url: str, tmp_path: Path, told_by: str
) -> None:
    told, tell = tmp_path / "told", tmp_path / "tell"
    tell.write_text(f'#!/bin/sh\necho "$REDRIVE_QUEUE $REDRIVE_FAILED" >> {told}\n')
    tell.chmod(0o700)
    ticks = [f"tick@{number}" for number in range(4)]
    for queue in (QUEUE, *ticks):
        declare(rabbitmq_url, queue)
    fill(rabbitmq_url, QUEUE)
    options = ("--above", "1", "--every", "20ms", "--command", str(tell))
    management_url = rabbitmq_management_url if told_by == "management" else "http://127.0.0.1:9"
    with running(
        "watch", QUEUE, *ticks, *options, "--management-url", management_url, url=rabbitmq_url
    ) as process:

        def wait_until_it_has_looked(*ticks: str) -> None:
            """The first of these queues may be told of in a round that began before; the second, in
            the next one."""
            for queue in ticks:
                fill(rabbitmq_url, queue)
                line = f"{queue} 2\n"
                wait_until(lambda line=line: line in told.read_text(), f"{queue} is told of")  # type: ignore[misc]

        wait_until(
            lambda: told.exists() and told.read_text().endswith("\n"), "the crossing is told of"
        )
        messages = FailedQueue(rabbitmq_url, QUEUE).browse()
        next(messages)
        wait_until_it_has_looked(*ticks[:2])
        messages.close()
        wait_until_it_has_looked(*ticks[2:])
        process.signal(signal.SIGINT)
        assert process.end().code == 130
    assert told.read_text().splitlines() == [f"{queue} 2" for queue in (QUEUE, *ticks)]


def fill(url: str, queue: str) -> None:
    """Sets two messages aside."""
    FailedQueue(url, queue).restore(
        [Delivery(queue, "master.failed", queue, Properties(delivery_mode=2), b"")] * 2
    )


def test_a_webhook_gets_json(rabbitmq_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    got: list[object] = []

    class Hook(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            got.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            self.send_response(204)
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:
            pass

    for name in [name for name in os.environ if name.lower().endswith("_proxy")]:
        monkeypatch.delenv(name)
    give_up_on(rabbitmq_url, QUEUE, [1])
    with http.server.HTTPServer(("127.0.0.1", 0), Hook) as server:
        serving = threading.Thread(target=server.serve_forever)
        serving.start()
        address = f"http://127.0.0.1:{server.server_port}/"
        done = redrive(
            "watch",
            QUEUE,
            "--above",
            "0",
            "--once",
            "--webhook",
            address,
            "--output",
            "json",
            url=rabbitmq_url,
        )
        server.shutdown()
        serving.join()
    assert got == [{"queue": QUEUE, "failed": 1, "above": 0}]
    assert json.loads(done.out) == got[0]


@pytest.mark.parametrize(
    "option",
    [
        ("--command", "/nowhere/program"),
        ("--command", "false"),
        ("--webhook", "http://127.0.0.1:1/"),
    ],
)
def test_a_hook_that_fails_is_said_and_no_crash(rabbitmq_url: str, option: tuple[str, str]) -> None:
    give_up_on(rabbitmq_url, QUEUE, [1])
    done = redrive("watch", QUEUE, "--above", "0", "--once", *option, url=rabbitmq_url)
    assert (done.code, len(done.error_lines)) == (1, 1)


@pytest.mark.parametrize("arguments", [("--command", "'"), ("--command", ""), ("--every", "soon")])
def test_what_can_not_be_is_refused(arguments: tuple[str, str]) -> None:
    assert redrive("watch", QUEUE, "--above", "0", *arguments).code == 2
