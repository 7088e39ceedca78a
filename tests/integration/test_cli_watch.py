"""`redrive watch`: once for each time that a failed queue grows."""

import http.server
import json
import os
import signal
import threading
from pathlib import Path

import pytest

from cli_support import declare, give_up_on, redrive, running, wait_until
from redrive import FailedQueue
from redrive.topology.headers import Delivery
from redrive.topology.properties import Properties

QUEUE = "ucenter@user"


@pytest.mark.parametrize(("above", "code"), [("2", 0), ("1", 1)])
def test_looking_once_says_by_its_exit_code_whether_there_are_more(rabbitmq_url: str, above: str, code: int) -> None:
    give_up_on(rabbitmq_url, QUEUE, [1, 2])
    done = redrive("watch", QUEUE, "--above", above, "--once", url=rabbitmq_url)
    assert done.code == code
    assert done.out == ("2 messages in ucenter@user@failed: more than 1.\n" if code else "")


def test_a_command_runs_when_a_queue_grows(rabbitmq_url: str, tmp_path: Path) -> None:
    told = tmp_path / "told"
    tell = tmp_path / "tell"
    tell.write_text(f'#!/bin/sh\necho "$REDRIVE_QUEUE $REDRIVE_FAILED" >> {told}\n')
    tell.chmod(0o700)
    declare(rabbitmq_url, QUEUE)
    failed = FailedQueue(rabbitmq_url, QUEUE)
    with running("watch", QUEUE, "--above", "1", "--every", "20ms", "--command", str(tell), url=rabbitmq_url) as process:
        failed.restore([Delivery(QUEUE, "master.failed", QUEUE, Properties(delivery_mode=2), b"")] * 2)
        wait_until(lambda: told.exists() and told.read_text().endswith("\n"), "the crossing is told of")
        process.signal(signal.SIGINT)
        assert process.end().code == 130
    assert told.read_text() == f"{QUEUE} 2\n"


@pytest.mark.parametrize("management_url", ["told", "http://127.0.0.1:9"])
def test_a_look_is_no_crossing(rabbitmq_url: str, rabbitmq_management_url: str, tmp_path: Path, management_url: str) -> None:
    told, looked = tmp_path / "told", 5
    tell = tmp_path / "tell"
    tell.write_text(f'#!/bin/sh\necho "$REDRIVE_QUEUE $REDRIVE_FAILED" >> {told}\n')
    tell.chmod(0o700)
    give_up_on(rabbitmq_url, QUEUE, [1, 2])
    failed = FailedQueue(rabbitmq_url, QUEUE)
    options = ("--above", "1", "--every", "20ms", "--command", str(tell))
    address = rabbitmq_management_url if management_url == "told" else management_url
    with running("watch", QUEUE, *options, "--management-url", address, url=rabbitmq_url) as process:
        wait_until(lambda: told.exists() and told.read_text().endswith("\n"), "the crossing is told of")
        for _ in range(looked):
            messages = failed.browse()
            next(messages)
            _wait_for_a_look_of_the_watch(rabbitmq_url)
            messages.close()
            _wait_for_a_look_of_the_watch(rabbitmq_url)
        process.signal(signal.SIGINT)
        assert process.end().code == 130
    assert told.read_text() == f"{QUEUE} 2\n"


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
        done = redrive("watch", QUEUE, "--above", "0", "--once", "--webhook", address, "--output", "json", url=rabbitmq_url)
        server.shutdown()
        serving.join()
    assert got == [{"queue": QUEUE, "failed": 1, "above": 0}]
    assert json.loads(done.out) == got[0]


@pytest.mark.parametrize("option", [("--command", "/nowhere/program"), ("--command", "false"), ("--webhook", "http://127.0.0.1:1/")])
def test_a_hook_that_fails_is_said_and_no_crash(rabbitmq_url: str, option: tuple[str, str]) -> None:
    give_up_on(rabbitmq_url, QUEUE, [1])
    done = redrive("watch", QUEUE, "--above", "0", "--once", *option, url=rabbitmq_url)
    assert (done.code, len(done.error_lines)) == (1, 1)


@pytest.mark.parametrize("arguments", [("--command", "'"), ("--command", ""), ("--every", "soon")])
def test_what_can_not_be_is_refused(arguments: tuple[str, str]) -> None:
    assert redrive("watch", QUEUE, "--above", "0", *arguments).code == 2
