"""`redrive web`: how it begins, what it refuses, and how it ends."""

import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import httpx
import pytest

from cli_support import PATIENCE, declare, redrive


@contextmanager
def console(url: str, *options: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """The command as a process, and the link that it has printed."""
    words = [sys.executable, "-m", "redrive.cli", "web", "--url", url, "--listen", "127.0.0.1:0"]
    process = subprocess.Popen([*words, *options], stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        printed = process.stdout.readline() + process.stdout.readline()
        found = re.search(r"http://127\.0\.0\.1:\d+/open\?token=\S+", printed)
        assert found is not None, printed
        yield process, found[0]
    finally:
        process.kill()
        process.wait()
        if process.stdout is not None:
            process.stdout.close()


def test_it_prints_a_link_that_opens_it(rabbitmq_url: str, rabbitmq_management_url: str) -> None:
    with (
        console(rabbitmq_url, "--management-url", rabbitmq_management_url) as (_, link),
        httpx.Client(trust_env=False, timeout=PATIENCE, follow_redirects=True) as client,
    ):
        page = client.get(link)
    assert page.status_code == 200
    assert "All quiet" in page.text
    assert "read-only" in page.text


@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGTERM])
def test_ctrl_c_ends_it(rabbitmq_url: str, sent: signal.Signals) -> None:
    with console(rabbitmq_url) as (process, link):
        with httpx.Client(trust_env=False, timeout=PATIENCE) as client:
            assert client.get(link).status_code == 303
        process.send_signal(sent)
        assert process.wait(PATIENCE) == 0


def test_without_the_management_api_it_says_so_and_takes_the_name_of_a_queue(
    rabbitmq_url: str,
) -> None:
    declare(rabbitmq_url, "ucenter@user")
    with (
        console(rabbitmq_url, "--management-url", "http://127.0.0.1:1") as (_, link),
        httpx.Client(trust_env=False, timeout=PATIENCE, follow_redirects=True) as client,
    ):
        overview = client.get(link)
        assert "did not list the queues" in overview.text
        assert "All quiet" not in overview.text
        named = client.get(link.partition("/open")[0] + "/causes?queue=ucenter%40user")
        assert "This queue has not been scanned yet" in named.text


def test_a_broker_that_is_away_is_told_on_the_page() -> None:
    with (
        console("amqp://guest:hidden-secret@127.0.0.1:1/") as (_, link),
        httpx.Client(trust_env=False, timeout=PATIENCE, follow_redirects=True) as client,
    ):
        overview = client.get(link)
        queue = client.get(link.partition("/open")[0] + "/causes?queue=ucenter%40user")
    assert overview.status_code == 200
    assert "All quiet" not in overview.text
    assert queue.status_code == 503
    assert "hidden-secret" not in overview.text + queue.text


def test_a_port_that_is_taken_is_told_in_two_lines() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        outcome = redrive("web", "--listen", f"127.0.0.1:{taken.getsockname()[1]}")
    assert outcome.code == 2
    assert len(outcome.error_lines) == 2
    assert "the port is in use" in outcome.err


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--listen", "0.0.0.0:8015"], "has no login"),
        (["--listen", "nowhere"], "not a host and port"),
        (["--allow", "everything"], "is not a permit"),
        (["--allow", "edit"], "edit needs requeue"),
        (["--url", "amqp://user:hidden-secret@host:port/"], ""),
    ],
)
def test_what_can_not_be_is_refused_in_two_lines(options: list[str], says: str) -> None:
    outcome = redrive("web", *options)
    assert outcome.code == 2
    assert len(outcome.error_lines) <= 2
    assert says in outcome.err
    assert "hidden-secret" not in outcome.err


def test_json_has_the_link_for_programs(rabbitmq_url: str) -> None:
    words = [sys.executable, "-m", "redrive.cli", "web", "--url", rabbitmq_url]
    with subprocess.Popen(
        [*words, "--listen", "127.0.0.1:0", "--output", "json"], stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        printed = ""
        while not printed.rstrip().endswith("}"):
            printed += process.stdout.readline()
        assert '"link": "http://127.0.0.1:' in printed
        process.send_signal(signal.SIGINT)
        assert process.wait(PATIENCE) == 0
